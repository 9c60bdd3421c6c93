"""Stated uncertainty on random residents: finite, of all its parts, never smaller where less was measured."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import any_residents

from heshare.devices.device_model import co_run
from heshare.devices.uncertainty import Uncertainty
from heshare.world import catalogue

ROUNDING = 1e-9

gpus = st.sampled_from(list(catalogue.gpus().values()))
residents = any_residents(512, ["fp32", "fp16"])


def _consistent(parts: Uncertainty) -> bool:
    values = astuple(parts)
    inside = max(parts.fit, parts.transfer, parts.contention)
    return (
        all(math.isfinite(value) and value >= 0 for value in values)
        and max(values) <= parts.total * (1 + ROUNDING)
        and inside <= parts.within_framework * (1 + ROUNDING) <= parts.total * (1 + 2 * ROUNDING)
    )


@settings(max_examples=100)
@given(gpus, st.lists(residents, min_size=1, max_size=5), st.data())
def test_every_answer(gpu, shared, data):
    """Every answer states its uncertainty."""
    clock = data.draw(st.none() | st.sampled_from(gpu.clocks_mhz))
    cap_w = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * data.draw(st.floats(0.05, 1.2))
    answer = co_run(gpu, shared, clock, power_cap_w=cap_w)
    assert all(_consistent(task.uncertainty_parts) and task.uncertainty > 0.01 for task in answer.tasks)
    assert _consistent(answer.power_uncertainty_parts)
    assert answer.power_uncertainty > 0


@settings(max_examples=100)
@given(gpus, residents, residents)
def test_co_runner(gpu, own, other):
    """A co-runner never makes the effect of others more certain."""
    alone, beside = (co_run(gpu, shared).tasks[0].uncertainty_parts for shared in ([own], [own, other]))
    assert beside.contention > alone.contention


@settings(max_examples=100)
@given(gpus, residents, st.integers(1, 4))
def test_far_batch_size(gpu, own, factor):
    """A batch farther from the measured ones is never more certain."""
    near = replace(own, workload=replace(own.workload, batch_size=512))
    far = replace(own, workload=replace(own.workload, batch_size=512 * 2**factor))
    free = 10 * gpu.tdp_w  # without a limit, which adds an uncertainty of its own
    less, more = (co_run(gpu, [resident], power_cap_w=free).tasks[0].uncertainty_parts for resident in (near, far))
    assert more.transfer >= less.transfer
