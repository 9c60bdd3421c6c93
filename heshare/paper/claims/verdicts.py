"""The rule of the verdicts on claims.

A reduction, ratio or floor is an effect: the rule compares the whole interval with the paper's effect. A wider
interval with the same median has the same verdict or a worse one, and so has one of fewer than `FEWEST` draws. For a
value, such as a ratio of times, the rule is whether the paper's value is inside its interval.
"""

import math
from collections.abc import Mapping

from heshare.lab.sweeps.statistics import FEWEST, ConfidenceInterval
from heshare.paper.claims.paper_claims import OF_DRAWS, Claim

REPRODUCED, UNDETERMINED = "reproduced", "not determined by the text"
EXCEEDS, DIRECTION, FAILED = "larger than published", "direction", "not reproduced"
INSIDE, OUTSIDE = "inside the interval", "outside the interval"
SMALLER, LARGER = "smaller error", "larger error"
UNTESTABLE, UNSCORED, NOT_YET = "not testable", "not scored", "not made yet"
VERDICTS: Mapping[str, str] = {
    REPRODUCED: "the whole interval lies within a quarter of the paper's effect; all parts of an ordering hold",
    UNDETERMINED: "choices that the paper's text leaves open move the value to the paper's and away from it",
    EXCEEDS: "right sign, the whole interval beyond the paper's value: a discrepancy, not a success",
    DIRECTION: "right sign, but smaller, or too uncertain to say more; of a lead: its median alone",
    FAILED: "not certainly the right sign; of an ordering: a part fails",
    INSIDE: "a physical value: the paper's lies inside the interval",
    OUTSIDE: "a physical value: the paper's lies outside the interval",
    SMALLER: "an error below the paper's, which of a poor technique is no success",
    LARGER: "an error above the paper's",
    UNTESTABLE: "an assumption alone decides, or the platform lacks what the claim is about",
    UNSCORED: "another reading of a sentence, shown with the sentence as written",
    NOT_YET: "its notebook has not been run",
}
WITHIN = 0.25
"""How far a value may be from the paper's effect, as a part of it, if it is to be the paper's."""


def verdict(claim: Claim, size: ConfidenceInterval | None, holds: Mapping[str, bool] | None = None) -> str:
    """Return the verdict on a claim from its value with the interval, in the claim's unit.

    An ordering has its parts in `holds`, and so has a lead; `size` of an ordering is not used.
    """
    parts = dict(holds or {})
    if claim.kind == "ordering":
        return REPRODUCED if parts and all(parts.values()) else FAILED

    assert size is not None, f"{claim.name} needs a value"
    if claim.kind == "error":
        return _error_verdict(claim, size)
    if claim.kind == "value":
        low, high = claim.ends
        return INSIDE if size.low <= high and low <= size.high else OUTSIDE

    if claim.kind == "limit":
        word = REPRODUCED if size.high <= claim.value else DIRECTION if size.value <= claim.value else FAILED
    elif claim.kind == "lead":
        word = REPRODUCED if parts and all(parts.values()) else DIRECTION if size.value > 0 else FAILED
    else:
        word = _effect_verdict(claim, size)
    return DIRECTION if _is_few(claim, size) and word in (REPRODUCED, EXCEEDS) else word


def _is_few(claim: Claim, size: ConfidenceInterval) -> bool:
    """Return whether an interval is of too few draws; one of the device model has no draws."""
    return size.n < FEWEST and (claim.interval or OF_DRAWS).startswith(OF_DRAWS)


def _error_verdict(claim: Claim, size: ConfidenceInterval) -> str:
    near = claim.value * (1 - WITHIN) <= size.low and size.high <= claim.value * (1 + WITHIN)
    if near and not _is_few(claim, size):
        return REPRODUCED
    return LARGER if size.value > claim.value else SMALLER


def _effect_verdict(claim: Claim, size: ConfidenceInterval) -> str:
    # Effects are above zero where they have the paper's sign.
    least, most = sorted([claim.effect(size.low), claim.effect(size.high)])
    near, far = sorted(claim.effect(end) for end in claim.ends)

    if least <= 0:
        return FAILED
    if claim.kind == "floor":
        return REPRODUCED if least >= near else DIRECTION
    if near * (1 - WITHIN) <= least and most <= far * (1 + WITHIN):
        return REPRODUCED
    return EXCEEDS if least > far else DIRECTION


def is_near(claim: Claim, value: float) -> bool:
    """Return whether a value lies within a quarter of the paper's effect."""
    if math.isnan(value):
        return False
    near, far = sorted(claim.effect(end) for end in claim.ends)
    return near * (1 - WITHIN) <= claim.effect(value) <= far * (1 + WITHIN)
