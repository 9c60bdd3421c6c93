"""Device model: times, clocks and powers computed by hand on a GPU with round constants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heshare.devices import board_power
from heshare.devices.board_power import relative_voltage
from heshare.devices.constants import Constants, Contention, HalfPrecision, Power, Timing
from heshare.devices.crowding import resident_parts
from heshare.devices.device_model import co_run
from heshare.devices.iteration_time import Iteration, WorkPower
from heshare.devices.uncertainty import Uncertainty
from heshare.shared.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

GPU = Gpu("G", "G", "toy", 10, 640, 1000.0, 100.0, 1.0, 1.0, 200.0, 50.0, (500, 750, 1000))
POWER = Power(idle_w=50.0, dynamic_w=200.0, memory=0.0, knee_mhz=500.0, v_min=0.5, memory_knee_mhz=0.0)
NO_CONTENTION = Contention(0.0, 0.0)


def board_power_w(power: Power, iterations: list[Iteration], sm_mhz: float, max_mhz: float) -> float:
    return board_power.board_power_w(power, resident_parts(iterations), sm_mhz, max_mhz)


def constants(contention: Contention = NO_CONTENTION, **timings: Timing) -> Constants:
    timing = {("G", engine, name): row for name, row in timings.items() for engine in ("eager", "tensorrt")}
    return Constants(timing, {"G": POWER}, {"G": contention}, {("G", "eager", "cnn"): HalfPrecision(0.5, 0.5, 0.0)})


PURE = Timing(latency_s=0.0, memory_s=0.0, work_s=0.0, work_per_sample_s=0.01)
MIXED = Timing(latency_s=0.001, memory_s=0.002, work_s=0.004, work_per_sample_s=0.003, fill_s=0.004)


FILLED_S = 1e-3 * (3**1.5 + 4**1.5) ** (2 / 3)


def resident(name: str, batch: int, pct: int = 100, precision: str = "fp32") -> Resident:
    return Resident(Workload(name, batch, precision), pct)


@pytest.mark.parametrize(
    ("alone", "sm_mhz", "expected_s"),
    [
        # 1 + 2 + 4 + (3^1.5 + 4^1.5)^(2/3) ms
        (resident("m", 1), None, 0.007 + FILLED_S),
        # A share divides the work alone: 1 + 2 + 4 / 0.5 + (6^1.5 + 4^1.5)^(2/3) ms
        (resident("m", 1, 50), None, 0.011 + 1e-3 * (6**1.5 + 8) ** (2 / 3)),
        # A clock changes the time of the work alone: 1 + 2 + (4 + 5.6) x 1000 / 500 ms
        (resident("m", 1), 500, 0.003 + 2 * (0.004 + FILLED_S)),
        # Half precision shortens work and memory: 1 + 1 + 2 + (1.5^1.5 + 2^1.5)^(2/3) ms
        (resident("m", 1, precision="fp16"), None, 0.004 + FILLED_S / 2),
    ],
    ids=["sum of all parts", "half of the GPU", "half of the clock", "half precision"],
)
def test_time(alone: Resident, sm_mhz: int | None, expected_s: float):
    """Time of an iteration is the sum of its parts."""
    estimate = co_run(GPU, [alone], sm_mhz, constants=constants(m=MIXED), power_cap_w=1e6)
    assert estimate.tasks[0].time_s == pytest.approx(expected_s, rel=1e-9)


def test_host():
    """Host part hides a short GPU part."""
    timing = Timing(0.0, 0.0, 0.0, 0.001, host_s=0.01)
    estimate = co_run(GPU, [resident("m", 1)], constants=constants(m=timing))
    assert estimate.tasks[0].time_s == pytest.approx(0.01, rel=1e-6)


def test_power():
    """Power of a full GPU at the top clock and at the knee."""
    top = co_run(GPU, [resident("p", 1)], constants=constants(p=PURE), power_cap_w=1e6)
    low = co_run(GPU, [resident("p", 1)], 500, constants=constants(p=PURE), power_cap_w=1e6)
    assert top.power_w == pytest.approx(250.0)
    assert low.power_w == pytest.approx(50.0 + 200.0 * 0.5 * 0.25)


def test_power_cap():
    """A power cap lowers the clock until the power fits."""
    estimate = co_run(GPU, [resident("p", 1)], constants=constants(p=PURE))
    # 200 f (0.5 + 0.5 (1000 f - 500) / 500)^2 = 200 f^3 = 150
    assert estimate.sm_mhz == pytest.approx(1000 * 0.75 ** (1 / 3), rel=1e-9)
    assert estimate.power_w == pytest.approx(200.0, rel=1e-9)
    assert estimate.tasks[0].time_s == pytest.approx(0.01 / 0.75 ** (1 / 3), rel=1e-9)


def test_take_turns():
    """Two residents with the whole GPU take turns."""
    estimate = co_run(GPU, [resident("p", 1), resident("p", 1)], constants=constants(p=PURE), power_cap_w=1e6)
    # c^16 = 1 + 2^16 - 2
    assert [task.time_s for task in estimate.tasks] == pytest.approx([0.01 * (2**16 - 1) ** (1 / 16)] * 2, rel=1e-12)
    assert estimate.power_w == pytest.approx(250.0)


def test_contention():
    """Residents within 100 % slow down by contention alone."""
    contention = Contention(strength=0.1, wait_s=1e-5)
    timing = Timing(0.0, 0.002, 0.0, 0.01, kernels=100.0)
    sets = {pct: [resident("p", 1, pct), resident("p", 1, pct)] for pct in (30, 45)}
    for pct, pair in sets.items():
        times_s = [
            co_run(GPU, tasks, constants=constants(contention, p=timing), power_cap_w=1e6).tasks[0].time_s
            for tasks in (pair[:1], pair)
        ]
        assert times_s[1] == pytest.approx(times_s[0] * 1.1 + 100 * 1e-5, rel=0.015 if pct == 45 else 1e-4)


def test_larger_co_runner():
    """Contention grows with the share of the co-runner over the own."""
    contention = Contention(strength=0.1, wait_s=0.0)
    timing = Timing(0.0, 0.02, 0.0, 0.001)
    run = co_run(GPU, [resident("p", 1, 10), resident("p", 1, 40)], constants=constants(contention, p=timing))
    assert run.tasks[0].time_s == pytest.approx(1.4 * 0.03, rel=1e-3)
    assert run.tasks[1].time_s == pytest.approx(1.025 * 0.0225, rel=1e-3)


def test_idle():
    """An idle GPU draws idle power."""
    estimate = co_run(GPU, [], constants=constants())
    assert (estimate.power_w, estimate.tasks) == (50.0, ())


def test_utilisation():
    """Utilisation is the busy part of SMs and memory."""
    estimate = co_run(GPU, [resident("m", 1)], constants=constants(m=MIXED), power_cap_w=1e6)
    assert estimate.tasks[0].sm_util_pct == pytest.approx(0.7 / (0.007 + FILLED_S))
    assert estimate.tasks[0].dram_util_pct == pytest.approx(0.2 / (0.007 + FILLED_S))


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
        co_run(gpu, [resident(name, 1)], sm_mhz, constants=constants(p=PURE), power_cap_w=cap_w)


def test_clock_power():
    """Clocks take power while a kernel runs."""
    alone = Iteration(0.0, 0.0, 0.0, 1e-3, 0.0, 0.1, 0.0, 0.0, 1, True, Uncertainty())
    with_clocks = replace(POWER, clock_w=30.0)
    for mhz in (500.0, 700.0, 1000.0):
        volts = relative_voltage(POWER, mhz, 1000.0)
        extra_w = board_power_w(with_clocks, [alone], mhz, 1000.0) - board_power_w(POWER, [alone], mhz, 1000.0)
        assert extra_w == pytest.approx(30.0 * volts**2 * mhz / 1000.0)
    assert board_power_w(with_clocks, [], 1000.0, 1000.0) == POWER.idle_w


def test_intensity():
    """Board power grows with the intensity, and never falls when work is added."""
    dense = Iteration(0.0, 0.0, 0.0, 1e-3, 0.0, 1.0, 0.0, 0.0, 1, True, Uncertainty(), work_power=WorkPower(1.5))
    light = replace(dense, work_power=WorkPower(0.4))
    dense_w, light_w = (board_power_w(POWER, [one], 1000.0, 1000.0) - POWER.idle_w for one in (dense, light))
    assert dense_w / light_w == pytest.approx(1.5 / 0.4)
    assert board_power_w(POWER, [dense, light], 1000.0, 1000.0) >= board_power_w(POWER, [dense], 1000.0, 1000.0)
    assert board_power_w(POWER, [light, dense], 1000.0, 1000.0) >= board_power_w(POWER, [light], 1000.0, 1000.0)


def test_rates():
    """Operations and traffic draw power by their rates."""
    power = replace(POWER, cache_mb=100.0)
    one = Iteration(
        0.0, 0.0, 0.0, 1e-2, 0.0, 1.0, 0.0, 0.0, 1, True, Uncertainty(),
        work_power=WorkPower(intensity=0.0, operations_s=2e-3, traffic_s=4e-3, working_mb=100.0),
    )  # fmt: skip
    # Half of the traffic reaches memory: (2 + 4 / 2) ms of full dynamic power in 10 ms.
    parts = resident_parts([one], power.cache_mb)
    assert board_power.board_power_w(power, parts, 1000.0, 1000.0) == pytest.approx(50.0 + 200.0 * 0.4)
    # Two processes share the cache: two thirds of the traffic reach memory.
    parts = resident_parts([one, one], power.cache_mb)
    both_w = board_power.board_power_w(power, parts, 1000.0, 1000.0)
    assert both_w == pytest.approx(50.0 + 2 * 200.0 * (2 + 4 * 2 / 3) / 10)


def test_held_clock():
    """A held clock adds to idle power."""
    power = replace(POWER, idle_clock_w=20.0)
    assert board_power.idle_power_w(power, 1000.0, 1000.0) == 70.0
    assert board_power.idle_power_w(power, 500.0, 1000.0) == pytest.approx(50.0 + 20.0 * 0.5 * 0.25)
    held = replace(constants(p=PURE), power={"G": power})
    assert co_run(GPU, [], 1000, constants=held).power_w == 50.0, "an empty GPU rests"
    assert co_run(GPU, [resident("p", 1)], constants=held, power_cap_w=1e6).power_w == pytest.approx(270.0)
