"""The family of T4 power curves that the public record allows."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from heshare.devices.calibration.cells import clock_cell
from heshare.devices.calibration.fit import T4_FREE_MHZ, t4_power
from heshare.devices.constants import default
from heshare.devices.model import co_run
from heshare.devices.power import clock_under
from heshare.devices.timing import fold
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

T4 = catalogue.gpu("T4")


@pytest.mark.parametrize("idle_w", [15.0, 20.0, 27.0])
@pytest.mark.parametrize("v_min", [0.72, 0.80, 0.88])
def test_every_curve_settles_where_the_card_did(idle_w: float, v_min: float):
    power = t4_power(0.64, idle_w, v_min)
    parts = [fold(clock_cell().timing, 8, 1.0)]
    assert clock_under(power, parts, 70.0, 1590.0, 1590.0) == pytest.approx(T4_FREE_MHZ, rel=1e-6)


def test_a_curve_can_be_put_in_place():
    known = default()
    other = known.with_power("T4", **asdict(t4_power(known.power["T4"].memory, 15.0, 0.72)))
    heavy = [Resident(Workload("vgg19", 16))]
    usual, varied = (co_run(T4, heavy, 585, constants=one).power_w for one in (known, other))
    assert varied < usual < 70
    assert known.power["T4"].idle_w == 20.0
