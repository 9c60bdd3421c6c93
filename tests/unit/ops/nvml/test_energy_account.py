"""`EnergyAccount`: plausible steps of a counter, jumps, restarts, and times without a counter, a step or power."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.ops.nvml.binding import NoReadingError, Nvml
from heshare.ops.nvml.card_sampler import CardSampler
from heshare.ops.nvml.energy_account import EnergyAccount

MISSING = math.nan


def account(*readings, limit_w=100.0):
    """The account after these readings (counter, power), one each second, and its notes."""
    notes = []
    one = EnergyAccount(limit_w, notes.append)
    for time_s, (counter_j, power_w) in enumerate(readings):
        one.add(float(time_s), counter_j, power_w)
    return one, notes


def test_counter() -> None:
    """Energy is the counter's while its steps are possible."""
    one, notes = account((1e6, 50.0), (1e6 + 60, 50.0), (1e6 + 60, 90.0), (1e6 + 200, 90.0))
    assert (one.energy_j, one.estimated_j, one.unknown_s, notes) == (200.0, 0.0, 0.0, [])


@pytest.mark.parametrize("jump_j", [1e9, -4400.0, -1e6])
def test_jump(jump_j) -> None:
    """A jump of the counter is replaced by the integral of power."""
    one, notes = account((1e6, 50.0), (1e6 + 50, 50.0), (1e6 + jump_j, 70.0), (1e6 + jump_j + 40, 50.0))
    assert (one.energy_j, one.estimated_j) == (50 + 60 + 40, 60.0)
    (note,) = notes
    assert "the integral of the power readings is used" in note


def test_counter_returns() -> None:
    """After a gap the counter corrects what was estimated."""
    one, _ = account((1e6, 50.0), (MISSING, 50.0), (MISSING, 50.0))
    assert (one.energy_j, one.estimated_j) == (100.0, 100.0)
    one.add(3.0, 1e6 + 170.0, 50.0)
    assert (one.energy_j, one.estimated_j) == (170.0, 0.0)


def test_unknown() -> None:
    """Energy without counter and power is unknown and not invented."""
    one, notes = account((1e6, 50.0), (MISSING, MISSING), (MISSING, MISSING), (MISSING, MISSING))
    assert (one.energy_j, one.unknown_s, notes) == (50.0, 2.0, [])  # the power of its beginning counts for 1 s
    one.add(4.0, 1e6 + 200.0, MISSING)
    assert (one.energy_j, one.unknown_s) == (200.0, 0.0)


def test_stalled() -> None:
    """While a counter stands still energy is the integral of power: 18,000 J in a minute at 300 W."""
    one, notes = account(*[(1e6, 300.0)] * 61, limit_w=700.0)
    assert (one.energy_j, one.estimated_j, one.stalled) == (18_000.0, 18_000.0, True)
    (note,) = notes
    assert "stood still" in note


def test_moves_again() -> None:
    """A counter that moves again is used again: by its step if it caught up, else from then on."""
    caught_up, _ = account(*[(1e6, 300.0)] * 31, (1e6 + 9_300.0, 300.0), limit_w=700.0)
    assert (caught_up.energy_j, caught_up.estimated_j, caught_up.stalled) == (9_300.0, 0.0, False)
    went_on, _ = account(*[(1e6, 300.0)] * 31, (1e6 + 300.0, 300.0), (1e6 + 600.0, 300.0), limit_w=700.0)
    assert went_on.energy_j >= 9_000.0
    assert not went_on.stalled


def test_not_stalled() -> None:
    """A counter that is updated seldom does not stand still, and without power nothing says that it should move."""
    seldom, notes = account(*[(1e6 + 300.0 * (second // 5 * 5), 300.0) for second in range(31)], limit_w=700.0)
    assert (seldom.energy_j, seldom.estimated_j, notes) == (9_000.0, 0.0, [])
    without_power, notes = account(*[(1e6, MISSING)] * 61)
    assert (without_power.energy_j, notes) == (0.0, [])


def test_few_notes() -> None:
    """Notes on a counter that always jumps are few."""
    _, notes = account(*[(1e6 * (index % 2), 50.0) for index in range(100)])
    assert len(notes) == 5
    assert "further ones are not noted" in notes[-1]


readings = st.tuples(
    st.one_of(st.just(MISSING), st.floats(0.0, 1e12)), st.one_of(st.just(MISSING), st.floats(0.0, 150.0))
)


@given(st.lists(readings, max_size=30))
def test_bounded(rows) -> None:
    """Energy never falls, and never exceeds what a card can draw."""
    one, energies = EnergyAccount(100.0, lambda note: None), [0.0]
    for time_s, (counter_j, power_w) in enumerate(rows):
        one.add(float(time_s), counter_j, power_w)
        energies.append(one.energy_j)
    assert energies == sorted(energies)
    assert one.energy_j <= 300.0 * len(rows)
    assert 0.0 <= one.unknown_s <= len(rows)


@pytest.mark.parametrize(("limit_w", "power_w", "plausible"), [(175.0, 593.0, False), (400.0, 450.0, True)])
def test_implausible_power(fake, limit_w, power_w, plausible) -> None:
    """Power far above the card's limit is no reading."""
    for figure in ("limit_mw", "most_mw"):
        fake.set(figure, 1e3 * limit_w)
    fake.set("power_mw", 1e3 * power_w)
    with Nvml() as nvml:
        card = nvml.card(0)
        for reading in (card.instant_power_w, card.usage_power_w):
            if plausible:
                assert reading() == power_w
            else:
                with pytest.raises(NoReadingError, match="593 W; expected at most 262 W"):
                    reading()


class Answers:
    """A card whose readings are those of a script: counter, J, and power, W; None for one that fails."""

    silent_s = 0.0

    def __init__(self, *readings):
        self._readings = iter(readings)

    def poll(self, calls, *, wait_s=0.0):
        values = dict(zip(("energy_j", "usage_power_w"), next(self._readings), strict=True))
        values |= {"sm_mhz": 900.0, "limits": [], "memory_mib": [100.0, 50.0], "health": []}
        return [["NotSupportedError", "no"] if values[name] is None else [values[name]] for (name,) in calls]


@pytest.mark.parametrize("last", [(None, 300.0), (1e6, 300.0)], ids=["missing", "stands still"])
def test_sample_counter(last) -> None:
    """A sample has the counter only where the account ends at it: else a later session would count twice."""
    now_s, notes = [0.0], []
    card = Answers(*[(1e6, 300.0)] * 2, *[last] * 20, (1e6 + 6_300.0, 300.0))
    sampler = CardSampler(card, "usage_power_w", 700.0, notes.append, lambda: now_s[0])

    def sample():
        found = sampler.sample()
        now_s[0] += 1.0
        return found

    sample(), sample()
    assert sampler.counter_j == 1e6
    for _ in range(20):
        estimated = sample()
    assert math.isnan(sampler.counter_j)
    assert estimated.energy_j == pytest.approx(6_300.0)
    assert sample().energy_j == pytest.approx(6_300.0)
    assert sampler.counter_j == 1e6 + 6_300.0
