"""The numbers of the page's first screen, and where each of them is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from heshare.paper.claims.factorial import AXES
from heshare.shared import files


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a number is: the CSV of an output, the row that has these values, and the columns of number and interval."""

    output: str
    row: Mapping[str, str] = field(default_factory=dict)
    value: str = "change_pct"
    low: str = "low_pct"
    high: str = "high_pct"


def _sharing(batch_sizes: str) -> Cell:
    row = {"mechanism": "sharing", "metric": "jct", "basis": "delivered", "batch_sizes": batch_sizes}
    return Cell("x08d_worth", row, "value", "low", "high")


def _marginal(load: str, metric: str) -> Cell:
    return Cell("x10b_marginal", {"load": load, "ours": "Marginal", "theirs": "HeShare online", "metric": metric})


def _bound(system: str, measure: str) -> Cell:
    return Cell("x07g_bound", {"system": system, "measure": measure}, "value_pct")


CELLS: Mapping[str, Cell] = {
    "sharing_1": _sharing("1"),
    "sharing_shipped": _sharing("4+8"),
    "sharing_16": _sharing("16"),
    **{f"marginal_energy_{load}": _marginal(load, "energy_active_j") for load in ("low", "medium", "high")},
    **{f"marginal_jct_{load}": _marginal(load, "avg_jct_s") for load in ("low", "medium", "high")},
    "bound": _bound("HeShare+", "largest gap of a plan to the bound"),
    "missed": _bound("HeShare", "hypervolume against HeShare+, as run"),
    "operators": Cell("x07f_ablation", {"ours": "all four", "metric": "hypervolume"}),
}
"""Each number of the first screen that is not a claim; the templates name them."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number with its interval, in %; `committed` says that it is of the committed results, not of this run."""

    value: float
    low: float
    high: float
    output: str
    committed: bool

    @property
    def is_certain(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class OpenChoices:
    """What the factorial of open choices says on the numbers of Fig. 6.

    Of these numbers `shipped` hold in the shipped setting, and `best` in the one of `settings` in which most hold, whose
    choices are `choices`. `points` is by axis, the largest first, how far it moves the numbers that it enters.
    """

    settings: int
    shipped: int
    best: int
    choices: Mapping[str, str]
    points: Mapping[str, float]
    committed: bool


def numbers(folder: Path) -> dict[str, Number]:
    """Return those of `CELLS` that are in the outputs of a run, or else in the committed results."""
    tables = {output: _table(folder, output) for output in dict.fromkeys(cell.output for cell in CELLS.values())}
    found = {}

    for name, cell in CELLS.items():
        table = tables[cell.output]
        if table is None:
            continue

        rows, committed = table
        for column, value in cell.row.items():
            rows = rows[rows[column] == value]
        if len(rows) == 1:
            value, low, high = (float(rows.iloc[0][column]) for column in (cell.value, cell.low, cell.high))
            found[name] = Number(value, low, high, cell.output, committed)
    return found


def open_choices(folder: Path) -> OpenChoices | None:
    """Return what the factorial says, of the run or else of the committed results; None if there is neither."""
    cells = _table(folder, "x08b_cells")
    effects = _table(folder, "x08e_effects")
    if cells is None or effects is None:
        return None

    counts, committed = cells
    held = counts["held"].astype(int)
    shipped = held[counts["shipped"] == "True"]
    best = counts.loc[held.idxmax()]

    points = effects[0].astype({"change": float}).groupby("axis")["change"].mean().sort_values(ascending=False)
    return OpenChoices(
        settings=len(counts),
        shipped=int(shipped.iloc[0]),
        best=int(held.max()),
        choices={axis: str(best[axis]) for axis in AXES},
        points=points.to_dict(),
        committed=committed,
    )


def _table(folder: Path, output: str) -> tuple[pd.DataFrame, bool] | None:
    """Return the rows of an output, all as text, and whether they are the committed ones; None if there are neither."""
    path = folder / f"{output}.csv"
    committed = files.root() / "reference" / f"{output}.csv.gz"
    if path.is_file():
        return pd.read_csv(path, dtype=str, keep_default_na=False), False
    if committed.is_file():
        return pd.read_csv(committed, dtype=str, keep_default_na=False), True
    return None
