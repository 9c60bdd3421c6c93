"""The family of T4 power curves that the public record allows."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from heshare.calibration.power_fit import T4_CAPPED_MHZ, t4_power_curve
from heshare.calibration.timing_constants import fit_t4_clocks
from heshare.devices.board_power import capped_clock_mhz
from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.devices.iteration_time import iteration_at
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

T4 = catalogue.gpu("T4")


@pytest.mark.parametrize("idle_w", [20.0, 26.0, 31.0])
@pytest.mark.parametrize("v_min", [0.72, 0.80, 0.88])
def test_t4_power_curve_reaches_the_measured_clock_at_the_power_limit(idle_w: float, v_min: float):
    power = t4_power_curve(0.64, idle_w, v_min)
    parts = [iteration_at(fit_t4_clocks().timing, 8, 1.0)]
    assert capped_clock_mhz(power, parts, 70.0, 1590.0, 1590.0) == pytest.approx(T4_CAPPED_MHZ, rel=1e-6)


def test_with_power_replaces_the_t4_curve():
    constants = default()
    varied = constants.with_power("T4", **asdict(t4_power_curve(constants.power["T4"].memory, 15.0, 0.72)))
    heavy = [Resident(Workload("vgg19", 16))]
    shipped_w, varied_w = (co_run(T4, heavy, 585, constants=model).power_w for model in (constants, varied))
    assert varied_w < shipped_w < 70
    assert constants.power["T4"].idle_w == 28.0
