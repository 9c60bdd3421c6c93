"""One plain sentence on the result of each claim, at most `LONGEST` characters long."""

from collections.abc import Mapping

from heshare.paper.claims.verdicts import Claim

LONGEST = 120


def sentence(claim: Claim, measured: float, holds: Mapping[str, bool], forms: Mapping[str, float]) -> str:
    """Return the result of a claim as one sentence.

    Args:
        claim: the claim.
        measured: the value; unused for an ordering.
        holds: the parts of an ordering.
        forms: the changes against a rival that is `placed` like HeShare, and at its own `best`.
    """
    if claim.kind == "ordering":
        return _ordering(holds)
    if forms:
        return (
            f"{change(measured)} here (paper: {claim.paper}); {change(forms['placed'])} if the rival places like "
            f"HeShare, {change(forms['best'])} at the rival's best."
        )
    if claim.kind == "reduction":
        return f"{change(measured)} here; the paper has {claim.paper}."
    number = f"{measured:.1f} %" if claim.kind in ("error", "limit") else f"{measured:.2f}x"
    return f"{number} here; the paper has {claim.paper}."


def change(percent: float) -> str:
    """Return a change as words, such as `38 % less`."""
    return f"{abs(percent):.0f} % {'less' if percent < 0 else 'more'}"


def _ordering(holds: Mapping[str, bool]) -> str:
    wrong = [part for part, good in holds.items() if not good]
    if not wrong:
        return f"All {len(holds)} parts hold." if len(holds) > 1 else "It holds."
    if len(holds) == 1:
        return f"It does not hold: {wrong[0]}."[:LONGEST]
    first = f"{len(holds) - len(wrong)} of {len(holds)} parts hold"
    text = f"{first}; not: {', '.join(wrong)}."
    return text if len(text) <= LONGEST else f"{first}; the others are in the details."
