"""The committed factorial of choices that the paper's text leaves open: which cells give the paper's numbers.

Notebook `08_assumptions` computes it and writes `reference/factorial.csv`, with a hash of its code and data. The rule
of the verdict "not determined by the text" is `is_undetermined`.
"""

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from heshare.paper import tables
from heshare.paper.claims.paper_claims import Claim
from heshare.paper.claims.verdicts import is_near
from heshare.shared import files
from heshare.shared.files import PACKAGE

DURATIONS, QUEUEING, THROTTLE, RATIO, SIZES = "durations", "queueing", "throttle", "t4_over_a100", "batch_sizes"
AXES = (DURATIONS, QUEUEING, THROTTLE, RATIO, SIZES)
"""Task sizes; how Random and Sched-only run their queues; the baselines' throttle; T4 over A100; batch sizes."""
SHIPPED = {
    DURATIONS: "helios",
    QUEUEING: "queueing",
    THROTTLE: "cap 0.8, limit 1.5",
    RATIO: "as fitted",
    SIZES: "4+8",
}
"""The level of each axis that the package has."""
LEAST_SEEDS = 10
"""The fewest seeds of a cell whose median counts for the verdict."""
_CLAIMS = ("H1", "H2", "H3", "H4")
_MADE_BY = (
    "world", "devices", "profiles", "prediction", "scheduling", "policies", "running", "lab/systems",
    "paper/studies/platforms.py", "paper/studies/task_draws.py",
)  # fmt: skip
"""The code that decides the cells: the stages, the published systems, and what the levels of the axes are."""
_NOT_INPUTS = ("paper_claims.csv", "live", "profiles/measured")
"""Files of `data/` that do not affect the cells."""


@dataclass(frozen=True, slots=True)
class Factorial:
    """The cells of the factorial: one row a cell and number, with the columns `AXES`, id, part, value, low, high, n.

    `is_current` says whether the code and data that made it are those of this checkout.
    """

    cells: pd.DataFrame
    is_current: bool

    def of(self, claim: Claim) -> pd.DataFrame:
        """Return the distinct cells of one number, by the axes that affect it; empty for others."""
        return cells_of(self.cells, claim)


def axes_of(claim: Claim) -> Sequence[str]:
    """Return the axes that affect a number of H1 to H4; cells that differ in the others alone are one run.

    The throttle affects comparisons with Morak and mu-Serve (H1, H2), the queues of Random those with Random; neither
    affects a comparison of two plans of HeShare.
    """
    entering = [DURATIONS, RATIO, SIZES]
    if claim.id in ("H1", "H2"):
        entering.append(THROTTLE)
    if claim.part == "Random":
        entering.append(QUEUEING)
    return [axis for axis in AXES if axis in entering]


def cells_of(cells: pd.DataFrame, claim: Claim) -> pd.DataFrame:
    """Return the rows of one number, equal runs once; none for a claim that is not of H1 to H4."""
    rows = cells[(cells["id"] == claim.id) & (cells["part"] == claim.part) & (claim.id in _CLAIMS)]
    return rows.drop_duplicates(list(axes_of(claim)))


def is_undetermined(claim: Claim, value: float, cells: pd.DataFrame) -> bool:
    """Return whether the paper's text does not determine a number of Fig. 6.

    It does not if the shipped setting has its median more than a quarter of the effect away, and the medians of at
    least two cells that differ in one axis lie within a quarter of the paper's effect. Intervals do not count.

    Args:
        claim: the claim.
        value: the median of the shipped setting.
        cells: the rows of `cells_of`; empty if the factorial does not contain the number.
    """
    if is_near(claim, value):
        return False

    enough = cells[cells["n"] >= LEAST_SEEDS]
    holds = np.array([is_near(claim, each) for each in enough["value"]], dtype=bool)
    places = enough.loc[holds, list(axes_of(claim))].to_numpy().tolist()
    return any(_differ_in_one(one, other) for one, other in combinations(places, 2))


def _differ_in_one(one: Sequence[object], other: Sequence[object]) -> bool:
    return sum(left != right for left, right in zip(one, other, strict=True)) == 1


def read() -> Factorial | None:
    """Return the committed factorial; None if there is none."""
    table = files.reference() / "factorial.csv"
    about = table.with_suffix(".json")
    if not (table.is_file() and about.is_file()):
        return None

    cells = pd.read_csv(table, dtype={SIZES: str}, keep_default_na=False)
    made_by = json.loads(about.read_text(encoding="utf-8"))["made_by"]
    return Factorial(cells, made_by == made_of())


def write(cells: pd.DataFrame) -> None:
    """Write the factorial into `reference/`, with the hash of its code and data."""
    table = files.root() / "reference" / "factorial.csv"
    files.write_text(table, tables.to_csv(cells))
    files.write_text(table.with_suffix(".json"), json.dumps({"made_by": made_of()}, indent=1) + "\n")


def made_of() -> str:
    """Return a SHA-256 over the code and the data that the cells depend on."""
    named = [PACKAGE / name for name in _MADE_BY]
    code = [path for each in named for path in (sorted(each.rglob("*.py")) if each.is_dir() else [each])]
    inputs = [(path, path.relative_to(files.data()).as_posix()) for path in sorted(files.data().rglob("*.csv"))]

    lines = [f"{code_hash(path.read_text('utf-8'))} {path.relative_to(PACKAGE).as_posix()}\n" for path in code]
    lines += [f"{files.sha256(path)} {name}\n" for path, name in inputs if not name.startswith(_NOT_INPUTS)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def code_hash(source: str) -> str:
    """Return a SHA-256 over a Python source without comments, docstrings and empty lines, which change no result."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[line - 1] = ""

    return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()
