"""Device model: times, clocks and powers computed by hand on a GPU with round constants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heshare.devices.constants import Constants, Contention, Power, Utilisation
from heshare.devices.device_model import co_run, co_run_rates
from heshare.devices.timing_effects import Effects, Timing, Timings
from heshare.devices.uncertainty import CELL
from heshare.shared.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

GPU = Gpu("G", "G", "toy", 10, 640, 1000.0, 100.0, 1.0, 1.0, 200.0, 50.0, (500, 750, 1000))
POWER = Power(idle_w=50.0, dynamic_w=200.0, memory=0.0, knee_mhz=500.0, v_min=0.5, memory_knee_mhz=0.0)
NO_CONTENTION = Contention(0.0, 0.0, hold_memory=0.0, hold_idle=0.0)


def constants(contention: Contention = NO_CONTENTION, **timings: Timing) -> Constants:
    added = {("G", "eager", name, "mixed"): row for name, row in timings.items()}
    return Constants({"G": POWER}, {"G": contention}, Timings(Effects(), {}, {}, added), Utilisation(1.5, 0.5, 0.5))


PURE = Timing(latency_s=0.0, memory_s=0.0, work_s=0.01)
MIXED = Timing(latency_s=0.001, memory_s=0.002, work_s=0.003, fill_s=0.004, copy_s=0.0005)


def filled_s(batch_ms: float, fill_ms: float = 4.0) -> float:
    return 1e-3 * (batch_ms**1.5 + fill_ms**1.5) ** (2 / 3)


def resident(name: str, batch: int = 1, pct: int = 100) -> Resident:
    return Resident(Workload(name, batch), pct)


@pytest.mark.parametrize(
    ("alone", "sm_mhz", "expected_s"),
    [
        (resident("m"), None, 0.0035 + filled_s(3)),
        (resident("m", 4), None, 0.001 + 4 * 0.0025 + filled_s(12)),
        (resident("m", 1, 50), None, 0.0035 + filled_s(6)),
        (resident("m"), 500, 0.0035 + 2 * filled_s(3)),
    ],
    ids=["sum of all parts", "four samples", "half of the GPU", "half of the clock"],
)
def test_time(alone: Resident, sm_mhz: int | None, expected_s: float):
    """Time of an iteration is the sum of its parts."""
    estimate = co_run(GPU, [alone], sm_mhz, constants=constants(m=MIXED), power_cap_w=1e6)
    assert estimate.tasks[0].time_s == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize("work_ms", [1.0, 9.0, 10.0, 30.0])
def test_host(work_ms: float):
    """The longer of host part and GPU part hides the shorter."""
    timing = Timing(0.0, 0.0, 1e-3 * work_ms, host_s=0.01)
    estimate = co_run(GPU, [resident("m")], constants=constants(m=timing), power_cap_w=1e6)
    assert estimate.tasks[0].time_s == pytest.approx(1e-3 * (10.0**8 + work_ms**8) ** (1 / 8), rel=1e-9)


def test_memory_knee():
    """Below its knee, and below the lowest clock, memory time grows as 1/f."""
    timing = Timing(0.0, 0.01, 1e-9)
    slow = replace(constants(m=timing), power={"G": replace(POWER, memory_knee_mhz=800.0)})
    ratios = [co_run(GPU, [resident("m")], mhz, constants=slow).tasks[0].time_s / 0.01 for mhz in GPU.clocks_mhz]
    assert ratios == pytest.approx([800 / 500, 800 / 750, 1.0], rel=1e-6)


def test_power():
    """Power of a full GPU at the top clock and at the knee."""
    top = co_run(GPU, [resident("p")], constants=constants(p=PURE), power_cap_w=1e6)
    low = co_run(GPU, [resident("p")], 500, constants=constants(p=PURE), power_cap_w=1e6)
    assert top.power_w == pytest.approx(250.0)
    assert low.power_w == pytest.approx(50.0 + 200.0 * 0.5 * 0.25)


def test_power_cap():
    """A power cap lowers the clock until the power fits."""
    estimate = co_run(GPU, [resident("p")], constants=constants(p=PURE))
    # 200 f (0.5 + 0.5 (1000 f - 500) / 500)^2 = 200 f^3 = 150
    assert estimate.sm_mhz == pytest.approx(1000 * 0.75 ** (1 / 3), rel=1e-9)
    assert estimate.power_w == pytest.approx(200.0, rel=1e-9)
    assert estimate.tasks[0].time_s == pytest.approx(0.01 / 0.75 ** (1 / 3), rel=1e-9)


def test_take_turns():
    """Two residents with the whole GPU take turns."""
    estimate = co_run(GPU, [resident("p"), resident("p")], constants=constants(p=PURE), power_cap_w=1e6)
    # c^12 = 1 + 2^12 - 2
    assert [task.time_s for task in estimate.tasks] == pytest.approx([0.01 * (2**12 - 1) ** (1 / 12)] * 2, rel=1e-12)
    assert estimate.power_w == pytest.approx(250.0)


def test_interference():
    """Residents that fit side by side slow one another down by interference alone, more by a larger share."""
    contention = Contention(0.05, 0.2, hold_memory=0.0, hold_idle=0.0)
    timing = Timing(0.0, 0.02, 0.0001)
    known = constants(contention, p=timing)
    small, large = resident("p", 1, 10), resident("p", 1, 40)
    alone_s = [co_run(GPU, [one], constants=known).tasks[0].time_s for one in (small, large)]
    shared = co_run(GPU, [small, large], constants=known)
    slowdown = [task.time_s / own_s for task, own_s in zip(shared.tasks, alone_s, strict=True)]
    assert slowdown == pytest.approx([1.0 + 0.05 + 0.2 * 0.4, 1.0 + 0.05 + 0.2 * 0.1], rel=1e-6)


def test_idle():
    """An idle GPU draws idle power, also under a held clock."""
    held = replace(constants(), power={"G": replace(POWER, idle_clock_w=20.0)})
    for known in (constants(), held):
        estimate = co_run(GPU, [], 1000, constants=known)
        assert (estimate.power_w, estimate.tasks) == (50.0, ())


def test_utilisation():
    """Utilisation is the busy part of SMs and memory, at most all."""
    time_s = 0.0035 + filled_s(3)
    (task,) = co_run(GPU, [resident("m")], constants=constants(m=MIXED), power_cap_w=1e6).tasks
    assert task.sm_util_pct == pytest.approx(0.3 / time_s)
    assert task.l2_util_pct == pytest.approx(1.5 * 0.3 / time_s)
    assert task.dram_util_pct == pytest.approx(0.5 * 0.3 / time_s + 0.5 * 0.2 / time_s)
    (full,) = co_run(GPU, [resident("p")], constants=constants(p=PURE)).tasks
    assert (full.sm_util_pct, full.l2_util_pct) == (pytest.approx(100.0), 100.0)


def test_rates():
    """The short form gives the clock, power and times of the long one."""
    pair, known = [resident("p", 1, 60), resident("m", 2, 30)], constants(p=PURE, m=MIXED)
    for clock in (None, *GPU.clocks_mhz):
        full, short = co_run(GPU, pair, clock, constants=known), co_run_rates(GPU, pair, clock, constants=known)
        assert short == (full.sm_mhz, full.power_w, [task.time_s for task in full.tasks])


def test_anchored():
    """An answer says whether measurements of the network on the GPU went into the fit, and the arithmetic."""
    known = constants(p=PURE, m=replace(MIXED, support=CELL))
    tasks = co_run(GPU, [resident("p"), resident("m")], constants=known).tasks
    assert [(task.anchored, task.arithmetic) for task in tasks] == [(False, "mixed"), (True, "mixed")]


@pytest.mark.parametrize(
    ("gpu", "name", "sm_mhz", "cap_w", "found"),
    [
        (GPU, "p", None, 50.0, "idle power"),
        (GPU, "p", None, float("nan"), "idle power"),
        (GPU, "p", 600, None, "nearest"),
        (GPU, "q", None, None, "calibrated model"),
        (replace(GPU, name="H"), "p", None, None, "one of G"),
    ],
)
def test_refusals(gpu: Gpu, name: str, sm_mhz: int | None, cap_w: float | None, found: str):
    """Caps below idle power, clocks off the grid and unknown names are refused."""
    with pytest.raises(InputError, match=found):
        co_run(gpu, [resident(name)], sm_mhz, constants=constants(p=PURE), power_cap_w=cap_w)
