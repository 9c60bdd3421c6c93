"""The page `ARTIFACT.md` for evaluators: what to run, how long it takes, what it needs, what to expect of each claim.

Everything in it comes from the reference results, so that it needs no run.
"""

import io
import math
import textwrap
from collections.abc import Mapping
from typing import Any

import pandas as pd

from heshare.paper import tables
from heshare.paper.claims import claim_table, claims_page
from heshare.paper.reference import reference_results
from heshare.shared import files

NAME = "ARTIFACT.md"
_HEAD = """# Artefact

Written by `make reference` from the results in [reference/](reference/README.md); do not edit it by hand.

## Abstract

heshare implements the pipeline of *HeShare: Energy-Aware and Efficient Multi-Task GPU Sharing in Heterogeneous
GPU-based Computing Systems* over GPUs that are emulated from public measurements, replayed from records, or real. It
is an independent implementation: nothing is fitted to the paper's results, and claims that are not reproduced are
listed as such.

{summary}

## Available

The repository holds program, data and reference results under Apache-2.0 ([LICENSE](LICENSE)). How to cite it:
[CITATION.cff](CITATION.cff). Every value of `data/` has its source beside it ([data/README.md](data/README.md)).

## What it needs

| what | how much |
|---|---|
| machine | Linux or macOS (equal bytes: {platform}, Python {python}); no GPU; {processors} processors for these times |
| programs | git, GNU make, Python 3.11 or later with `venv`; or Docker ([Dockerfile](Dockerfile)) |
| network | once, for the packages of `requirements.lock` (hashed); none afterwards |
| disk | about 1 GB for `.venv`, {mib:.0f} MiB for `figures/` |
| time | {minutes:.0f} minutes for all results (two notebooks at a time), 3 for `.venv` |

Nothing here changes the settings of a GPU. **`make live` does, with `--allow-clocks`**; no claim below needs it.

## Functional: the first minutes

```sh
make smoke     # builds .venv; every notebook with tiny parameters, into build/smoke: about 100 seconds
make test      # the tests that need no GPU: about 7 minutes
```

## Reproduced

```sh
make figures   # every table, every figure, the claims, into figures/
make verify    # compares figures/ with reference/: exit code 0, or a line for each difference
```

`make verify` asks for equal bytes on {platform} with Python {python} and the packages of `requirements.lock`.
With others each claim must keep its verdict, and its value must lie in the interval below ([why](reference/README.md)).
`figures/claims.md` has the paper's value and ours for every claim, with reasons and the table and row of each value;
`figures/README.md` lists the files.

A part alone: the command above its claims, then `make claims`. Minutes are those of the notebook beside another one.
A reduction has a minus. Brackets hold the claim's interval; `figures/claims.md` says of which kind it is, and what the
verdicts mean.
"""
_WITHOUT = """## Without claims

{table}"""


def page() -> str:
    """Return the page as Markdown.

    Raises:
        InputError: there is no reference.
    """
    origin = reference_results.origin()
    notebooks: dict[str, dict[str, float | None]] = origin["notebooks"]
    claims = pd.read_csv(io.StringIO(reference_results.read("claims.csv")), keep_default_na=False, na_values=[""])
    seconds = sum(notebook["seconds"] or 0 for notebook in notebooks.values())
    head = _HEAD.format(
        summary=textwrap.fill(f"{len(claims)} claims are evaluated: {claim_table.count_text(claims)}.", 120),
        platform=origin["platform"],
        processors=origin["processors"],
        python=".".join(origin["versions"]["python"].split(".")[:2]),
        mib=sum(notebook["kib"] or 0 for notebook in notebooks.values()) / 1024,
        minutes=math.ceil(seconds / 60 / min(2, origin["processors"])),
    )
    parts = [head.rstrip()]
    for name, rows in claims.groupby("notebook"):
        parts += [_section(str(name), notebooks[str(name)]), _table(rows).rstrip()]
    others = [name for name in sorted(notebooks) if name not in set(claims["notebook"])]
    lines = [{"command": f"`{_command(name)}`", **_cost(notebooks[name])} for name in others]
    return "\n\n".join([*parts, _WITHOUT.format(table=tables.to_markdown(pd.DataFrame(lines)))])


def write() -> bool:
    """Write `ARTIFACT.md` into the checkout and return whether it changed."""
    target, text = files.root() / NAME, page()
    if target.is_file() and target.read_text("utf-8") == text:
        return False
    files.write_text(target, text)
    return True


def _command(notebook: str) -> str:
    return f".venv/bin/heshare notebook run {notebook[:2]}"


def _cost(notebook: Mapping[str, float | None]) -> dict[str, str]:
    seconds, kib = notebook["seconds"], notebook["kib"] or 0
    return {"minutes": "?" if seconds is None else f"{seconds / 60:.1f}", "disk": f"{kib / 1024:.1f} MiB"}


def _section(notebook: str, cost: Mapping[str, float | None]) -> str:
    minutes, disk = _cost(cost).values()
    return f"### {notebook}\n\n`{_command(notebook)}`: {minutes} minutes, {disk}."


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
