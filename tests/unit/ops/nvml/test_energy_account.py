"""`EnergyAccount`: plausible steps of a counter, jumps, restarts, and times without a counter or without power."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.ops.nvml.card_sampler import EnergyAccount

MISSING = math.nan


def account(*readings, limit_w=100.0):
    """The account after these readings (counter, power), one each second, and its notes."""
    notes = []
    one = EnergyAccount(limit_w, notes.append)
    for time_s, (counter_j, power_w) in enumerate(readings):
        one.add(float(time_s), counter_j, power_w)
    return one, notes


def test_energy_is_the_counters_while_its_steps_can_be() -> None:
    one, notes = account((1e6, 50.0), (1e6 + 60, 50.0), (1e6 + 60, 90.0), (1e6 + 200, 90.0))
    assert (one.energy_j, one.estimated_j, one.unknown_s, notes) == (200.0, 0.0, 0.0, [])


@pytest.mark.parametrize("jump_j", [1e9, -4400.0, -1e6])
def test_a_jump_of_the_counter_is_replaced_by_the_integral_of_power(jump_j) -> None:
    one, notes = account((1e6, 50.0), (1e6 + 50, 50.0), (1e6 + jump_j, 70.0), (1e6 + jump_j + 40, 50.0))
    assert (one.energy_j, one.estimated_j) == (50 + 60 + 40, 60.0)
    (note,) = notes
    assert "the integral of the power readings is used" in note


def test_energy_without_a_counter_for_a_while_is_the_counters_afterwards() -> None:
    one, _ = account((1e6, 50.0), (MISSING, 50.0), (MISSING, 50.0))
    assert (one.energy_j, one.estimated_j) == (100.0, 100.0)
    one.add(3.0, 1e6 + 170.0, 50.0)
    assert (one.energy_j, one.estimated_j) == (170.0, 0.0)


def test_energy_without_counter_and_power_is_unknown_and_not_invented() -> None:
    one, notes = account((1e6, 50.0), (MISSING, MISSING), (MISSING, MISSING), (MISSING, MISSING))
    assert (one.energy_j, one.unknown_s, notes) == (50.0, 2.0, [])  # the power of its beginning counts for 1 s
    one.add(4.0, 1e6 + 200.0, MISSING)
    assert (one.energy_j, one.unknown_s) == (200.0, 0.0)


def test_notes_on_a_counter_that_always_jumps_are_few() -> None:
    _, notes = account(*[(1e6 * (index % 2), 50.0) for index in range(100)])
    assert len(notes) == 5
    assert "further ones are not noted" in notes[-1]


readings = st.tuples(
    st.one_of(st.just(MISSING), st.floats(0.0, 1e12)), st.one_of(st.just(MISSING), st.floats(0.0, 150.0))
)


@given(st.lists(readings, max_size=30))
def test_energy_never_goes_down_and_never_exceeds_what_a_card_can_draw(rows) -> None:
    one, energies = EnergyAccount(100.0, lambda note: None), [0.0]
    for time_s, (counter_j, power_w) in enumerate(rows):
        one.add(float(time_s), counter_j, power_w)
        energies.append(one.energy_j)
    assert energies == sorted(energies)
    assert one.energy_j <= 300.0 * len(rows)
    assert 0.0 <= one.unknown_s <= len(rows)
