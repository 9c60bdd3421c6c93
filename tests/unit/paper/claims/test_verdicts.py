"""The rule of the verdicts: the paper's value reached, passed or missed; width and few draws never help."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.lab.sweeps.statistics import FEWEST, ConfidenceInterval
from heshare.paper.claims.paper_claims import KINDS, Claim, paper_claims
from heshare.paper.claims.verdicts import (
    DIRECTION,
    EXCEEDS,
    FAILED,
    LARGER,
    REPRODUCED,
    SMALLER,
    VERDICTS,
    is_near,
    verdict,
)


def claim(kind: str, value: float, far: float = math.nan) -> Claim:
    return Claim("X1", "", "Fig. 0", "something", "text", kind, value, far)


@pytest.mark.parametrize(
    ("kind", "value", "interval", "expected"),
    [
        ("reduction", -26, (-26, -32, -20), "reproduced"),
        ("reduction", -26, (-24, -25, -21), "reproduced"),
        ("reduction", -26, (-40, -45, -35), "larger than published"),
        ("reduction", -26, (-20, -25, -15), "direction"),
        ("reduction", -26, (-26, -40, -5), "direction"),
        ("reduction", -26, (-5, -20, 1), "not reproduced"),
        ("reduction", -30, (10, -30, 60), "not reproduced"),
        ("ratio", 2.5, (2.3, 2.2, 2.6), "reproduced"),
        ("ratio", 2.5, (4.2, 3.7, 4.7), "larger than published"),
        ("ratio", 2.5, (1.5, 1.2, 1.8), "direction"),
        ("ratio", 2.5, (1.5, 0.9, 1.8), "not reproduced"),
        ("value", 2.5, (2.3, 2.2, 2.6), "inside the interval"),
        ("value", 2.5, (4.2, 2.7, 4.7), "outside the interval"),
        ("value", 5, (11, 8.5, 14.8), "outside the interval"),
        ("floor", 5, (11, 8.5, 14.8), "reproduced"),
        ("floor", 5, (6, 4.5, 8), "direction"),
        ("floor", 5, (3, 0.9, 40), "not reproduced"),
        ("limit", 3.2, (2, 1, 3), "reproduced"),
        ("limit", 3.2, (3, 2, 4), "direction"),
        ("limit", 3.2, (7, 2, 8), "not reproduced"),
        ("error", 3.1, (3.2, 3.0, 3.8), "reproduced"),
        ("error", 3.1, (3.5, 3.0, 4.0), "larger error"),
        ("error", 20, (5, 4, 6), "smaller error"),
    ],
)
def test_verdict(kind: str, value: float, interval: tuple[float, float, float], expected: str) -> None:
    """Verdict of each kind of claim."""
    assert verdict(claim(kind, value), ConfidenceInterval(*interval, FEWEST)) == expected


_RANKS = {FAILED: 0, LARGER: 1, SMALLER: 1, DIRECTION: 1, EXCEEDS: 1, REPRODUCED: 2}
"""A larger effect is no better than a smaller one of the right sign, and of errors only equal ones are a success."""
_PAPER = {"reduction": (-26, -13), "ratio": (1.3, 3.4), "floor": (3.4, 5), "limit": (3.2, 5)}


@given(
    st.sampled_from([kind for kind in KINDS if kind not in ("ordering", "lead", "value")]),
    st.floats(0.1, 3),
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 3), st.floats(0, 3)),
    st.integers(1, 12),
    st.integers(0, 12),
)
def test_wider_or_fewer(kind: str, times: float, sizes: tuple[float, float, float, float], n: int, fewer: int) -> None:
    """Neither a wider interval nor fewer draws make a verdict better."""
    paper = _PAPER.get(kind, (3.1, 20))
    below, above, *wider = (abs(paper[0]) * size for size in sizes)
    for one in (claim(kind, paper[0]), claim(kind, *paper)):
        value = times * one.value
        narrow = verdict(one, ConfidenceInterval(value, value - below, value + above, n))
        wide = verdict(one, ConfidenceInterval(value, value - below - wider[0], value + above + wider[1], n))
        assert _RANKS[wide] <= _RANKS[narrow]
        assert wide != EXCEEDS or narrow in (EXCEEDS, REPRODUCED)
        few = verdict(one, ConfidenceInterval(value, value - below, value + above, max(n - fewer, 1)))
        assert _RANKS[few] <= _RANKS[narrow]
        assert n >= FEWEST or narrow not in (REPRODUCED, EXCEEDS)


@pytest.mark.parametrize(("parts", "expected"), [((True, True), REPRODUCED), ((True, False), FAILED), ((), FAILED)])
def test_ordering(parts: tuple[bool, ...], expected: str) -> None:
    """An ordering of which a part fails is not reproduced."""
    holds = {str(index): good for index, good in enumerate(parts)}
    assert verdict(claim("ordering", math.nan), None, holds) == expected


@pytest.mark.parametrize(
    ("value", "same_start", "expected"),
    [(0.8, True, REPRODUCED), (0.8, False, DIRECTION), (-0.1, False, FAILED)],
)
def test_lead(value: float, same_start: bool, expected: str) -> None:
    """A lead is reproduced only if it is certain from the same start."""
    holds = {"from a random start": value > 0, "from the same start": same_start}
    assert verdict(claim("lead", math.nan), ConfidenceInterval(value, value, value, FEWEST), holds) == expected


def test_near() -> None:
    """A value is near within a quarter of the paper's effect."""
    one = claim("reduction", -20)
    assert [is_near(one, value) for value in (-15, -25, -14.9, -25.1, 20, math.nan)] == [True, True] + [False] * 4
    assert not is_near(claim("ratio", 1.4), 1.6)


def test_paper_claims() -> None:
    """The table of claims has the paper's groups in its order, and a number for each claim but orderings and leads."""
    groups = dict.fromkeys(id[0] for id, _ in paper_claims())
    assert "".join(groups) == "MPHSGOEWFXRU"
    for row in paper_claims().values():
        assert row.kind in KINDS
        assert math.isnan(row.value) == (row.kind in ("ordering", "lead"))
    assert all(meaning for meaning in VERDICTS.values())
