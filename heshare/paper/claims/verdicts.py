"""The paper's claims and the rule of the verdicts on them.

Verdicts on an effect (a reduction, or a ratio above 1):

- *reproduced*: the interval has the right sign and holds the paper's value;
- *exceeds*: it lies wholly beyond the paper's value;
- *direction*: it has the right sign, but is smaller, or too uncertain to say more;
- *not reproduced*: it does not have the right sign.

Uncertainty never helps: with fewer than `FEWEST` values, or with an interval wider than the paper's whole effect, a
verdict is *direction* at best. A value, such as a ratio of times, is reproduced or not, and cannot exceed. An error is
*reproduced*, *smaller error* or *larger error*. Of an ordering all parts hold (*reproduced*), some (*direction*) or
none.
"""

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from heshare.shared import files

REPRODUCED, EXCEEDS, DIRECTION, FAILED = "reproduced", "exceeds", "direction", "not reproduced"
SMALLER, LARGER = "smaller error", "larger error"
UNTESTABLE, NOT_YET = "not testable", "not yet"
VERDICTS: Mapping[str, str] = {
    REPRODUCED: "right sign, and the interval holds the paper's value; all parts of an ordering hold",
    EXCEEDS: "right sign, and the whole interval lies beyond the paper's value",
    DIRECTION: "right sign, but smaller, or too uncertain to say more; some parts of an ordering hold",
    FAILED: "not certainly the right sign; of a value: too large; no part of an ordering holds",
    SMALLER: "an error below the paper's, which of a poor technique is no success",
    LARGER: "an error above the paper's",
    UNTESTABLE: "an assumption alone decides, or the platform lacks what the claim is about",
    NOT_YET: "no notebook has evaluated the claim",
}
"""Every verdict and what it means."""
FEWEST = 6
"""The fewest values for which an interval of a median can have 95 %: the range of 6 misses it with 2 / 2**6 = 3 %."""


KINDS = ("reduction", "ratio", "floor", "value", "error", "limit", "ordering")


@dataclass(frozen=True, slots=True)
class Claim:
    """One checkable statement, a row of `data/paper_claims.csv`.

    Attributes:
        id: such as `H3`.
        part: which of the claim's numbers, such as `energy against Random`; empty where it has only one.
        where: the figure or table of the paper.
        statement: the statement, in words.
        paper: the paper's value, as text.
        kind: `reduction` (percent, below zero), `ratio` (above 1), `floor` (a ratio above the value), `value` (a ratio
            that is a property, not a gain), `error` (percent), `limit` (percent, below the value) or `ordering`.
        value: the paper's number; NaN for an ordering.
        far: the other end where the paper has a range, else NaN.
        label: the statement in a few words, for the figure of all claims.
        unit: of the value that is measured, where it is not that of the kind.
        interval: the kind of its interval; a bootstrap unless given.
        of: what the values behind the interval are; seeds unless given.
        source: the published table, column and row of the value, as `sources` writes and reads it; what a run decides
            stands in braces.
    """

    id: str
    part: str
    where: str
    statement: str
    paper: str
    kind: str
    value: float
    far: float = math.nan
    label: str = ""
    unit: str = ""
    interval: str = ""
    of: str = ""
    source: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value that the paper has."""
        ends = sorted([self.value, self.value if math.isnan(self.far) else self.far])
        return ends[0], ends[1]

    @property
    def printed(self) -> float:
        """The number printed in the paper; for the poor predictors the verdict's threshold is another one."""
        found = None if self.kind == "ordering" else re.search(r"-?\d+(\.\d+)?", self.paper)
        return float(found.group()) if found else self.value

    @property
    def name(self) -> str:
        """Id and part, such as `H1 energy`."""
        return f"{self.id} {self.part}".strip()

    @property
    def is_own(self) -> bool:
        """Whether the HeShare paper makes it, in one of its figures or tables, and not the paper of another system."""
        return self.where.startswith(("Fig.", "Table"))


@cache
def paper_claims() -> dict[tuple[str, str], Claim]:
    """Return every claim by (id, part), in the order of `data/paper_claims.csv`."""
    with files.data("paper_claims.csv").open(encoding="utf-8", newline="") as stream:
        rows: list[dict[str, Any]] = list(csv.DictReader(stream))
    claims = [Claim(**{**row, **{name: float(row[name] or "nan") for name in ("value", "far")}}) for row in rows]
    return {(claim.id, claim.part): claim for claim in claims}


def verdict(
    claim: Claim, measured: float, low: float, high: float, *, n: int = FEWEST, holds: Mapping[str, bool] | None = None
) -> str:
    """Return the verdict on one claim from a measured value and the ends of its interval, in the claim's unit.

    `n` counts the independent values behind the interval. An ordering has its parts in `holds`, and no number.
    """
    if claim.kind == "ordering":
        kept = list((holds or {}).values())
        return REPRODUCED if kept and all(kept) else DIRECTION if any(kept) else FAILED
    if claim.kind == "error":
        if low <= claim.value <= high and high - low <= claim.value:
            return REPRODUCED
        return LARGER if measured > claim.value else SMALLER
    if claim.kind == "limit":
        return REPRODUCED if high <= claim.value else DIRECTION if measured <= claim.value else FAILED
    return _effect_verdict(claim, low, high, n)


def _effect_verdict(claim: Claim, low: float, high: float, n: int) -> str:
    """Return the verdict on a reduction or ratio, as an effect above zero: how far it is from no change."""
    least, most = (-high, -low) if claim.kind == "reduction" else (low - 1.0, high - 1.0)
    near, far = sorted([abs(end) for end in claim.ends] if claim.kind == "reduction" else [e - 1.0 for e in claim.ends])
    if least <= 0:
        return FAILED
    if most < near or n < FEWEST:
        return DIRECTION
    if claim.kind == "floor":
        return REPRODUCED if least >= near else DIRECTION
    if least > far:
        return FAILED if claim.kind == "value" else EXCEEDS
    return REPRODUCED if most - least <= near else DIRECTION
