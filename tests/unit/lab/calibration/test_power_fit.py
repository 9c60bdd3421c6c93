"""Fits of power: T4 curves, voltage curves, saturated GPUs, power limits, and the two idle states."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.board_power import capped_clock_mhz
from heshare.devices.constants import default
from heshare.devices.emulated_device import EmulatedDevice
from heshare.devices.iteration_time import iteration_at
from heshare.lab.calibration.power import load_fit, voltage_fit
from heshare.lab.calibration.power_fit import T4_CAPPED_MHZ, t4_power_curve
from heshare.lab.calibration.timing_constants import fit_t4_clocks
from heshare.world import catalogue
from heshare.world.workload import Workload


@pytest.mark.parametrize(("idle_w", "v_min"), [(20.0, 0.72), (26.0, 0.80), (31.0, 0.88)])
def test_t4_curve(idle_w: float, v_min: float):
    """The curve reaches the measured clock at the power limit."""
    power = t4_power_curve(0.64, idle_w, v_min)
    parts = [iteration_at(fit_t4_clocks().timing, 8, 1.0)]
    assert capped_clock_mhz(power, parts, 70.0, 1590.0, 1590.0) == pytest.approx(T4_CAPPED_MHZ, rel=1e-6)


def test_best_saving():
    """The best saving is by the least energy over that at the top clock."""
    rows = voltage_fit.sweep_rows("A100").head(3).assign(sm_mhz=[500, 900, 1410], time_s=[3.0, 1.5, 1.0])
    assert voltage_fit.best_saving(rows, np.array([100.0, 150.0, 300.0])) == pytest.approx(0.25)


def test_saturated_power():
    """Saturated power stays below the limit and grows with the load."""
    curve, load = voltage_fit.VoltageCurve(0.8, 0.8, 0.0), np.linspace(0.1, 1.0, 10)
    power_w = load_fit.modelled_w("A100", load, curve, 50.0, 400.0)
    assert (np.diff(power_w) >= 0).all()
    assert power_w[-1] == pytest.approx(load_fit.REGULATED * 400.0)
    # Without a limit in reach, power is idle, clocks and the part of the dynamic power.
    assert load_fit.modelled_w("A100", load, curve, 50.0, 100.0) == pytest.approx(112.0 + 100.0 * load)


def test_clock_left():
    """Half of the power leaves more than half of the clock."""
    curve = voltage_fit.VoltageCurve(0.5, 0.8, 0.0)
    left = voltage_fit.clock_left(np.array([100.0, 200.0, 300.0]), np.full(3, 200.0), curve)
    assert 0.5 < left[0] < 0.8
    assert left[1:].tolist() == [1.0, 1.0]
    assert left[0] * curve.voltage(left[:1])[0] ** 2 == pytest.approx(0.5, rel=1e-2)


def test_parked_power():
    """Parked power is below idle power and ends with a clock or a task."""
    power = default().power
    assert all(0 < each.parked_w <= each.idle_w for each in power.values())
    t4 = catalogue.gpu("T4")
    device = EmulatedDevice(t4, sleep_w=power["T4"].parked_w)
    assert device.read().power_w == power["T4"].parked_w
    device.set_clock(t4.max_mhz)
    assert device.read().power_w == power["T4"].idle_w
    device.set_clock(None)
    device.start(0, Workload("vgg19", 8), 100)
    assert device.read().power_w > power["T4"].idle_w
