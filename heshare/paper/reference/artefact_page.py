"""The page `ARTIFACT.md` for evaluators: what to run, how long it takes, what it needs, what to expect of each claim.

Everything in it comes from the reference results, so that it needs no run. The words are in `artefact.md.j2`.
"""

import io
import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from heshare.paper import tables
from heshare.paper.claims import claim_table, claims_page
from heshare.paper.reference import reference_results
from heshare.shared import files

NAME = "ARTIFACT.md"


def page() -> str:
    origin = reference_results.origin()
    notebooks: dict[str, dict[str, float | None]] = origin["notebooks"]
    claims = pd.read_csv(io.StringIO(reference_results.read("claims.csv")), keep_default_na=False, na_values=[""])
    seconds = sum(notebook["seconds"] or 0 for notebook in notebooks.values())
    costs = {name: _cost(name, notebooks[name]) for name in sorted(notebooks)}
    others = [costs[name] for name in costs if name not in set(claims["notebook"])]
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string((Path(__file__).parent / "artefact.md.j2").read_text("utf-8"))
    return template.render(
        summary=textwrap.fill(f"{len(claims)} claims are evaluated: {claim_table.count_text(claims)}.", 120),
        platform=origin["platform"],
        processors=origin["processors"],
        python=".".join(origin["versions"]["python"].split(".")[:2]),
        mib=sum(notebook["kib"] or 0 for notebook in notebooks.values()) / 1024,
        minutes=math.ceil(seconds / 60 / min(2, origin["processors"])),
        claims={str(name): _table(rows) for name, rows in claims.groupby("notebook")},
        costs=costs,
        without_claims=tables.to_markdown(pd.DataFrame({**row, "command": f"`{row['command']}`"} for row in others)),
    )


def write() -> bool:
    """Write `ARTIFACT.md` into the checkout and return whether it changed."""
    target, text = files.root() / NAME, page()
    if target.is_file() and target.read_text("utf-8") == text:
        return False
    files.write_text(target, text)
    return True


def _cost(name: str, notebook: Mapping[str, float | None]) -> dict[str, str]:
    seconds, kib = notebook["seconds"], notebook["kib"] or 0
    minutes = "?" if seconds is None else f"{seconds / 60:.1f}"
    return {
        "command": f".venv/bin/heshare notebook run {name[:2]}",
        "minutes": minutes,
        "disk": f"{kib / 1024:.1f} MiB",
    }


def _table(rows: pd.DataFrame) -> str:
    found: list[Any] = rows.to_dict("records")
    return tables.to_markdown(
        pd.DataFrame(
            {
                "claim": claims_page.name({**row, "part": _text(row["part"])}),
                "where": row["where"],
                "statement": row["statement"],
                "paper": row["paper"],
                "expect": _expected(row),
            }
            for row in found
        )
    )


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value)


def _expected(row: Mapping[str, Any]) -> str:
    """Return what a run finds: value, unit, interval and verdict."""
    if math.isnan(row["measured"]):
        return str(row["verdict"])
    value, low, high = (f"{row[name]:.3g}" for name in ("measured", "low", "high"))
    interval = "" if math.isnan(row["low"]) else f" [{low}, {high}]"
    return f"{value} {_text(row['unit'])}{interval}: {row['verdict']}".replace("  ", " ")
