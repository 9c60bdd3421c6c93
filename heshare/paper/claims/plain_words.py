"""One plain sentence on the result of each claim, at most `LONGEST` characters long."""

from collections.abc import Mapping

from heshare.paper.claims.verdicts import Claim
from heshare.paper.texts import render

LONGEST = 120


def sentence(claim: Claim, measured: float, holds: Mapping[str, bool], forms: Mapping[str, float]) -> str:
    """Return the result of a claim as one sentence.

    `measured` is unused for an ordering, whose parts are in `holds`. `forms` has the changes against a rival that is
    `placed` like HeShare, and at its own `best`, if there are any.
    """
    if claim.kind == "ordering":
        return _ordering(holds)
    if forms:
        return render("claims", "against_rival", measured=measured, paper=claim.paper, **forms)
    kinds = {"reduction": "reduction", "error": "percentage", "limit": "percentage"}
    return render("claims", kinds.get(claim.kind, "ratio"), measured=measured, paper=claim.paper)


def _ordering(holds: Mapping[str, bool]) -> str:
    wrong, count = [part for part, good in holds.items() if not good], len(holds)
    if not wrong:
        return render("claims", "all_parts", count=count)
    if count == 1:
        return render("claims", "only_part", wrong=wrong[0])[:LONGEST]
    text = render("claims", "some_parts", held=count - len(wrong), count=count, wrong=wrong)
    return text if len(text) <= LONGEST else render("claims", "many_parts", held=count - len(wrong), count=count)
