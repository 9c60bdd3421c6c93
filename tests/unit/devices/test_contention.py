"""Turns on the SMs and interference: the root by a slow implementation of the formulas, and their laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from heshare.devices.constants import Contention, Power, card_row
from heshare.devices.contention import bandwidth_waits_s, interference, times_s
from heshare.devices.iteration_time import Iteration, resident_rows
from heshare.world.gpu import Gpu

GPU = Gpu("G", "G", "toy", 10, 640, 1000.0, 100.0, 1.0, 1.0, 200.0, 50.0, (500, 750, 1000))
POWER = Power(50.0, 200.0, 0.5, 500.0, 0.5, 600.0, clock_w=20.0)
TURNS = Contention(steady=0.05, by_share=0.1, hold_memory=0.4, hold_idle=0.2, sharpness=12.0)
ALONE = Contention(0.0, 0.0, hold_memory=0.0, hold_idle=0.0)

DENSE = Iteration(0.001, 0.002, 0.008, 0.001, 1.0, 0.0, 4)
HOSTED = Iteration(0.002, 0.001, 0.004, 0.003, 0.6, 0.012, 1)
TRAINED = Iteration(0.0, 0.003, 0.006, 0.0, 0.3, 0.002, 8, serial_s=0.004)
SETS = [
    [DENSE, DENSE],
    [DENSE, HOSTED],
    [HOSTED, HOSTED, HOSTED, TRAINED],
    [TRAINED, DENSE, HOSTED],
    [HOSTED, HOSTED],
]


def found_s(contention: Contention, tasks: list[Iteration], slow: float = 1.0, stalled: float = 1.0) -> list[float]:
    rows, card = resident_rows(tasks), card_row(POWER, contention, GPU)
    return list(times_s(rows, card, interference(rows, card), slow, stalled))


def gpu_s(task: Iteration, slow: float, stalled: float) -> float:
    filled_s = ((task.batch_s / task.share) ** 1.5 + task.fill_s**1.5) ** (1 / 1.5)
    return task.fixed_s + stalled * task.memory_s + slow * filled_s


def hidden_s(task: Iteration, part_s: float) -> float:
    return task.serial_s + (task.host_s**8 + part_s**8) ** (1 / 8)


def plain_s(law: Contention, tasks: list[Iteration], slow: float, stalled: float) -> list[float]:
    """The formulas of `contention`, one resident after the other."""
    found = []
    for own, task in enumerate(tasks):
        others = [one for place, one in enumerate(tasks) if place != own]
        factor = 1.0 + sum(
            gpu_s(one, 1.0, 1.0) / hidden_s(one, gpu_s(one, 1.0, 1.0)) * (law.steady + law.by_share * one.share)
            for one in others
        )

        def excess(c: float, own: int = own, others: list[Iteration] = others) -> float:
            rhos = []
            for place, one in enumerate(tasks):
                held = min(1.0, sum(other.share for other in others)) if place == own else one.share
                wait_s = law.hold_memory * one.memory_s + law.hold_idle * (one.fixed_s + one.fill_s)
                time_s = hidden_s(one, c * gpu_s(one, slow, stalled))
                rhos.append(slow * (one.batch_s + held * wait_s) / time_s)
            power = law.sharpness
            return 1.0 - c**-power - (sum(rhos) ** power - sum(rho**power for rho in rhos))

        c = 1.0 if excess(1.0) >= 0.0 else float(brentq(excess, 1.0, 100.0, xtol=1e-14, rtol=1e-14))
        found.append(hidden_s(task, c * factor * gpu_s(task, slow, stalled)))
    return found


@pytest.mark.parametrize("tasks", SETS, ids=range(len(SETS)))
@pytest.mark.parametrize(("slow", "stalled"), [(1.0, 1.0), (2.0, 1.2)])
def test_slow_form(tasks: list[Iteration], slow: float, stalled: float):
    """Times equal those of a slow implementation of the formulas."""
    assert found_s(TURNS, tasks, slow, stalled) == pytest.approx(plain_s(TURNS, tasks, slow, stalled), rel=1e-9)


def test_alone():
    """A task alone takes its own time, whatever the contention."""
    for task in (DENSE, HOSTED, TRAINED):
        assert found_s(TURNS, [task]) == [task.time_s(1.0, 1.0)]


def test_even_turns():
    """Processes that need the whole GPU share it evenly."""
    pure = Iteration(0.0, 0.0, 0.01, 0.0, 1.0, 0.0, 1)
    for count in (2, 5):
        expected_s = 0.01 * (1 + count**12 - count) ** (1 / 12)
        assert found_s(ALONE, [pure] * count) == pytest.approx([expected_s] * count, rel=1e-12)


def test_hosts_fill_gpu():
    """Tasks that wait for their hosts fill the GPU before anybody is slowed down."""
    task = Iteration(0.0, 0.0, 0.002, 0.0, 1.0, 0.01, 1)
    for count, at_least_s in ((2, 0.01), (3, 0.01), (8, 0.016)):
        (time_s, *_) = found_s(ALONE, [task] * count)
        assert at_least_s * (1 - 1e-9) <= time_s < 1.03 * at_least_s


def test_side_by_side():
    """Tasks whose shares fit side by side hardly slow one another down without interference."""
    pair = [Iteration(0.001, 0.002, 0.003, 0.0, share, 0.0, 1) for share in (0.3, 0.7)]
    alone_s = [task.time_s(1.0, 1.0) for task in pair]
    assert found_s(ALONE, pair) == pytest.approx(alone_s, rel=0.03)


def test_equal_residents():
    """Equal residents have equal times to the last bit."""
    times = found_s(TURNS, [HOSTED, TRAINED, HOSTED, DENSE, HOSTED])
    assert times[0] == times[2] == times[4]


def test_idle_co_runner():
    """A co-runner that hardly uses the GPU hardly interferes."""
    waiting = Iteration(0.0, 0.0, 1e-6, 0.0, 1.0, 1.0, 1)
    beside_s, _ = found_s(TURNS, [DENSE, waiting])
    assert beside_s == pytest.approx(DENSE.time_s(1.0, 1.0), rel=1e-4)


def test_far_constants():
    """Constants far off still give finite times."""
    extreme = [Iteration(1e-9, 1e2, 1e3, 1e-9, 0.01, 1e-9, 1), Iteration(1e2, 1e-9, 1e-9, 1e2, 1.0, 1e3, 1)]
    assert all(0.0 < time_s < math.inf for time_s in found_s(TURNS, extreme * 3, 50.0, 20.0))


def test_bandwidth():
    """Residents wait until they use the whole bandwidth together, and only beside a language model."""
    reading = Iteration(0.0, 0.008, 0.001, 0.0, 1.0, 0.0, 1, bandwidth_s=0.008)
    pair = [reading, DENSE]
    waits_s = bandwidth_waits_s(pair)
    parts_s = (0.008, DENSE.memory_s)
    used = sum(
        part_s / (task.time_s(1.0, 1.0) + wait_s) for part_s, task, wait_s in zip(parts_s, pair, waits_s, strict=True)
    )
    assert used == pytest.approx(1.0, rel=1e-9)
    assert np.divide(waits_s, parts_s) == pytest.approx([waits_s[0] / 0.008] * 2)
    assert bandwidth_waits_s([reading]) == [0.0]
    assert bandwidth_waits_s([DENSE, DENSE]) == [0.0, 0.0]
