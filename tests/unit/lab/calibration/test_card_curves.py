"""Voltage curve, memory knee and idle power of every GPU, and the voltage curves of clock sweeps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.devices.board_power import voltage
from heshare.devices.constants import default
from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.calibration import card_curves, voltage_fit
from heshare.lab.calibration.card_curves import RangedValue
from heshare.lab.calibration.measurements import table
from heshare.world import catalogue
from heshare.world.workload import Workload


@pytest.mark.parametrize("name", catalogue.gpus())
def test_ranges(name: str):
    """Every constant of a GPU lies within its range and names its source, and the shipped one is it."""
    gpu = catalogue.gpu(name)
    found = card_curves.card_curves(gpu)
    for ranged in found.values():
        assert ranged.low <= ranged.value <= ranged.high
        assert ranged.source
    assert 0.0 < found["v_min"].value < 1.0
    assert found["knee_mhz"].value < gpu.max_mhz
    shipped = default().power[name]
    assert [getattr(shipped, key) for key in found] == pytest.approx([each.value for each in found.values()], rel=1e-3)
    assert card_curves.power_of(found).dynamic_w == 0.0


def test_readings():
    """A reading of idle power stands for the catalogue's value."""
    rows = table("idle_power").query("state == 'idle'")
    for row in rows.itertuples():
        if row.gpu in catalogue.gpus():
            found = card_curves.card_curves(catalogue.gpu(row.gpu))["idle_w"]
            assert (found.value, found.low, found.high) == (row.value, row.low, row.high)


def test_ranged_value():
    """A range is relative to its value, on both sides or by a factor."""
    within, by_factor = RangedValue.within(10.0, 0.2, "s"), RangedValue.by_factor(10.0, 0.1, "s")
    assert (within.low, within.high) == (8.0, 12.0)
    assert by_factor.low * by_factor.high == pytest.approx(100.0)


def test_longer_curve():
    """The V100-SXM2 has the V100's voltage at every clock, relative to the one at its own top clock."""
    shorter, longer = catalogue.gpu("V100"), catalogue.gpu("V100-SXM2")
    power = {gpu.name: card_curves.power_of(card_curves.card_curves(gpu)) for gpu in (shorter, longer)}

    def volts(gpu, mhz):
        own = power[gpu.name]
        return voltage(mhz, own.knee_mhz, own.v_min, gpu.max_mhz)

    for mhz in (600.0, 1000.0, 1200.0, float(shorter.max_mhz)):
        expected = volts(shorter, mhz) * volts(longer, float(shorter.max_mhz))
        assert volts(longer, mhz) == pytest.approx(expected, rel=1e-6)


def test_memory_knee(monkeypatch):
    """The knee of made-up times is found."""
    clocks = np.arange(525, 1411, 45, dtype=float)
    parts = [
        pd.DataFrame({"gpu": "A100", "application": name, "sm_mhz": clocks,
                      "time_s": work * 1410 / clocks + memory * np.maximum(1.0, 800 / clocks) + 0.1})
        for name, work, memory in (("a", 1.0, 0.2), ("b", 0.1, 2.0))
    ]  # fmt: skip
    monkeypatch.setattr(card_curves, "sweep", lambda gpu: pd.concat(parts))
    assert card_curves.memory_knee_mhz.__wrapped__("A100") == 800


def test_voltage_curve(monkeypatch):
    """The curve of made-up power is found."""
    truth = voltage_fit.VoltageCurve(0.56 + 0.0125 * 10, 0.8, 20.0)
    rows = voltage_fit.sweep_rows("A100")
    idle_w = catalogue.gpu("A100").idle_w
    made_up = rows.assign(power_w=voltage_fit.modelled_w(rows, truth, idle_w))
    own = made_up[made_up.application.isin(list(dict.fromkeys(made_up.application))[:4])]
    monkeypatch.setattr(voltage_fit, "sweep_rows", lambda gpu: own)
    costs, curves = voltage_fit._costs.__wrapped__("A100")
    best = curves[int(np.argmin(costs.sum(axis=0).to_numpy()))]
    assert (best.knee, best.v_min, best.clock_w) == pytest.approx((truth.knee, truth.v_min, truth.clock_w))


@pytest.mark.parametrize("gpu", voltage_fit.TABLES)
def test_sweeps(gpu: str):
    """The curve of each clock sweep fits its powers, within the ranges of curves that fit nearly as well."""
    curve, (knees, v_mins) = voltage_fit.voltage_curve(gpu), voltage_fit.curve_ranges(gpu)
    assert knees[0] <= curve.knee <= knees[1]
    assert v_mins[0] <= curve.v_min <= v_mins[1]
    rows = voltage_fit.sweep_rows(gpu)
    modelled_w = voltage_fit.modelled_w(rows, curve, catalogue.gpu(gpu).idle_w)
    assert np.median(np.abs(modelled_w / rows.power_w - 1.0)) < 0.06
    top = rows.sm_mhz == catalogue.gpu(gpu).max_mhz
    assert modelled_w[top] == pytest.approx(rows.power_w[top].to_numpy(), rel=1e-9)


def test_best_saving():
    """The best saving is by the least energy over that at the top clock."""
    rows = voltage_fit.sweep_rows("A100").head(3).assign(sm_mhz=[500, 900, 1410], time_s=[3.0, 1.5, 1.0])
    assert voltage_fit.best_saving(rows, np.array([100.0, 150.0, 300.0])) == pytest.approx(0.25)


def test_parked_power():
    """Parked power is below idle power and ends with a clock or a task."""
    power = default().power
    t4 = catalogue.gpu("T4")
    device = EmulatedDevice(t4, sleep_w=power["T4"].parked_w)
    assert device.read().power_w == power["T4"].parked_w < power["T4"].idle_w
    device.set_clock(t4.max_mhz)
    assert device.read().power_w == power["T4"].idle_w
    device.set_clock(None)
    device.start(0, Workload("vgg19", 8), 100)
    assert device.read().power_w > power["T4"].idle_w
