"""Which of the paper's claims a live comparison on given GPUs can speak to, and which it leaves untested."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from heshare.reporting.claims import known

PAPER = frozenset({"T4", "V100", "A100"})


@dataclass(frozen=True, slots=True)
class Need:
    """What a claim needs to be tested for real.

    Attributes:
        gpus: all of these.
        policies: that are run, by the names of the registry.
        clocks: the right to set SM clocks.
        by: `runs` (policies run for real), `record` (the profiles of the GPUs) or `nothing` that a GPU could tell.
    """

    gpus: frozenset[str] = PAPER
    policies: tuple[str, ...] = ()
    clocks: bool = False
    by: str = "runs"


_KNEE, _EN, _JCT = "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt"
_RIVALS = ("morak", "mu-serve")
NEEDS: dict[str, Need] = {
    **{id: Need(by="record") for id in ("M1", "M2", "M3", "M4", "M6")},
    "M5": Need(clocks=True, by="record"),
    **{id: Need(clocks=True, by="record") for id in ("P1", "P2", "P3")},
    "H1": Need(policies=(_KNEE, "morak"), clocks=True),
    "H2": Need(policies=(_KNEE, "mu-serve"), clocks=True),
    "H3": Need(policies=(_EN, "random", _JCT), clocks=True),
    "H4": Need(policies=(_JCT, "random", _EN), clocks=True),
    "H5": Need(policies=("random", "sched-only", _KNEE, _EN, _JCT, *_RIVALS), clocks=True),
    "S1": Need(frozenset(), by="nothing"),
    "G1": Need(policies=(_KNEE, *_RIVALS), clocks=True),
    "G2": Need(policies=(_KNEE, *_RIVALS), clocks=True),
    "G3": Need(policies=(_KNEE, _EN, _JCT), clocks=True),
    "O1": Need(frozenset({"T4"}), (_JCT, *_RIVALS), clocks=True),
    "O2": Need(frozenset({"V100", "A100"}), (_KNEE, *_RIVALS), clocks=True),
    "O3": Need(policies=(_EN, "morak"), clocks=True),
    "O4": Need(policies=(_KNEE, "morak"), clocks=True),
}
"""By claim; those of other papers, about other systems, are not here."""

YES, ELSEWHERE, NO = "yes", "on other GPUs than the paper's", "no"


def coverage(gpus: Collection[str], policies: Collection[str], *, clocks: bool, played: bool) -> pd.DataFrame:
    """What a live comparison says of each claim.

    Args:
        gpus: the types of GPU that were there.
        policies: that were run.
        clocks: whether clocks could be set.
        played: whether a stand-in played the GPUs.

    Returns:
        One row a claim: id, where, statement (of its first part), tested (`YES`, `ELSEWHERE`, `NO`), why.
    """
    first = {claim.id: claim for claim in reversed(known().values())}
    rows = []
    for id in dict.fromkeys(claim.id for claim in known().values()):
        tested, why = _judge(NEEDS.get(id), set(gpus), set(policies), clocks, played)
        rows.append(
            {"id": id, "where": first[id].where, "statement": first[id].statement, "tested": tested, "why": why}
        )
    return pd.DataFrame(rows)


def _judge(need: Need | None, gpus: set[str], policies: set[str], clocks: bool, played: bool) -> tuple[str, str]:
    if need is None:
        return NO, "about another system, which a live comparison does not run"
    if need.by == "nothing":
        return NO, "about a search, which no GPU could confirm"
    if played:
        return NO, "a stand-in played the GPUs"
    missing = [name for name in need.policies if name not in policies]
    if missing:
        return NO, f"not run: {', '.join(missing)}"
    if need.clocks and not clocks:
        return NO, "clocks stay as they are on this machine"
    lacking = sorted(need.gpus - gpus)
    if not lacking:
        return YES, "on this machine's own counts of them" if need.by == "runs" else "by the record"
    if need.by == "runs":
        return ELSEWHERE, f"no {', '.join(lacking)} here"
    return NO, f"no {', '.join(lacking)} here"


def untested_for_clocks(found: pd.DataFrame) -> list[str]:
    """The ids of claims that are left untested because clocks stay as they are."""
    return list(found[found["why"].str.startswith("clocks stay")]["id"])
