"""Rules for holding starts: the best time within the bound, and when waiting is not worth it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.lab.limits.prices.price_aware import CheapestHourRule, SavingRule, StartEstimate

DAY = EnergySignal((0.0, 21_600.0, 32_400.0, 64_800.0), (0.1, 0.3, 0.12, 0.25), daily=True)
HOUR = StartEstimate(power_w=250.0, duration_s=3_600.0)


def _gain(rule: SavingRule, now_s: float, at_s: float, batch: StartEstimate) -> float:
    """The rule's objective, written out."""
    later, now = (rule.signal.integral(start_s, start_s + batch.duration_s) for start_s in (at_s, now_s))
    return 1 - later / now - rule.saving_per_hour * (at_s - now_s) / 3_600.0


@given(
    st.floats(0, 86_400),
    st.floats(0, 30_000),
    st.floats(60, 40_000),
    st.floats(0, 0.1),
)
def test_no_time_within_the_bound_is_better(now_s: float, hold_s: float, duration_s: float, saving: float) -> None:
    rule, batch = SavingRule(DAY, saving), StartEstimate(250.0, duration_s)
    chosen_s = rule.release_s(now_s, now_s + hold_s, batch)
    assert now_s <= chosen_s <= now_s + hold_s
    best = max(_gain(rule, now_s, at_s, batch) for at_s in np.linspace(now_s, now_s + hold_s, 60))
    assert _gain(rule, now_s, chosen_s, batch) >= best - 1e-6


def test_a_start_is_held_until_the_price_falls() -> None:
    rule = SavingRule(DAY)
    assert rule.release_s(25_000.0, 40_000.0, HOUR) == 32_400.0
    assert rule.release_s(25_000.0, 30_000.0, HOUR) == 30_000.0  # the bound: its end is cheaper
    assert rule.release_s(25_000.0, 25_000.0, HOUR) == 25_000.0
    assert rule.release_s(33_000.0, 80_000.0, HOUR) == 33_000.0


def test_each_hour_of_waiting_must_save_enough() -> None:
    falls = EnergySignal((0.0, 36_000.0), (0.2, 0.19))
    assert SavingRule(falls).release_s(0.0, 40_000.0, HOUR) == 0.0
    assert SavingRule(falls, 0.0).release_s(0.0, 40_000.0, HOUR) == 36_000.0


def test_a_constant_or_negative_price_holds_nothing() -> None:
    for value in (0.2, 0.0, -0.1):
        assert SavingRule(EnergySignal((0.0, 50.0), (value, value)), 0.0).release_s(7.0, 1e6, HOUR) == 7.0


def test_the_baseline_waits_for_the_lowest_value() -> None:
    rule = CheapestHourRule(DAY)
    assert rule.release_s(25_000.0, 25_000.0 + 86_400.0, HOUR) == 86_400.0
    assert rule.release_s(25_000.0, 40_000.0, HOUR) == 32_400.0
    assert rule.release_s(100.0, 80_000.0, HOUR) == pytest.approx(100.0)
