"""The committed factorial of choices that the paper's text leaves open: which cells give the paper's numbers.

Notebook `08_assumptions` runs it and writes `reference/factorial.csv` with a hash of the code and data that it depends
on. Its axes are columns, its cells all their combinations.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pandas as pd

from heshare.paper import tables
from heshare.paper.claims.paper_claims import Claim
from heshare.paper.claims.verdicts import is_near
from heshare.shared import files
from heshare.shared.files import PACKAGE

DURATIONS, QUEUEING, THROTTLE, RATIO, SIZES = "durations", "queueing", "throttle", "t4_over_a100", "batch_sizes"
AXES = (DURATIONS, QUEUEING, THROTTLE, RATIO, SIZES)
"""Task sizes; how Random and Sched-only run their queues; the rivals' throttle; T4 over A100; inference batch sizes."""
_NOT_IN: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("H1", "energy"): (QUEUEING,),
    ("H1", "jct"): (QUEUEING,),
    ("H2", "energy"): (QUEUEING,),
    ("H2", "jct"): (QUEUEING,),
    ("H3", "Random"): (THROTTLE,),
    ("H3", "JCT-opt"): (QUEUEING, THROTTLE),
    ("H4", "Random"): (THROTTLE,),
    ("H4", "En-opt"): (QUEUEING, THROTTLE),
}
"""The axes that do not enter each number, by its id and part; cells that differ in them alone are one run."""
_STAGES = ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running", "lab/systems")


@dataclass(frozen=True, slots=True)
class Factorial:
    """The cells of the factorial: one row a cell and number, with the columns `AXES`, id, part, value, low, high, n.

    `is_current` says whether the code and data that made it are those of this checkout.
    """

    cells: pd.DataFrame
    is_current: bool

    def of(self, claim: Claim) -> pd.DataFrame:
        """Return the cells of one number: those that differ in axes that do not enter it are one; empty for others."""
        if (claim.id, claim.part) not in _NOT_IN:
            return self.cells.iloc[:0]
        rows = self.cells[(self.cells["id"] == claim.id) & (self.cells["part"] == claim.part)]
        return rows.drop_duplicates(list(axes_of(claim)))


def axes_of(claim: Claim) -> Sequence[str]:
    """Return the axes that enter a number of H1 to H4."""
    return [axis for axis in AXES if axis not in _NOT_IN[claim.id, claim.part]]


def is_undetermined(claim: Claim, value: float, cells: pd.DataFrame) -> bool:
    """Return whether the paper's text does not determine a number of Fig. 6.

    It does not if the shipped setting has its median more than a quarter of the effect away, and the medians of at
    least two cells that differ in one axis lie within a quarter of the paper's effect.

    Args:
        claim: the claim.
        value: the median of the shipped setting.
        cells: the rows of `Factorial.of`; empty where the factorial says nothing.
    """
    if cells.empty or is_near(claim, value):
        return False

    near = cells[[is_near(claim, each) for each in cells["value"]]]
    places = near[list(axes_of(claim))].astype(str).to_numpy().tolist()
    return any(_differ_in_one(one, other) for one, other in combinations(places, 2))


def _differ_in_one(one: Sequence[str], other: Sequence[str]) -> bool:
    return sum(left != right for left, right in zip(one, other, strict=True)) == 1


def folder() -> Path:
    """Return the folder of the committed factorial."""
    return files.root() / "reference"


def read() -> Factorial | None:
    """Return the committed factorial; None if there is none."""
    table, about = folder() / "factorial.csv", folder() / "factorial.json"
    if not (table.is_file() and about.is_file()):
        return None

    cells = pd.read_csv(table, dtype={SIZES: str}, keep_default_na=False)
    made_by = json.loads(about.read_text(encoding="utf-8"))["made_by"]
    return Factorial(cells, made_by == made_of())


def write(cells: pd.DataFrame) -> None:
    """Write the factorial into `reference/`, with the hash of what made it."""
    files.write_text(folder() / "factorial.csv", tables.to_csv(cells))
    files.write_text(folder() / "factorial.json", json.dumps({"made_by": made_of()}, indent=1) + "\n")


def made_of() -> str:
    """Return a SHA-256 over the stages, the published systems and `data/`, on which the factorial depends."""
    sources = [path for stage in _STAGES for path in sorted((PACKAGE / stage).rglob("*.py"))]
    inputs = [path for path in sorted(files.data().rglob("*.csv")) if path.name != "paper_claims.csv"]
    lines = [f"{files.sha256(path)} {path.name}\n" for path in [*sources, *inputs]]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
