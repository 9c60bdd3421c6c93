"""The page `claims.md`: counts and words of the verdicts, a short table, and each claim with its details.

No line is longer than `WIDTH` characters, but for a table row, which is at most 200.
"""

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import pandas as pd

from heshare.paper import tables
from heshare.paper.claims.verdicts import FEWEST, NOT_YET, VERDICTS

WIDTH = 110
OF_MODEL = "two standard deviations"
"""The kind of an interval that the device model states."""
COMMON = (
    "In the paper's set-up Morak and mu-Serve place tasks at random and have the settings of their authors or ours; "
    "the paper states none. With HeShare's placement each task is on the GPU of the knee of HeShare's first stage. Own "
    "best is their best setting of those tried on other task sets (data/settings.csv).",
    "In Figs. 6 to 11 all tasks are there at the start. Where they arrive one by one, HeShare as published is about "
    "level with mu-Serve at its best setting (Fig. x20a has the numbers).",
    "Changes are medians, paired by seed (by world and seed where there are several worlds), in the active account of "
    "energy: each GPU until its last task ends.",
    f"With fewer than {FEWEST} values, or an interval wider than the paper's whole effect, *direction* at best.",
    "Errors of predictors: rows held out at random, the paper's way; every technique learns over first guesses from "
    "the load; SVR, DT and MLP are tuned by inner cross-validation, LR has no settings, and RF has those of the "
    "schedulers' predictor. The paper defines neither error; here MAE over mean, and mean of |predicted - true| / "
    "true. Their intervals are bootstraps over random splits that share rows, and so too narrow.",
    "MPS percentages: HeShare's plans give 100 % to nearly every task here (what the part is worth: Fig. x05e), so "
    "that no claim tests what the paper gains by them.",
    "n and the source say how many runs stand behind a value; G and O are about small task sets, whose sizes are in "
    "their details. Every run of Figs. 6 and 8 to 11 and of Fig. x12a is published (x05a, x10c, x11c, x12e).",
)
"""What is common to many claims."""


def page(table: pd.DataFrame, caption: str, counts: str) -> str:
    """Return the page as Markdown; `table` is as from `claim_table.merge`."""
    found: list[Any] = table.to_dict("records")
    parts = ["# The paper's claims", _wrap(caption), f"**{len(table)} claims**: {counts}."]
    parts.append("\n".join(_wrap(f"- *{word}*: {meaning}.") for word, meaning in VERDICTS.items()))
    parts += [tables.to_markdown(pd.DataFrame([_short(row) for row in found])).rstrip(), "## Common to many claims"]
    parts += [_wrap(text) for text in COMMON]
    parts += ["## Each claim", *(_block(row) for row in found)]
    return "\n\n".join(parts) + "\n"


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def name(row: Mapping[str, Any]) -> str:
    """Return the short name of a claim, such as `H1 energy`."""
    return f"{row['id']} {row['part']}".strip()


def _number(row: Mapping[str, Any], column: str) -> str:
    value = float(row[column])
    return "" if math.isnan(value) else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _interval(row: Mapping[str, Any]) -> str:
    low, high = _number(row, "low"), _number(row, "high")
    return f"[{low}, {high}]" if low else ""


def _short(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a claim's row in the short table: numbers and verdicts."""
    ordering = bool(row["unit"]) and str(row["unit"]) not in ("%", "x")
    cells = {"claim": name(row), "paper": str(row["paper"])}
    cells["here"] = "" if ordering else _number(row, "measured")
    cells |= {"interval": "" if ordering else _interval(row), "verdict": str(row["verdict"])}
    for form, word in (("placed", "rival placed like HeShare"), ("best", "rival at its own best")):
        value = _number(row, form)
        cells[word] = f"{row[f'{form}_verdict']} ({value})" if value else ""
    return cells


def _block(row: Mapping[str, Any]) -> str:
    lines = [_wrap(f"### {name(row)}: {row['verdict']}"), "", _wrap(f"{row['where']}: {row['statement']}"), ""]
    if row["verdict"] == NOT_YET:
        return "\n".join([*lines, str(row["why"])])
    lines += [_wrap(f"- {row['why']}")]
    value = _number(row, "measured")
    if value:
        # The standard deviations of a model are not those of n values.
        count = f" of the {row['of']}" if row["interval"] == OF_MODEL else f"; n = {row['n']} {row['of']}"
        here = f"{value} {row['unit']} {_interval(row)} ({row['interval']}{count})"
        lines += [_wrap(f"- Paper: {row['paper']}. Here: {here}.")]
    if row["source"]:
        lines += [_wrap(f"- Source: {row['source']} ({row['notebook']})")]
    if row["details"]:
        lines += [_wrap(f"- Details: {row['details']}")]
    return "\n".join(lines)
