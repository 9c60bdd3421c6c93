"""Device model of training, time slices and MIG on random residents, clocks and caps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heshare.devices.device_model import Estimate, co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.systems.miso import mig
from heshare.lab.systems.shared import training
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

ROUNDING = 1e-9

inference = st.builds(Workload, st.sampled_from(sorted(catalogue.paper_models())), st.integers(1, 64))
workloads = inference | st.sampled_from(training.workloads())


@st.composite
def shared(draw: st.DrawFn) -> list[Resident]:
    """Return training and inference residents, all under MPS or all in time slices."""
    if draw(st.booleans()):
        return [Resident(one, 100, "time-slice") for one in draw(st.lists(workloads, min_size=1, max_size=6))]
    pairs = draw(st.lists(st.tuples(workloads, st.integers(1, 100)), min_size=1, max_size=6))
    return [Resident(one, pct) for one, pct in pairs]


@st.composite
def runs(draw: st.DrawFn) -> tuple[Gpu, list[Resident], int | None, float]:
    gpu = draw(st.sampled_from(list(catalogue.gpus().values())))
    cap_w = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * draw(st.floats(0.02, 1.2))
    return gpu, draw(shared()), draw(st.none() | st.sampled_from(gpu.clocks_mhz)), cap_w


def no_slower(before: Estimate, after: Estimate) -> bool:
    return all(two.time_s <= one.time_s * (1 + ROUNDING) for one, two in zip(before.tasks, after.tasks, strict=False))


@settings(max_examples=80, deadline=None)
@given(runs(), workloads)
def test_a_co_runner_never_speeds_a_task_up(run, further):
    gpu, residents, clock, cap_w = run
    more = [*residents, Resident(further, residents[0].mps_pct, residents[0].sharing)]
    crowded, before = (co_run(gpu, tasks, clock, power_cap_w=cap_w) for tasks in (more, residents))
    # A light co-runner can lower the power, so that a cap leaves a higher clock: in time slices, and where trainings
    # take the recorded times of co-runs.
    assert no_slower(crowded, before) or crowded.sm_mhz > before.sm_mhz


@settings(max_examples=80, deadline=None)
@given(runs())
def test_no_task_is_faster_than_alone_and_power_stays_within_its_limits(run):
    gpu, residents, clock, cap_w = run
    estimate = co_run(gpu, residents, clock, power_cap_w=cap_w)
    idle_w = co_run(gpu, [], clock, power_cap_w=cap_w).power_w
    assert idle_w <= estimate.power_w <= cap_w * (1 + ROUNDING)
    for resident, task in zip(residents, estimate.tasks, strict=True):
        alone = co_run(gpu, [Resident(resident.workload, 100, resident.sharing)], clock, power_cap_w=cap_w)
        slower = task.time_s >= alone.tasks[0].time_s * (1 - ROUNDING)
        assert slower or (estimate.sm_mhz > alone.sm_mhz and resident.sharing == "time-slice")


@settings(max_examples=50, deadline=None)
@given(runs(), st.data())
def test_a_higher_clock_or_cap_never_slows_a_task(run, data):
    gpu, residents, clock, cap_w = run
    low = gpu.clocks_mhz[0] if clock is None else clock
    high = data.draw(st.sampled_from([mhz for mhz in gpu.clocks_mhz if mhz >= low]))
    before = co_run(gpu, residents, low, power_cap_w=cap_w)
    assert no_slower(before, co_run(gpu, residents, high, power_cap_w=cap_w))
    assert no_slower(before, co_run(gpu, residents, low, power_cap_w=cap_w * 1.5))


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(mig.placeable() - {()})), st.data())
def test_instances_are_never_faster_than_the_whole_gpu_and_independent(partition, data):
    gpu = catalogue.gpu("A100")
    chosen = [data.draw(workloads) for _ in partition]
    residents = [Resident(one, 100, f"mig-{slices}g") for one, slices in zip(chosen, partition, strict=True)]
    estimate = co_run(gpu, residents)
    for resident, task in zip(residents, estimate.tasks, strict=True):
        assert task.time_s >= co_run(gpu, [Resident(resident.workload)]).tasks[0].time_s * (1 - ROUNDING)
        assert task.time_s == co_run(gpu, [resident]).tasks[0].time_s or estimate.sm_mhz < gpu.max_mhz
    assert estimate.power_w <= gpu.tdp_w


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(workloads, st.floats(1, 500), st.floats(0, 0.5)), min_size=1, max_size=4),
    st.sampled_from(["mps", "time-slice"]),
)
def test_energy_is_power_over_time_with_held_tasks(tasks, sharing):
    device = EmulatedDevice(catalogue.gpu("H200"))
    for index, (workload, iterations, least_s) in enumerate(tasks):
        device.start_as(index, Resident(workload, 100, sharing), iterations)
        device.hold(index, least_s)
    spent_j, done = 0.0, 0
    while device.read().residents:
        before = device.read()
        after_s = device.next_event_s()
        done += len(device.advance(after_s))
        spent_j += before.power_w * (after_s - before.time_s)
        assert abs(device.read().energy_j - spent_j) <= 1e-9 * spent_j
    assert done == len(tasks)
