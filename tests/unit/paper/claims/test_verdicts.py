"""The rule of the verdicts: the paper's value inside the interval, beyond it or short of it, with the right sign."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.paper.claims.verdicts import FEWEST, KINDS, VERDICTS, Claim, paper_claims, verdict


def claim(kind: str, value: float, far: float = math.nan) -> Claim:
    return Claim("X1", "", "Fig. 0", "something", "text", kind, value, far)


@pytest.mark.parametrize(
    ("kind", "value", "interval", "expected"),
    [
        ("reduction", -26, (-20, -28, -15), "reproduced"),
        ("reduction", -26, (-40, -45, -35), "exceeds"),
        ("reduction", -26, (-20, -25, -15), "direction"),
        ("reduction", -26, (-20, -40, -5), "direction"),
        ("reduction", -26, (-5, -20, 1), "not reproduced"),
        ("reduction", -30, (10, -30, 60), "not reproduced"),
        ("ratio", 2.5, (2.3, 2.0, 2.6), "reproduced"),
        ("ratio", 2.5, (4.2, 3.7, 4.7), "exceeds"),
        ("ratio", 2.5, (1.5, 1.2, 1.8), "direction"),
        ("ratio", 2.5, (1.5, 0.9, 1.8), "not reproduced"),
        ("value", 2.5, (2.3, 2.0, 2.6), "reproduced"),
        ("value", 2.5, (4.2, 3.7, 4.7), "not reproduced"),
        ("value", 2.5, (1.5, 1.2, 1.8), "direction"),
        ("floor", 5, (11, 8.5, 14.8), "reproduced"),
        ("floor", 5, (6, 4.5, 8), "direction"),
        ("floor", 5, (3, 0.9, 40), "not reproduced"),
        ("limit", 3.2, (2, 1, 3), "reproduced"),
        ("limit", 3.2, (3, 2, 4), "direction"),
        ("limit", 3.2, (7, 2, 8), "not reproduced"),
        ("error", 3.1, (3.5, 3.0, 4.0), "reproduced"),
        ("error", 3.1, (3.5, 3.2, 4.0), "larger error"),
        ("error", 20, (5, 4, 6), "smaller error"),
    ],
)
def test_verdict_of_each_kind_of_claim(
    kind: str, value: float, interval: tuple[float, float, float], expected: str
) -> None:
    assert verdict(claim(kind, value), *interval) == expected


@pytest.mark.parametrize("interval", [(-26, -26, -26), (-40, -41, -39)])
def test_few_seeds_are_direction_at_best(interval: tuple[float, float, float]) -> None:
    assert verdict(claim("reduction", -26), *interval, n=FEWEST - 1) == "direction"
    assert verdict(claim("reduction", -26), *interval, n=FEWEST) != "direction"


@given(st.floats(-90, 30), st.floats(0, 40), st.floats(0, 40), st.floats(0, 200))
def test_a_wider_interval_never_makes_an_effect_that_misses_the_paper_a_success(
    value: float, below: float, above: float, wider: float
) -> None:
    one = claim("reduction", -26)
    narrow = verdict(one, value, value - below, value + above)
    wide = verdict(one, value, value - below - wider, value + above + wider)
    if narrow == "not reproduced":
        assert wide == "not reproduced"
    if wider > 26:
        assert wide not in ("reproduced",)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [((True, True), "reproduced"), ((True, False), "direction"), ((False, False), "not reproduced")],
)
def test_verdict_of_an_ordering_counts_its_parts(parts: tuple[bool, ...], expected: str) -> None:
    holds = {str(index): good for index, good in enumerate(parts)}
    assert verdict(claim("ordering", math.nan), math.nan, math.nan, math.nan, holds=holds) == expected


def test_paper_claims_has_every_claim() -> None:
    ids = list(dict.fromkeys(key[0] for key in paper_claims()))
    wanted = "M1 M2 M3 M4 M5 M6 M7 P1 P2 P3 P4 P5 H1 H2 H3 H4 H5 H6 S1 G1 G2 G3 O1 O2 O3 O4 O5 O6"
    others = "E1 E2 W1 F1 F2 X1 X2 R1 R2 R3 R4 U1 U2 U3 U4 U5"
    assert ids == [*wanted.split(), *others.split()]
    for row in paper_claims().values():
        assert row.kind in KINDS
        assert math.isnan(row.value) == (row.kind == "ordering")
    assert all(meaning for meaning in VERDICTS.values())
