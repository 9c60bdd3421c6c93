"""The page `ARTIFACT.md` for evaluators: commands, minutes, expected values.

Its numbers are from the reference results, its text is in `artefact.md.j2`.
"""

import io
import math
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from heshare.paper import tables
from heshare.paper.claims import claim_table
from heshare.paper.notebooks import parameters
from heshare.paper.reference import reference_results
from heshare.shared import files

NAME = "ARTIFACT.md"
HEADLINE = ("M2", "M3", "P1", "H1", "H2", "H3", "H4", "S1")
"""Claims that the page shows; `figures/claims.md` has all."""


def page() -> str:
    """Return the text of the page."""
    origin = reference_results.origin()
    notebooks: dict[str, dict[str, Any]] = origin["notebooks"]
    claims = pd.read_csv(io.StringIO(reference_results.read("claims.csv")))
    headline = claims[claims["id"].isin(HEADLINE)]

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string((Path(__file__).parent / "artefact.md.j2").read_text("utf-8"))
    return template.render(
        platform=origin["platform"],
        processors=origin["processors"],
        python=".".join(origin["versions"]["python"].split(".")[:2]),
        mib=sum(notebook["kib"] or 0 for notebook in notebooks.values()) / 1024,
        minutes={group: _minutes(group, notebooks, origin["processors"]) for group in parameters.GROUPS},
        by_notebook=tables.to_markdown(_seconds_by_notebook(notebooks)),
        claims=tables.to_markdown(claim_table.readable(headline)),
    )


def write() -> bool:
    """Write `ARTIFACT.md` into the checkout and return whether it changed."""
    target = files.root() / NAME
    text = page()
    if target.is_file() and target.read_text("utf-8") == text:
        return False
    files.write_text(target, text)
    return True


def _minutes(group: str, notebooks: dict[str, dict[str, Any]], processors: int) -> int:
    """Return the minutes of a group's notebooks, two at a time; at least those of the longest."""
    seconds = [notebooks[name]["seconds"] or 0.0 for name in parameters.group(group) if name in notebooks]
    return math.ceil(max(sum(seconds) / min(2, processors), max(seconds, default=0.0)) / 60)


def _seconds_by_notebook(notebooks: dict[str, dict[str, Any]]) -> pd.DataFrame:
    rows = []
    for name in sorted(parameters.group("all")):
        outputs = parameters.read(parameters.find([name])[0]).outputs
        of_paper = [tables.heading(output) for output in outputs if not output.startswith("x")]
        seconds = notebooks.get(name, {}).get("seconds")
        if seconds is None:
            continue  # `explore`, which has no outputs, and what has not run
        rows.append({"Notebook": name, "Figures and tables": ", ".join(of_paper) or "-", "Seconds": seconds})
    return pd.DataFrame(rows)
