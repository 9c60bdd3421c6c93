"""Device model on random residents: more power, clock or share never slows, a co-runner never speeds up."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import any_residents

from heshare.devices.device_model import Estimate, co_run
from heshare.lab.systems.miso import mig
from heshare.lab.systems.shared import training
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

ROUNDING = 1e-9
FREE_W = 1e5
"""A power limit that never acts."""
Question = tuple[Gpu, list[Resident], int | None, float]

inference = any_residents(128, ["fp32", "tf32", "mixed", "fp16"])
language_models = st.builds(
    Resident,
    st.builds(
        Workload,
        st.sampled_from(sorted(name for name, model in catalogue.models().items() if model.language is not None)),
        st.integers(1, 128),
        st.just("fp16"),
    ),
    st.integers(5, 100),
)
plain = st.builds(Workload, st.sampled_from(sorted(catalogue.paper_models())), st.integers(1, 64))
either = st.deferred(lambda: plain | st.sampled_from(training.workloads()))
"""Inference in FP32, or a training."""


@st.composite
def mixed(draw: st.DrawFn) -> list[Resident]:
    """Trainings and inference, all under MPS or all in time slices."""
    if draw(st.booleans()):
        return [Resident(one, 100, "time-slice") for one in draw(st.lists(either, min_size=1, max_size=6))]
    pairs = draw(st.lists(st.tuples(either, st.integers(1, 100)), min_size=1, max_size=6))
    return [Resident(one, pct) for one, pct in pairs]


@st.composite
def questions(draw: st.DrawFn, residents: st.SearchStrategy[list[Resident]]) -> Question:
    """A GPU, what it runs, a clock and a power limit."""
    gpu = draw(st.sampled_from(list(catalogue.gpus().values())))
    cap_w = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * draw(st.floats(0.02, 1.2))
    clock = draw(st.none() | st.sampled_from(gpu.clocks_mhz))
    return gpu, draw(residents), clock, cap_w


inferences = questions(st.lists(inference, min_size=1, max_size=6))
every = inferences | questions(mixed()) | questions(st.lists(inference | language_models, min_size=1, max_size=3))


def no_slower(before: Estimate, after: Estimate) -> bool:
    return all(two.time_s <= one.time_s * (1 + ROUNDING) for one, two in zip(before.tasks, after.tasks, strict=False))


@settings(max_examples=80)
@given(every, st.floats(1.0, 3.0))
def test_cap(question: Question, factor: float):
    """A higher power cap never slows a task."""
    gpu, shared, clock, cap_w = question
    assert no_slower(*(co_run(gpu, shared, clock, power_cap_w=limit_w) for limit_w in (cap_w, cap_w * factor)))


@settings(max_examples=80)
@given(every, st.data())
def test_clock(question: Question, data: st.DataObject):
    """A higher clock never slows a task, and never lowers the clock that is reached or the power."""
    gpu, shared, clock, cap_w = question
    low = gpu.clocks_mhz[0] if clock is None else clock
    high = data.draw(st.sampled_from([mhz for mhz in gpu.clocks_mhz if mhz >= low]))
    before, after = (co_run(gpu, shared, mhz, power_cap_w=cap_w) for mhz in (low, high))
    assert no_slower(before, after)
    assert after.sm_mhz >= before.sm_mhz * (1 - ROUNDING)
    assert after.power_w >= before.power_w * (1 - ROUNDING)


@settings(max_examples=80)
@given(inferences, st.data())
def test_share(question: Question, data: st.DataObject):
    """A larger share never slows its task, but where its power makes a limit lower the clock."""
    gpu, shared, clock, cap_w = question
    index = data.draw(st.integers(0, len(shared) - 1))
    share = data.draw(st.integers(shared[index].mps_pct, 100))
    grown = [*shared[:index], Resident(shared[index].workload, share), *shared[index + 1 :]]
    before, after = (co_run(gpu, residents, clock, power_cap_w=cap_w) for residents in (shared, grown))
    slower = after.tasks[index].time_s > before.tasks[index].time_s * (1 + ROUNDING)
    assert not slower or after.sm_mhz < before.sm_mhz

    free = [co_run(gpu, residents, clock, power_cap_w=FREE_W).tasks[index].time_s for residents in (shared, grown)]
    assert free[1] <= free[0] * (1 + ROUNDING)


@settings(max_examples=80)
@given(every, inference | st.builds(Resident, either))
def test_company(question: Question, further: Resident):
    """A co-runner speeds a task up only where it lowers the power, so that the cap leaves a higher clock."""
    gpu, residents, clock, cap_w = question
    further = replace(further, mps_pct=residents[0].mps_pct, sharing=residents[0].sharing)
    crowded, before = (co_run(gpu, tasks, clock, power_cap_w=cap_w) for tasks in ([*residents, further], residents))
    assert no_slower(crowded, before) or crowded.sm_mhz > before.sm_mhz

    crowded, before = (co_run(gpu, tasks, clock, power_cap_w=FREE_W) for tasks in ([*residents, further], residents))
    assert no_slower(crowded, before)
    for resident, task in zip(residents, before.tasks, strict=True):
        alone = co_run(gpu, [resident], clock, power_cap_w=FREE_W)
        assert task.time_s >= alone.tasks[0].time_s * (1 - ROUNDING)


@settings(max_examples=40)
@given(inferences, st.integers(2, 5))
def test_equal(question: Question, count: int):
    """Equal residents have equal results, to the last bit."""
    gpu, shared, clock, cap_w = question
    tasks = co_run(gpu, [*shared[:2], *[shared[0]] * count], clock, power_cap_w=cap_w).tasks
    own = tasks[-count:]
    assert {task.time_s for task in own} == {tasks[0].time_s}
    assert len({repr(task) for task in own}) == 1


@settings(max_examples=60)
@given(inferences)
def test_clock_of_cap(question: Question):
    """Under a cap that acts, power is the cap; half a percent of the clock more would exceed it."""
    gpu, shared, clock, cap_w = question
    found = co_run(gpu, shared, clock, power_cap_w=cap_w)
    asked_mhz = gpu.max_mhz if clock is None else clock
    if found.sm_mhz == asked_mhz:
        assert found.power_w <= cap_w
        return
    assert math.isclose(found.power_w, cap_w, rel_tol=1e-6)
    for slightly_w in (cap_w * (1 - 1e-4), cap_w * (1 + 1e-4)):
        other = co_run(gpu, shared, clock, power_cap_w=slightly_w)
        assert (other.sm_mhz - found.sm_mhz) * (slightly_w - cap_w) > 0 or other.sm_mhz == asked_mhz


@settings(max_examples=80)
@given(every)
def test_limits(question: Question):
    """Power is between idle and the cap, clocks and utilisations within their ranges, times finite."""
    gpu, shared, clock, cap_w = question
    estimate = co_run(gpu, shared, clock, power_cap_w=cap_w)
    idle_w = co_run(gpu, [], clock, power_cap_w=cap_w).power_w
    assert gpu.idle_w <= idle_w <= estimate.power_w <= cap_w * (1 + ROUNDING)
    assert 0 < estimate.sm_mhz <= (gpu.max_mhz if clock is None else clock)
    for task in estimate.tasks:
        assert 0 < task.time_s < math.inf
        assert all(0 <= pct <= 100 for pct in (task.sm_util_pct, task.dram_util_pct, task.l2_util_pct))


@settings(max_examples=100)
@given(inferences, st.randoms(use_true_random=False))
def test_order(question: Question, random):
    """The order of residents does not matter."""
    gpu, shared, clock, cap_w = question
    order = random.sample(range(len(shared)), len(shared))
    straight = co_run(gpu, shared, clock, power_cap_w=cap_w)
    mixed = co_run(gpu, [shared[i] for i in order], clock, power_cap_w=cap_w)
    for place, index in enumerate(order):
        assert math.isclose(mixed.tasks[place].time_s, straight.tasks[index].time_s, rel_tol=1e-9)


@settings(max_examples=50)
@given(st.data())
def test_instances(data: st.DataObject):
    """MIG instances are never faster than the whole GPU, and independent of each other below the power limit."""
    gpu = catalogue.gpu("A100")
    partition = data.draw(st.sampled_from(sorted(mig.placeable() - {()})))
    residents = [Resident(data.draw(either), 100, f"mig-{slices}g") for slices in partition]
    estimate = co_run(gpu, residents)
    for resident, task in zip(residents, estimate.tasks, strict=True):
        assert task.time_s >= co_run(gpu, [Resident(resident.workload)]).tasks[0].time_s * (1 - ROUNDING)
        assert task.time_s == co_run(gpu, [resident]).tasks[0].time_s or estimate.sm_mhz < gpu.max_mhz
    assert estimate.power_w <= gpu.tdp_w
