"""The paper's claims and the rule of the verdicts on them.

Verdicts on an effect (a reduction, or a ratio above 1):

- *reproduced*: the whole interval lies within `WITHIN` of the paper's value;
- *larger than published*: it has the right sign and lies wholly beyond the paper's value: a discrepancy, no success;
- *direction*: it has the right sign, and is smaller or too uncertain to say more;
- *not reproduced*: it does not have the right sign.

The width of an interval never helps: a wider one with the same median has the same verdict or a worse one, and so has
one of fewer than `FEWEST` draws, which is *direction* at best. A value, such as a ratio of times, is no contest: far
beyond the paper's it is not reproduced. An error is *reproduced*, *smaller error* or *larger error*. An ordering of
which one part fails is not reproduced.
"""

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from heshare.lab.sweeps.statistics import FEWEST
from heshare.shared import files

REPRODUCED, EXCEEDS, DIRECTION, FAILED = "reproduced", "larger than published", "direction", "not reproduced"
SMALLER, LARGER = "smaller error", "larger error"
UNTESTABLE, UNSCORED, NOT_YET = "not testable", "not scored", "not yet"
VERDICTS: Mapping[str, str] = {
    REPRODUCED: "the whole interval lies within a quarter of the paper's value; all parts of an ordering hold",
    EXCEEDS: "right sign, the whole interval beyond the paper's value: a discrepancy, not a success",
    DIRECTION: "right sign, but smaller, or too uncertain to say more",
    FAILED: "not certainly the right sign; of a value: too large; of an ordering: a part fails",
    SMALLER: "an error below the paper's, which of a poor technique is no success",
    LARGER: "an error above the paper's",
    UNTESTABLE: "an assumption alone decides, or the platform lacks what the claim is about",
    UNSCORED: "our reading of a sentence, beside the row of the sentence as written",
    NOT_YET: "no notebook has evaluated the claim",
}
WITHIN = 0.25
"""How far the ends of an interval may be from the paper's effect, as a part of it, if it is to be *reproduced*.

The interval is then at most half as wide as the effect. The rule does not ask whether the interval holds the paper's
value: then a wider interval could hold it where a narrower one does not.
"""


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
        interval: the kind of its interval; that of a median of draws unless given.
        of: what the values behind the interval are; seeds unless given.
        reading: what is read otherwise than the paper writes it; such a claim is shown, but not scored.
        why_not: the reason in one sentence, should it not be reproduced and no study give another.
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
    reading: str = ""
    why_not: str = ""
    source: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value that the paper has."""
        ends = sorted([self.value, self.value if math.isnan(self.far) else self.far])
        return ends[0], ends[1]

    def effect(self, value: float) -> float:
        """Return how far a value in the claim's unit is from no change, above zero if it has the paper's sign."""
        return -value if self.kind == "reduction" else value - 1.0

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
        """Whether the HeShare paper makes it, and not the paper of another system."""
        return self.where.startswith(("Fig.", "Table", "Section"))


@cache
def paper_claims() -> dict[tuple[str, str], Claim]:
    """Return every claim by (id, part), in the order of `data/paper_claims.csv`."""
    with files.data("paper_claims.csv").open(encoding="utf-8", newline="") as stream:
        rows: list[dict[str, Any]] = list(csv.DictReader(stream))
    claims = [Claim(**{**row, **{name: float(row[name] or "nan") for name in ("value", "far")}}) for row in rows]
    return {(claim.id, claim.part): claim for claim in claims}


OF_DRAWS = "95 %"
"""The kind of an interval unless the claim has another one: of the median of draws. Those of draws begin with it."""


def verdict(
    claim: Claim,
    measured: float,
    low: float,
    high: float,
    *,
    n: int | None = None,
    holds: Mapping[str, bool] | None = None,
) -> str:
    """Return the verdict on one claim from a measured value and the ends of its interval, in the claim's unit.

    `n` counts the values behind the interval, such as seeds; it counts only where these were drawn, and not with an
    interval that the device model states. An ordering has its parts in `holds`, and no number.
    """
    few = n is not None and n < FEWEST and (claim.interval or OF_DRAWS).startswith(OF_DRAWS)
    if claim.kind == "error":
        least, most = claim.value * (1 - WITHIN), claim.value * (1 + WITHIN)
        if least <= low and high <= most and not few:
            return REPRODUCED
        return LARGER if measured > claim.value else SMALLER
    if claim.kind == "ordering":
        word = REPRODUCED if holds and all(holds.values()) else FAILED
    elif claim.kind == "limit":
        word = REPRODUCED if high <= claim.value else DIRECTION if measured <= claim.value else FAILED
    else:
        least, most = sorted([claim.effect(low), claim.effect(high)])
        word = _effect_verdict(claim, least, most, claim.effect(measured))
    return DIRECTION if few and word in (REPRODUCED, EXCEEDS) else word


def _effect_verdict(claim: Claim, least: float, most: float, middle: float) -> str:
    """Return the verdict on a reduction or ratio from its effect, which is above zero if it has the right sign."""
    near, far = sorted(map(claim.effect, claim.ends))
    if least <= 0 or (claim.kind == "value" and middle > far * (1 + WITHIN)):
        return FAILED
    if claim.kind == "floor":
        return REPRODUCED if least >= near else DIRECTION
    if near * (1 - WITHIN) <= least and most <= far * (1 + WITHIN):
        return REPRODUCED
    return EXCEEDS if least > far and claim.kind != "value" else DIRECTION
