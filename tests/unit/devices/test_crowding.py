"""Taking turns on the SMs: the root by hand, hosts, small tasks, and the array form."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices import crowding
from heshare.devices.board_power import work_done
from heshare.devices.constants import Contention, Power, Timing
from heshare.devices.crowding import common_stretch, crowded_times_s, resident_parts
from heshare.devices.iteration_time import Iteration, iteration_at, overlap
from heshare.lab.calibration.copies_fit import stretch_arrays

TURNS = Contention(0.0, 0.0, sharpness=16.0, memory=0.75, busy=0.25)


def task(timing: Timing, batch: int = 1, share: float = 1.0) -> Iteration:
    return iteration_at(timing, batch, share)


def stretches(contention: Contention, tasks: list[Iteration], slow: float, stalled: float) -> list[float]:
    return crowding.stretches(contention, resident_parts(tasks), slow, stalled)


PURE = Timing(0.0, 0.0, 0.0, 0.01)
HOSTED = Timing(0.002, 0.0, 0.0, 0.004, host_s=0.012)


def test_alone():
    """A task alone is not stretched."""
    assert stretches(TURNS, [task(PURE)], 1.0, 1.0) == [1.0]
    assert stretches(TURNS, [], 1.0, 1.0) == []


def test_copies_share():
    """Many copies without a host share the GPU evenly."""
    # c^p = 1 + n^p - n
    for count in (2, 5):
        expected = (1 + count**16 - count) ** (1 / 16)
        assert stretches(TURNS, [task(PURE)] * count, 1.0, 1.0) == pytest.approx([expected] * count, rel=1e-12)


def test_slow_hosts():
    """Copies with slow hosts slow down only when their work fills the GPU."""
    own = task(HOSTED)
    busy_s, gpu_s = 0.004 + 0.25 * 0.002, 0.006
    for count, at_least in ((2, 0.012), (4, 4 * busy_s), (8, 8 * busy_s)):
        c = stretches(TURNS, [own] * count, 1.0, 1.0)[0]
        time_s = overlap(own.host_s, c * gpu_s)
        assert at_least < time_s < 1.03 * at_least
        rho = busy_s / time_s
        assert c**-16.0 == pytest.approx(1.0 - ((count * rho) ** 16 - count * rho**16), rel=1e-6)


def test_side_by_side():
    """Tasks whose shares fit side by side hardly stretch one another."""
    pair = [task(Timing(0.002, 0.001, 0.001, 0.004), 4, share) for share in (0.3, 0.7)]
    assert max(stretches(TURNS, pair, 1.0, 1.0)) < 1.03


def test_arrays():
    """The array form of the stretches equals the plain one."""
    sets = [[task(HOSTED)] * 3, [task(HOSTED), task(PURE, 4, 0.6)], [task(PURE), task(PURE, 2), task(HOSTED, 8, 0.2)]]
    for slow in (1.0, 2.3):
        for tasks in sets:
            others = sum(one.share for one in tasks[1:])
            busy, hosts, gpus = [], [], []
            for place, one in enumerate(tasks):
                held = min(1.0, others) if place == 0 else one.share
                wait_s = 0.75 * one.memory_s + 0.25 * (one.fixed_s + one.fill_s)
                busy.append(slow * (one.work_s + held * wait_s))
                hosts.append(one.host_s)
                gpus.append(one.gpu_s(slow, 1.0))
            (c,) = stretch_arrays(16.0, *(np.array([row]) for row in (busy, hosts, gpus)))
            assert c == pytest.approx(stretches(TURNS, tasks, slow, 1.0)[0], rel=1e-11)


def test_compiled():
    """Compiled work has the bits of the plain form."""
    power = Power(idle_w=50.0, dynamic_w=200.0, memory=0.3, knee_mhz=500.0, v_min=0.5, memory_knee_mhz=0.0)
    rng = np.random.default_rng(2)
    for count in (1, 2, 3, 5):
        for _ in range(40):
            tasks = [
                task(Timing(*rng.uniform(1e-4, 0.01, 4), host_s=rng.uniform(0, 0.02)), 2, rng.uniform(0.1, 1.0))
                for _ in range(count)
            ]
            parts, slowdowns = resident_parts(tasks), (rng.uniform(1, 4), rng.uniform(1, 2))
            turns = common_stretch(TURNS, parts, *slowdowns)
            times_s = [one.time_s(*slowdowns, turns) for one in tasks]
            assert crowded_times_s(parts, turns, *slowdowns).tolist() == times_s
            done = crowding.work_done(parts, np.array(times_s), power.memory, *slowdowns)
            assert done == work_done(power, tasks, times_s, *slowdowns)
