"""Board power and the clock that a limit leaves: by hand, its growth with the clock, and the array form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from support.strategies import any_residents

from heshare.devices import board_power
from heshare.devices.constants import Contention, Power, card_row, default
from heshare.devices.contention import interference, times_s
from heshare.devices.device_model import co_run
from heshare.devices.iteration_time import Iteration, iteration_of, resident_rows
from heshare.world import catalogue
from heshare.world.gpu import Gpu

GPU = Gpu("G", "G", "toy", 10, 640, 1000.0, 100.0, 1.0, 1.0, 200.0, 50.0, (500, 750, 1000))
POWER = Power(50.0, 200.0, 0.5, 500.0, 0.6, 700.0, clock_w=20.0, idle_clock_w=8.0)
TURNS = Contention(0.05, 0.1)
PAIR = [
    Iteration(0.001, 0.002, 0.008, 0.001, 0.5, 0.0, 4, intensity=1.2, extra_s=0.001),
    Iteration(0.002, 0.001, 0.004, 0.003, 0.4, 0.012, 1, intensity=0.5),
]
CARD = card_row(POWER, TURNS, GPU)
CLOCKS_MHZ = np.linspace(100.0, 1000.0, 46)


def drawn_w(tasks: list[Iteration], sm_mhz: float, power: Power = POWER) -> float:
    rows, card = resident_rows(tasks), card_row(power, TURNS, GPU)
    slow, stalled = 1000.0 / sm_mhz, board_power.memory_slowdown(card, sm_mhz)
    taken_s = times_s(rows, card, interference(rows, card), slow, stalled)
    return float(board_power.power_w(rows, card, taken_s, sm_mhz))


@pytest.mark.parametrize("sm_mhz", [1000.0, 800.0, 550.0, 400.0])
def test_by_hand(sm_mhz: float):
    """Power is idle power, and busy clocks, SMs and bytes with the voltage and the clock."""
    taken_s = (0.03, 0.02)
    slow, stalled = 1000.0 / sm_mhz, max(1.0, 700.0 / sm_mhz)
    volts = 0.6 + 0.4 * max(0.0, sm_mhz - 500.0) / 500.0
    running = work = extra = 0.0
    for task, time_s in zip(PAIR, taken_s, strict=True):
        filled_s = ((task.batch_s / task.share) ** 1.5 + task.fill_s**1.5) ** (2 / 3)
        running += (task.fixed_s + stalled * task.memory_s + slow * filled_s) / time_s
        work += task.intensity * slow * (task.batch_s + 0.5 * task.memory_s) / time_s
        extra += slow * task.extra_s / time_s
    busy_w = 8.0 + 20.0 * min(1.0, running) + 200.0 * (min(work, 1.2) + extra)
    expected_w = 50.0 + volts**2 * sm_mhz / 1000.0 * busy_w
    found_w = board_power.power_w(resident_rows(PAIR), CARD, np.array(taken_s), sm_mhz)
    assert found_w == pytest.approx(expected_w, rel=1e-12)


def test_grows_with_clock():
    """Voltage and power grow with the clock; memory time never does."""
    for tasks in (PAIR[:1], PAIR[1:], PAIR, PAIR * 3):
        assert (np.diff([drawn_w(tasks, mhz) for mhz in CLOCKS_MHZ]) > 0.0).all()
    volts = np.array([board_power.voltage(mhz, 500.0, 0.6, 1000.0) for mhz in CLOCKS_MHZ])
    assert (np.diff(volts) >= 0.0).all()
    assert (volts[0], volts[-1]) == (0.6, 1.0)
    stalled = [board_power.memory_slowdown(CARD, mhz) for mhz in CLOCKS_MHZ]
    assert (np.diff(stalled) <= 0.0).all()
    assert stalled[-1] == 1.0


def test_processes_saturate():
    """n equal processes draw less than n times one, and no more than full SMs."""
    one = replace(PAIR[0], extra_s=0.0)
    above_w = [drawn_w([one] * count, 1000.0) - 58.0 for count in (1, 2, 4, 8)]
    assert above_w[0] < above_w[1] < 2.0 * above_w[0]
    assert max(above_w) <= 20.0 + 1.2 * 200.0


def test_intensity():
    """Dynamic power goes with the intensity."""
    bare = replace(POWER, clock_w=0.0, idle_clock_w=0.0)
    light, dense = (drawn_w([replace(PAIR[0], intensity=each, extra_s=0.0)], 1000.0, bare) for each in (0.4, 1.0))
    assert (dense - 50.0) / (light - 50.0) == pytest.approx(2.5)


@pytest.mark.parametrize("cap_w", [80.0, 110.0, 150.0])
def test_clock_of_limit(cap_w: float):
    """The clock that a limit leaves is the one at which the power is the limit, and another solver finds it."""
    tasks = PAIR * 2
    expected_mhz = brentq(lambda mhz: drawn_w(tasks, mhz) - cap_w, 1.0, 1000.0, xtol=1e-10)
    rows = resident_rows(tasks)
    mhz, power_w, taken_s = board_power.solve(rows, CARD, 1000.0, cap_w)
    assert mhz == pytest.approx(expected_mhz, rel=1e-9)
    assert power_w == pytest.approx(cap_w, rel=1e-9)
    assert drawn_w(tasks, mhz) == pytest.approx(cap_w, rel=1e-6)
    stalled = board_power.memory_slowdown(CARD, mhz)
    assert list(taken_s) == list(times_s(rows, CARD, interference(rows, CARD), 1000.0 / mhz, stalled))

    factors = interference(rows, CARD)
    again = board_power.reached(
        lambda at: list(times_s(rows, CARD, factors, 1000.0 / at, board_power.memory_slowdown(CARD, at))),
        rows, CARD, 1000.0, cap_w,
    )  # fmt: skip
    assert again[0] == pytest.approx(mhz, rel=1e-8)
    assert again[2] == pytest.approx(list(taken_s), rel=1e-8)


def test_limit_out_of_reach():
    """A limit above the demand changes nothing; one that no clock keeps leaves the lowest."""
    rows = resident_rows(PAIR)
    assert board_power.solve(rows, CARD, 750.0, 1e6)[0] == 750.0
    assert board_power.solve(rows, CARD, 1000.0, 40.0)[0] <= 1.0


def test_held_clock():
    """A held clock adds to idle power as the voltage and the clock do."""
    assert board_power.idle_power_w(POWER, 1000.0, 1000.0) == 58.0
    assert board_power.idle_power_w(POWER, 500.0, 1000.0) == pytest.approx(50.0 + 8.0 * 0.6**2 * 0.5)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(["T4", "V100-SXM2", "A100", "H100"]),
                  st.lists(any_residents(64, ["mixed", "fp16"]), min_size=1, max_size=4),
                  st.floats(0.1, 1.5), st.integers(0, 10_000)),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_arrays(questions: list):
    """The array form gives what `co_run` gives, set by set."""
    constants, rows, starts, cards, requests, caps, expected = default(), [], [0], [], [], [], []
    for name, residents, part, clock in questions:
        gpu = catalogue.gpu(name)
        rows.append(resident_rows([iteration_of(constants, name, one) for one in residents]))
        starts.append(starts[-1] + len(residents))
        cards.append(card_row(constants.power[name], constants.contention[name], gpu))
        requests.append(gpu.clocks_mhz[clock % len(gpu.clocks_mhz)])
        idle_w = constants.power[name].idle_w
        caps.append(idle_w + part * (gpu.tdp_w - idle_w))
        answer = co_run(gpu, residents, requests[-1], power_cap_w=caps[-1])
        expected.append((answer.tasks[0].time_s, answer.power_w, answer.sm_mhz))
    found = board_power.solve_sets(
        np.vstack(rows), np.array(starts), np.array(cards), np.arange(len(cards)), np.array(requests, dtype=float),
        np.array(caps),
    )  # fmt: skip
    assert found == pytest.approx(np.array(expected), rel=1e-12)
