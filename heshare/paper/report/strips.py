"""The tables of notebook 24 as the page shows them: claims over inference batch sizes, and by other choices."""

from pathlib import Path
from typing import Any

import pandas as pd

STRIPS, CHOICES = "x24a_strips.csv", "x24b_choices.csv"


def strips(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of each strip by batch sizes, None for an empty cell; empty without notebook 24.

    Of a strip with several parts the first one is taken. A strip that has no value for the shipped sizes of a task set
    has the row of its own shipped size there.
    """
    rows: list[Any] = _read(folder / STRIPS).to_dict("records")
    shipped = next(reversed(sizes(folder)), "")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        own = found.setdefault(row["strip"], {})
        if all(other["part"] == row["part"] for other in own.values()):
            own[row["batch_sizes"]] = row
            if row["is_default"] == "True":
                own.setdefault(shipped, row)
    return found


def sizes(folder: Path) -> list[str]:
    """Return the choices of batch sizes: one size each, then several together, the shipped ones last."""
    rows: list[Any] = _read(folder / STRIPS).to_dict("records")
    order = {row["batch_sizes"]: row["is_default"] == "True" for row in rows}
    return sorted(order, key=lambda each: (not each.isdigit(), order[each], int(each) if each.isdigit() else 0))


def by_size(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return the verdict on each claim (id, part) with each choice of batch sizes."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in _read(folder / CHOICES).to_dict("records"):
        if "batch size" in row["axis"] and row["verdict"]:
            found.setdefault((row["id"], row["part"] or ""), {})[row["batch_sizes"]] = row["verdict"]
    return found


def deciding(folder: Path) -> list[tuple[str, int, int]]:
    """Return each axis with how many verdicts change along it and of how many, the axis that decides most first."""
    table = _read(folder / CHOICES).dropna(subset=["verdict"]).fillna({"part": ""})
    changed = table.groupby(["axis", "id", "part"])["verdict"].agg("nunique") > 1
    counts = changed.groupby("axis").agg(["sum", "count"]).sort_values("sum", ascending=False, kind="stable")
    return [(str(axis), int(several), int(count)) for axis, several, count in counts.itertuples()]


def _read(path: Path) -> pd.DataFrame:
    texts = dict.fromkeys(("batch_sizes", "choice", "is_default", "paper"), str)
    table = (
        pd.read_csv(path, dtype=texts) if path.is_file() else pd.DataFrame(columns=["axis", "id", "part", "verdict"])
    )
    return table.astype(object).where(table.notna(), None)
