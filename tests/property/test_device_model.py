"""Device model on random residents: more power, clock or share never slows, a co-runner never speeds up."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import any_residents

from heshare.devices.device_model import Estimate, co_run
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

ROUNDING = 1e-9

residents = any_residents(128, ["fp32", "tf32", "fp16"])


def in_precision_of(gpu: Gpu, resident: Resident) -> Resident:
    """The resident, in FP32 if it asks for TF32 on a GPU without it."""
    if gpu.has_tf32 or resident.workload.precision != "tf32":
        return resident
    return replace(resident, workload=replace(resident.workload, precision="fp32"))


@st.composite
def runs(draw: st.DrawFn) -> tuple[Gpu, list[Resident], int | None, float]:
    gpu = draw(st.sampled_from(list(catalogue.gpus().values())))
    cap_w = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * draw(st.floats(0.02, 1.2))
    clock = draw(st.none() | st.sampled_from(gpu.clocks_mhz))
    shared = draw(st.lists(residents, min_size=1, max_size=6))
    return gpu, [in_precision_of(gpu, task) for task in shared], clock, cap_w


def no_slower(before: Estimate, after: Estimate, tasks: range) -> bool:
    return all(after.tasks[i].time_s <= before.tasks[i].time_s * (1 + ROUNDING) for i in tasks)


@settings(max_examples=100, deadline=None)
@given(runs(), st.floats(1.0, 3.0))
def test_a_higher_power_cap_never_slows_a_task(run: tuple[Gpu, list[Resident], int | None, float], factor: float):
    gpu, shared, clock, cap_w = run
    before = co_run(gpu, shared, clock, power_cap_w=cap_w)
    assert no_slower(before, co_run(gpu, shared, clock, power_cap_w=cap_w * factor), range(len(shared)))


@settings(max_examples=100, deadline=None)
@given(runs(), st.data())
def test_a_higher_clock_never_slows_a_task(run: tuple[Gpu, list[Resident], int | None, float], data: st.DataObject):
    gpu, shared, clock, cap_w = run
    low = gpu.clocks_mhz[0] if clock is None else clock
    high = data.draw(st.sampled_from([mhz for mhz in gpu.clocks_mhz if mhz >= low]))
    before, after = (co_run(gpu, shared, mhz, power_cap_w=cap_w) for mhz in (low, high))
    assert no_slower(before, after, range(len(shared)))
    assert after.sm_mhz >= before.sm_mhz
    assert after.power_w >= before.power_w * (1 - ROUNDING)


@settings(max_examples=100, deadline=None)
@given(runs(), st.data())
def test_a_larger_share_never_slows_its_task(run: tuple[Gpu, list[Resident], int | None, float], data: st.DataObject):
    gpu, shared, clock, cap_w = run
    index = data.draw(st.integers(0, len(shared) - 1))
    share = data.draw(st.integers(shared[index].mps_pct, 100))
    grown = [*shared[:index], Resident(shared[index].workload, share), *shared[index + 1 :]]
    before, after = (co_run(gpu, residents, clock, power_cap_w=cap_w) for residents in (shared, grown))
    assert no_slower(before, after, range(index, index + 1))


@settings(max_examples=100, deadline=None)
@given(runs(), residents)
def test_a_co_runner_never_speeds_a_task_up(run: tuple[Gpu, list[Resident], int | None, float], further: Resident):
    gpu, shared, clock, cap_w = run
    alone = co_run(gpu, shared, clock, power_cap_w=cap_w)
    crowded = co_run(gpu, [*shared, in_precision_of(gpu, further)], clock, power_cap_w=cap_w)
    assert no_slower(crowded, alone, range(len(shared)))


@settings(max_examples=100, deadline=None)
@given(runs())
def test_power_is_between_idle_and_the_cap(run: tuple[Gpu, list[Resident], int | None, float]):
    gpu, shared, clock, cap_w = run
    estimate = co_run(gpu, shared, clock, power_cap_w=cap_w)
    assert gpu.idle_w <= estimate.power_w <= cap_w
    assert 0 < estimate.sm_mhz <= (gpu.max_mhz if clock is None else clock)
    for task in estimate.tasks:
        assert math.isfinite(task.time_s)
        assert task.time_s > 0
        assert 0 <= task.sm_util_pct <= 100
        assert 0 <= task.dram_util_pct <= 100
        assert 0 <= task.l2_util_pct <= 100


@settings(max_examples=100, deadline=None)
@given(runs(), st.randoms(use_true_random=False))
def test_the_order_of_residents_does_not_matter(run: tuple[Gpu, list[Resident], int | None, float], random):
    gpu, shared, clock, cap_w = run
    order = random.sample(range(len(shared)), len(shared))
    straight = co_run(gpu, shared, clock, power_cap_w=cap_w)
    mixed = co_run(gpu, [shared[i] for i in order], clock, power_cap_w=cap_w)
    for place, index in enumerate(order):
        assert math.isclose(mixed.tasks[place].time_s, straight.tasks[index].time_s, rel_tol=1e-9)
