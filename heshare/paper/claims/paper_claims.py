"""The checkable statements of the papers, as rows of `data/paper_claims.csv`."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from heshare.shared import files

KINDS: Mapping[str, str] = {
    "reduction": "%",
    "ratio": "x",
    "floor": "x",
    "value": "x",
    "error": "%",
    "limit": "%",
    "lead": "%",
    "ordering": "",
}
"""Kinds of claims, each with the unit of its value.

A `reduction` is a change below zero, a `ratio` a gain above 1, a `floor` a gain above the paper's value, a `value` a
property that is no gain, an `error` of a predictor, a `limit` a value that stays below the paper's, a `lead` an
ordering that is measured as a change above zero, and an `ordering` a list of parts that hold or fail.
"""
OF_DRAWS = "95 %"
"""The kind of an interval unless the claim has another one: of the median of draws."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One checkable statement.

    Attributes:
        id: such as `H3`.
        part: which of the claim's numbers, such as `Random`; empty where it has only one.
        where: the figure, table or section of the HeShare paper, or the name of another system.
        statement: the statement, in words.
        paper: the paper's value, as text.
        kind: one of `KINDS`.
        value: the paper's number; NaN for an ordering.
        far: the other end where the paper has a range, else NaN.
        unit: of the value, where it is not that of the kind.
        interval: the kind of its interval; that of a median of draws unless given.
        of: the sampling unit of the interval; seeds unless given.
        reading: how the claim is read differently from the paper; such a claim is shown, but not scored.
        reason: why the value differs from the paper's, one sentence.
        source: the output that has the value.
    """

    id: str
    part: str
    where: str
    statement: str
    paper: str
    kind: str
    value: float
    far: float = math.nan
    unit: str = ""
    interval: str = ""
    of: str = ""
    reading: str = ""
    reason: str = ""
    source: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value of the paper."""
        far = self.value if math.isnan(self.far) else self.far
        return min(self.value, far), max(self.value, far)

    @property
    def name(self) -> str:
        """Id and part, such as `H1 energy`."""
        return f"{self.id} {self.part}".strip()

    @property
    def is_heshare(self) -> bool:
        """Whether the HeShare paper makes it, and not the paper of another system."""
        return self.where.startswith(("Fig.", "Table", "Section"))

    @property
    def value_unit(self) -> str:
        """The unit of the value."""
        return self.unit or KINDS[self.kind]

    def effect(self, value: float) -> float:
        """Return how far a value is from no change, above zero if it has the paper's sign."""
        if self.kind == "reduction":
            return -value
        return value if self.kind == "lead" else value - 1.0


@cache
def paper_claims() -> dict[tuple[str, str], Claim]:
    """Return every claim by (id, part), in the order of `data/paper_claims.csv`."""
    with files.data("paper_claims.csv").open(encoding="utf-8", newline="") as stream:
        rows: list[dict[str, Any]] = list(csv.DictReader(stream))

    claims = [Claim(**{**row, **{name: float(row[name] or "nan") for name in ("value", "far")}}) for row in rows]
    return {(claim.id, claim.part): claim for claim in claims}
