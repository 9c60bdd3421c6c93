"""The page `ARTIFACT.md` for evaluators: what to run, how long it takes, what to expect.

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
EXPERIMENTS = (
    ("E1", "Figs. 1 to 4 and Table V: GPUs differ, and how well time and power are predicted", "01 04"),
    ("E2", "Figs. 6, 8 to 11: HeShare against its rivals, and the claims on them", "05 10 11"),
    ("E3", "Fig. 7 and what each part is worth", "06 07"),
)
"""Name, what it shows, and its notebooks, of the experiments behind contributions C1 to C3."""
HEADLINE = ("M2", "P1", "H1", "H2", "H3", "H4", "S1")
"""Claims that the page shows; `figures/claims.md` has all."""


def page() -> str:
    origin = reference_results.origin()
    notebooks: dict[str, dict[str, float | None]] = origin["notebooks"]
    claims = pd.read_csv(io.StringIO(reference_results.read("claims.csv")), keep_default_na=False, na_values=[""])
    headline: list[Any] = claims[claims["id"].isin(HEADLINE)].to_dict("records")
    seconds = sum(notebook["seconds"] or 0 for notebook in notebooks.values())
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string((Path(__file__).parent / "artefact.md.j2").read_text("utf-8"))
    return template.render(
        summary=textwrap.fill(f"Claims: {claim_table.count_text(claims)}.", 120),
        platform=origin["platform"],
        processors=origin["processors"],
        python=".".join(origin["versions"]["python"].split(".")[:2]),
        mib=sum(notebook["kib"] or 0 for notebook in notebooks.values()) / 1024,
        minutes=math.ceil(seconds / 60 / min(2, origin["processors"])),
        experiments=[_experiment(*each, notebooks) for each in EXPERIMENTS],
        rows=tables.to_markdown(pd.DataFrame(map(_row, headline))),
    )


def write() -> bool:
    """Write `ARTIFACT.md` into the checkout and return whether it changed."""
    target, text = files.root() / NAME, page()
    if target.is_file() and target.read_text("utf-8") == text:
        return False
    files.write_text(target, text)
    return True


def _experiment(name: str, what: str, numbers: str, notebooks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    chosen = [cost for notebook, cost in notebooks.items() if notebook[:2] in numbers.split()]
    minutes = sum(cost["seconds"] or 0 for cost in chosen) / 60
    command = f".venv/bin/heshare notebook run {numbers}"
    return {"name": name, "what": what, "command": command, "minutes": f"{math.ceil(minutes)}"}


def _row(row: Mapping[str, Any]) -> dict[str, str]:
    names = {"claim": claims_page.name({**row, "part": _text(row["part"])}), "statement": row["statement"]}
    return {**names, "paper": row["paper"], "expect": _expected(row)}


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value)


def _expected(row: Mapping[str, Any]) -> str:
    if math.isnan(row["measured"]):
        return str(row["verdict"])
    value, low, high = (f"{row[name]:.3g}" for name in ("measured", "low", "high"))
    interval = "" if math.isnan(row["low"]) else f" [{low}, {high}]"
    return f"{value} {_text(row['unit'])}{interval}: {row['verdict']}".replace("  ", " ")
