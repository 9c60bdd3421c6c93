"""The page `claims.md`: counts and words of the verdicts, a short table, and each claim with its reason.

No line is longer than `WIDTH` characters, but for a table row, which is at most 200.
"""

import math
import re
import textwrap
from collections.abc import Mapping
from typing import Any

import pandas as pd

from heshare.lab.sweeps.statistics import FEWEST
from heshare.paper import tables
from heshare.paper.claims.verdicts import VERDICTS
from heshare.paper.texts import render

WIDTH = 110
FORMS: Mapping[str, str] = {"placed": "rival placed like HeShare", "best": "rival at its own best"}
"""Words for the other forms of a rival."""


def common() -> list[str]:
    names = ("rivals", "arrivals", "changes", "few", "errors", "mps", "n", "details")
    return [render("claims", f"common_{name}", **({"fewest": FEWEST} if name == "few" else {})) for name in names]


def page(table: pd.DataFrame, caption: str, counts: str) -> str:
    found: list[Any] = table.to_dict("records")
    parts = ["# The paper's claims", _wrap(caption), _wrap(f"**{len(table)} claims**, {counts}.")]
    parts.append("\n".join(_wrap(f"- *{word}*: {meaning}.") for word, meaning in VERDICTS.items()))
    parts += [tables.to_markdown(pd.DataFrame([_short(row) for row in found])).rstrip(), "## Common to many claims"]
    said: set[str] = set()
    parts += [*map(_wrap, common()), "## Each claim", *(_block(row, said) for row in found)]
    return "\n\n".join(parts) + "\n"


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def name(row: Mapping[str, Any]) -> str:
    return f"{row['id']} {row['part']}".strip()


def number(value: float) -> str:
    return f"{value:.{1 if abs(value) >= 10 else 2}f}" if math.isfinite(value) else ""


def interval(low: float, high: float) -> str:
    """Return an interval as text, such as `[-31.0, -9.50]`; empty if there is none."""
    return f"[{number(low)}, {number(high)}]" if math.isfinite(low) else ""


def held(details: str) -> tuple[int, int]:
    """Return how many parts of an ordering hold and fail, read from its details."""
    return len(re.findall(r"\bholds: ", details)), details.count("FAILS: ")


def _short(row: Mapping[str, Any]) -> dict[str, str]:
    measured = str(row["unit"]) in ("%", "x")
    cells = {"claim": name(row), "paper": str(row["paper"])}
    cells["here"] = number(row["measured"]) if measured else ""
    cells |= {"interval": interval(row["low"], row["high"]) if measured else ""}
    cells |= {"n": f"{row['n']} {row['of']}" if math.isfinite(row["measured"]) else "", "verdict": str(row["verdict"])}
    against = {form: number(row[form]) for form in FORMS}
    return cells | {FORMS[form]: f"{row[f'{form}_verdict']} ({size})" if size else "" for form, size in against.items()}


def _block(row: Mapping[str, Any], said: set[str]) -> str:
    texts = [f"{row['where']}: {row['statement']}.", str(row["why"])]
    texts += [f"Reason: {row['reason']}"] if isinstance(row["reason"], str) else []
    new = [sentence for text in texts for sentence in re.split(r"(?<=[.])\s+(?=[A-Z])", text) if sentence not in said]
    said |= {*new}
    return "\n".join([_wrap(f"### {name(row)}: {row['verdict']}"), "", _wrap(" ".join(new))])
