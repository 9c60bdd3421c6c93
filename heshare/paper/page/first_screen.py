"""The numbers of the page's first screen, and the source of each."""

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from heshare.paper.claims.factorial import AXES
from heshare.paper.reference.reference_results import RECORDED
from heshare.shared import files


@dataclass(frozen=True, slots=True)
class Cell:
    """The source of a number: the output with its CSV, the values of its row, and the columns of number and interval.

    For several rows, as if `row` has several values for a column, the numbers are given as a range.
    """

    output: str
    row: Mapping[str, str | tuple[str, ...]]
    value: str = "change_pct"
    low: str = "low_pct"
    high: str = "high_pct"


def _sharing(batch_sizes: str) -> Cell:
    row = {"mechanism": "sharing", "metric": "jct", "basis": "delivered", "batch_sizes": batch_sizes}
    return Cell("x08d_worth", row, "value", "low", "high")


def _marginal(metric: str, *clusters: str) -> Cell:
    pair = {"ours": "Marginal", "theirs": "HeShare online", "metric": metric}
    return Cell("x10b_marginal", {"cluster": clusters, **pair})


def _bound(system: str, measure: str) -> Cell:
    return Cell("x07g_bound", {"system": system, "measure": measure}, "value_pct")


def _over_one_at_a_time(output: str, metric: str) -> Cell:
    return Cell(output, {"ours": "Trade-off", "theirs": "Sched-only", "metric": metric})


_CLUSTER, _OTHERS = "4xT4,2xV100,2xA100", ("4xT4,4xV100", "4xT4,4xA100", "4xV100,4xA100")
"""The paper's cluster, and other mixes of GPUs."""
CELLS: Mapping[str, Cell] = {
    "sharing_1": _sharing("1"),
    "sharing_shipped": _sharing("4+8"),
    "sharing_16": _sharing("16"),
    "recorded_energy": _over_one_at_a_time(RECORDED, "energy_active_j"),
    "recorded_jct": _over_one_at_a_time(RECORDED, "avg_jct_s"),
    "emulated_energy": _over_one_at_a_time("x04a_changes", "energy_active_j"),
    "emulated_jct": _over_one_at_a_time("x04a_changes", "avg_jct_s"),
    "bound": _bound("HeShare+", "largest gap of a plan to the bound"),
    "missed": _bound("HeShare", "largest gap of a plan to the bound"),
    "operators": Cell("x07f_ablation", {"ours": "all four", "metric": "hypervolume"}),
}
"""Each number of the first screen that is not a claim; the templates name them."""
RANGES: Mapping[str, Cell] = {
    "marginal_energy": _marginal("energy_active_j", _CLUSTER),
    "marginal_jct": _marginal("avg_jct_s", _CLUSTER),
    "marginal_elsewhere": _marginal("energy_active_j", *_OTHERS),
}
"""Each range of the first screen: the least and the largest number of some rows."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number with its interval, in %; `committed`: from the committed results, not from this run."""

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
class Range:
    """The least and the largest of some numbers, in %."""

    least: float
    most: float
    output: str
    committed: bool


@dataclass(frozen=True, slots=True)
class OpenChoices:
    """Result of the factorial of open choices for the numbers of Fig. 6.

    Of these numbers `shipped` hold in the shipped setting, and `best` in that of all `settings` in which most hold; its
    choices are `choices`. `points` is by axis, the largest first, how far it changes the numbers that it affects.
    """

    settings: int
    shipped: int
    best: int
    choices: Mapping[str, str]
    points: Mapping[str, float]
    committed: bool


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of a CSV file, as text, and whether it is one of the committed results."""

    rows: Sequence[Mapping[str, str]]
    committed: bool


def numbers(folder: Path) -> dict[str, Number | Range]:
    """Return the numbers of `CELLS` and `RANGES` from the outputs of a run, or else from the committed results."""
    found: dict[str, Number | Range] = {}

    for name, cell in {**CELLS, **RANGES}.items():
        table = _table(folder, cell.output)
        rows = [] if table is None else [row for row in table.rows if _fits(row, cell)]
        if table is None or not rows:
            continue

        if name in RANGES:
            values = [float(row[cell.value]) for row in rows]
            found[name] = Range(min(values), max(values), cell.output, table.committed)
        elif len(rows) == 1:
            value, low, high = (float(rows[0][column]) for column in (cell.value, cell.low, cell.high))
            found[name] = Number(value, low, high, cell.output, table.committed)
    return found


def _fits(row: Mapping[str, str], cell: Cell) -> bool:
    return all(row[column] in ((known,) if isinstance(known, str) else known) for column, known in cell.row.items())


def recorded_page(folder: Path) -> str:
    """Return the page of the recorded card, relative to the folder of a run; empty if it was not made."""
    page = Path(RECORDED).with_name("index.html")
    return page.as_posix() if (folder / page).is_file() else ""


def open_choices(folder: Path) -> OpenChoices | None:
    """Return the result of the factorial, of the run or else of the committed results; None if neither exists."""
    cells = _table(folder, "x08b_cells")
    effects = _table(folder, "x08e_effects")
    if cells is None or effects is None:
        return None

    shipped = next(row for row in cells.rows if row["shipped"] == "True")
    best = max(cells.rows, key=lambda row: int(row["held"]))

    axes = dict.fromkeys(row["axis"] for row in effects.rows)
    points = {axis: fmean(float(row["change"]) for row in effects.rows if row["axis"] == axis) for axis in axes}
    return OpenChoices(
        settings=len(cells.rows),
        shipped=int(shipped["held"]),
        best=int(best["held"]),
        choices={axis: best[axis] for axis in AXES},
        points=dict(sorted(points.items(), key=lambda pair: -pair[1])),
        committed=cells.committed,
    )


def _table(folder: Path, output: str) -> _Table | None:
    """Return the rows of an output of the run, or else of the committed results; None if there is neither."""
    path = folder / f"{output}.csv"
    committed = files.reference() / f"{output}.csv.gz"
    if path.is_file():
        return _Table(list(csv.DictReader(io.StringIO(path.read_text("utf-8")))), committed=False)
    if committed.is_file():
        text = gzip.decompress(committed.read_bytes()).decode("utf-8")
        return _Table(list(csv.DictReader(io.StringIO(text))), committed=True)
    return None
