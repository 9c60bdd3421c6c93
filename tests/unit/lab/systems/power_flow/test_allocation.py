"""PowerFlow's allocation, move by move, on options small enough to add up by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.lab.systems.power_flow.allocation import Allocation, AllocationOptions, Move, admit, grow, moves

# Clocks ascending: at one GPU 10 s, 8 s, 5 s for 10 J, 8 J, 20 J; at two GPUs 6 s, 5 s, 3 s for 20 J, 18 J, 40 J.
OPTIONS = AllocationOptions(
    (1, 2), np.array([[10.0, 8.0, 5.0], [6.0, 5.0, 3.0]]), np.array([[10.0, 8.0, 20.0], [20.0, 18.0, 40.0]])
)
# A job for one GPU only, twice as long.
RIGID = AllocationOptions((1,), 2 * OPTIONS.time_s[:1], 2 * OPTIONS.energy_j[:1])
WIDE = AllocationOptions((2, 4), OPTIONS.time_s, OPTIONS.energy_j)


def test_moves():
    """Moves are ordered by priority."""
    # More GPUs: 8 s to 5 s is a gain of 3/8, 8 J to 18 J costs 10/8; the clock: 3/8 for 12/8.
    assert moves(7, OPTIONS, Allocation(0, 1)) == [
        Move(pytest.approx(-0.3), 7, Allocation(1, 1), Allocation(0, 1), 1, 10.0),
        Move(pytest.approx(-0.25), 7, Allocation(0, 2), Allocation(0, 1), 0, 12.0),
    ]
    # From the lowest clock the next one saves energy as well.
    assert moves(7, OPTIONS, Allocation(0, 0))[1] == Move(-math.inf, 7, Allocation(0, 1), Allocation(0, 0), 0, -2.0)
    assert moves(7, OPTIONS, Allocation(1, 2)) == []


def test_no_gain():
    """Moves that gain no time are left out."""
    slower = AllocationOptions((1, 2), np.array([[5.0], [5.0]]), np.array([[5.0], [4.0]]))
    assert moves(0, slower, Allocation(0, 0)) == []
    # Four GPUs are faster where two are not.
    four = AllocationOptions((1, 2, 4), np.array([[5.0], [6.0], [4.0]]), np.array([[5.0], [9.0], [10.0]]))
    assert moves(0, four, Allocation(0, 0)) == [
        Move(pytest.approx(-0.2), 0, Allocation(2, 0), Allocation(0, 0), 3, 5.0)
    ]


def test_admit():
    """Jobs that do not fit are passed over."""
    options = {0: OPTIONS, 1: WIDE, 2: RIGID}
    assert admit(options, [0, 1, 2], 2) == {0: Allocation(0, 1), 2: Allocation(0, 1)}
    assert admit(options, [1, 0, 2], 2) == {1: Allocation(0, 1)}
    assert admit(options, [2, 0, 1], 9) == {2: Allocation(0, 1), 0: Allocation(0, 1), 1: Allocation(0, 1)}


@pytest.mark.parametrize(
    ("gpus", "budget_j", "expected"),
    [
        # 24 J are spent to begin with (8 + 16), on two jobs that may both take a higher clock at 0.25, the first also
        # a second GPU at 0.3.
        (0, 24.0, {0: (0, 1), 2: (0, 1)}),
        (1, 33.9, {0: (0, 1), 2: (0, 1)}),
        # Ten more J: the second GPU. It is not there: the clock for 12 J is, one for the first by its number.
        (1, 34.0, {0: (1, 1), 2: (0, 1)}),
        (0, 36.0, {0: (0, 2), 2: (0, 1)}),
        # GPU (10 J), then of the clock at two GPUs (0.4 / (22/18) = 0.33) and RIGID's (0.25, 24 J) the former.
        (1, 56.0, {0: (1, 2), 2: (0, 1)}),
        # 23 J left after the GPU: the first one's clock, 22 J.
        (1, 57.0, {0: (1, 2), 2: (0, 1)}),
        (1, 80.0, {0: (1, 2), 2: (0, 2)}),
        (1, math.inf, {0: (1, 2), 2: (0, 2)}),
    ],
)
def test_grow(gpus, budget_j, expected):
    """Moves are made by priority while GPUs and energy last."""
    options = {0: OPTIONS, 2: RIGID}
    assert grow(options, admit(options, [0, 2], 2), gpus, budget_j) == expected


@st.composite
def option_sets(draw):
    clocks = draw(st.integers(1, 4))
    positive = st.floats(0.1, 100, allow_nan=False)
    made = {}
    for job in range(draw(st.integers(1, 6))):
        widths = tuple(2**place for place in range(draw(st.integers(1, 4))))
        shape = (len(widths), clocks)
        values = draw(st.lists(positive, min_size=2 * shape[0] * clocks, max_size=2 * shape[0] * clocks))
        made[job] = AllocationOptions(widths, *(np.array(half).reshape(shape) for half in np.array_split(values, 2)))
    return made


@settings(max_examples=80, deadline=None)
@given(options=option_sets(), gpus=st.integers(1, 16), budget_j=st.floats(0, 500))
def test_gpus_and_budget(options, gpus, budget_j):
    """GPUs and the budget are kept, and the order of jobs does not matter."""
    started = admit(options, sorted(options), gpus)
    free = gpus - sum(options[job].widths[at.width] for job, at in started.items())
    grown = grow(options, started, free, budget_j)
    assert grown.keys() == started.keys()
    assert sum(options[job].widths[at.width] for job, at in grown.items()) <= gpus
    spent_j = sum(options[job].energy_j[at] for job, at in grown.items())
    assert spent_j <= max(budget_j, sum(options[job].energy_j[at] for job, at in started.items())) + 1e-9
    for job, at in grown.items():
        assert options[job].time_s[at] <= options[job].time_s[started[job]]
    assert grow(options, dict(reversed(started.items())), free, budget_j) == grown, "the order of jobs does not matter"
