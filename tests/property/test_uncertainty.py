"""Stated uncertainty on random residents: finite, inside its parts, never smaller with co-runners or without rows."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import any_residents

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.devices.uncertainty import Spreads, Uncertainty, under_limit
from heshare.world import catalogue

ROUNDING = 1e-9

gpus = st.sampled_from(list(catalogue.gpus().values()))
residents = any_residents(512, ["mixed", "fp16"])
parts = st.builds(Uncertainty, st.floats(0.0, 1.0), st.floats(0.0, 1.0))


def _consistent(found: Uncertainty) -> bool:
    values = found.total, found.within_framework
    finite = all(math.isfinite(value) and value >= 0.0 for value in values)
    return finite and found.within_framework <= found.total * (1 + ROUNDING)


@settings(max_examples=60)
@given(gpus, st.lists(residents, min_size=1, max_size=5), st.data())
def test_every_answer(gpu, shared, data):
    """Every answer states its uncertainty, and its interval holds the estimate."""
    clock = data.draw(st.none() | st.sampled_from(gpu.clocks_mhz))
    cap_w = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * data.draw(st.floats(0.05, 1.2))
    answer = co_run(gpu, shared, clock, power_cap_w=cap_w)
    for task in answer.tasks:
        assert _consistent(task.uncertainty_parts)
        assert task.uncertainty > 0.01
        low, high = task.uncertainty_parts.interval(task.time_s)
        assert low < task.time_s < high
    assert _consistent(answer.power_uncertainty_parts)
    assert answer.power_uncertainty > 0


@settings(max_examples=60)
@given(gpus, residents, residents)
def test_time_slices(gpu, own, other):
    """A co-runner in time slices never makes a time more certain."""
    own, other = (replace(one, mps_pct=100, sharing="time-slice") for one in (own, other))
    free = 10 * gpu.tdp_w  # without a limit, which adds an uncertainty of its own
    sets = ([own], [own, other], [own, other, other])
    found = [co_run(gpu, shared, power_cap_w=free).tasks[0].uncertainty for shared in sets]
    assert found == sorted(found)


@settings(max_examples=60)
@given(gpus, residents, st.floats(0.05, 1.0))
def test_limit(gpu, own, part):
    """A power limit never makes a time more certain, nor a power less certain than the limit itself."""
    free = co_run(gpu, [own], power_cap_w=10 * gpu.tdp_w)
    limited = co_run(gpu, [own], power_cap_w=gpu.idle_w + part * (gpu.tdp_w - gpu.idle_w))
    assert limited.tasks[0].uncertainty >= free.tasks[0].uncertainty
    assert limited.power_uncertainty <= max(free.power_uncertainty, 0.02) * math.sqrt(2.0)


@given(parts, parts)
def test_causes(one, other):
    """A further cause never makes anything more certain, whatever the order."""
    both, swapped = (a.beside(b.total, b.within_framework) for a, b in ((one, other), (other, one)))
    assert both.total >= max(one.total, other.total) * (1 - ROUNDING)
    assert math.isclose(both.total, swapped.total, rel_tol=1e-12)


@given(parts, st.floats(10.0, 500.0), st.lists(st.floats(1.0, 3.0), min_size=2, max_size=5))
def test_demand(power, limit_w, factors):
    """More demand above a limit never makes the power less certain."""
    found = [under_limit(power, limit_w, limit_w * factor).total for factor in sorted(factors) if factor > 1.0]
    assert found == sorted(found, reverse=True)


@given(st.sampled_from(["mps", "time-slice", *(f"mig-{slices}g" for slices in (1, 2, 3, 4, 7))]), st.integers(0, 9))
def test_co_runners(way, count):
    """Spreads of co-runners are at least 0 and grow with their number."""
    for spreads in (default().spreads, Spreads()):
        assert 0.0 <= spreads.beside(way, count) <= spreads.beside(way, count + 1)
