"""The division of a GPU's energy among its tenants: sums, symmetry, unknown weights."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.lab.tenants.tenant_power import split_energy

ENERGIES = st.floats(0.0, 1e9)
WEIGHTS = st.lists(st.one_of(st.floats(0.0, 1e4), st.just(math.nan)), min_size=1, max_size=8)


@given(ENERGIES, ENERGIES, WEIGHTS)
def test_split_energy_sums_to_the_counter_and_gives_nobody_less_than_nothing(energy_j, idle_j, weights):
    parts_j = split_energy(energy_j, idle_j, weights)
    assert math.fsum(parts_j) == pytest.approx(energy_j, rel=1e-9, abs=1e-300)
    assert min(parts_j) >= 0.0
    # Idle energy is divided equally, so that nobody has less than that.
    assert min(parts_j) >= min(idle_j, energy_j) / len(weights) * (1 - 1e-9)


@given(ENERGIES, ENERGIES, WEIGHTS, st.randoms(use_true_random=False))
def test_split_energy_does_not_depend_on_the_order_of_tenants(energy_j, idle_j, weights, random):
    order = list(range(len(weights)))
    random.shuffle(order)
    parts_j = split_energy(energy_j, idle_j, weights)
    assert split_energy(energy_j, idle_j, [weights[place] for place in order]) == pytest.approx(
        [parts_j[place] for place in order], rel=1e-9, abs=1e-300
    )


@pytest.mark.parametrize(
    ("energy_j", "idle_j", "weights", "parts_j"),
    [
        (100.0, 40.0, [30.0, 10.0], [65.0, 35.0]),
        (100.0, 40.0, [7.0], [100.0]),
        (100.0, 40.0, [30.0, math.nan, 10.0], [40 / 3 + 30.0, 40 / 3 + 20.0, 40 / 3 + 10.0]),
        (100.0, 40.0, [math.nan, math.nan], [50.0, 50.0]),
        (100.0, 40.0, [0.0, 0.0], [50.0, 50.0]),
        (30.0, 40.0, [30.0, 10.0], [15.0, 15.0]),
        (0.0, 40.0, [30.0, 10.0], [0.0, 0.0]),
        (5.0, 0.0, [], []),
    ],
)
def test_split_energy_by_hand(energy_j, idle_j, weights, parts_j):
    assert split_energy(energy_j, idle_j, weights) == pytest.approx(parts_j)
