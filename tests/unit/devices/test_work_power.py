"""Power of an iteration by the features of its network."""

import pytest

from heshare.devices.board_power import highest_clock_mhz
from heshare.devices.constants import Load
from heshare.devices.iteration_time import FUSED_TRAFFIC, SM_TIME_ONLY, WorkPower, work_power
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.workload import Workload

RATED = Load(intensity=0.1, operations_s=1e-5, traffic_s=2e-3, uncertainty=0.1)


def test_work_power():
    """Work power follows operations and layer outputs."""
    model = catalogue.model("resnet50")
    half, full = (work_power(RATED, Workload("resnet50", 4, precision)) for precision in ("fp16", "fp32"))
    assert half.operations_s == pytest.approx(1e-5 * 4 * model.gflops)
    assert half.working_mb == pytest.approx(4 * 2 * model.activations_m)
    assert half.traffic_s == pytest.approx(2e-3 * 1e-3 * 2 * half.working_mb)
    assert full.traffic_s == pytest.approx(2 * half.traffic_s)
    fused = work_power(RATED, Workload("resnet50", 4, "fp16", "tensorrt"))
    assert fused.traffic_s == pytest.approx(FUSED_TRAFFIC * half.traffic_s)


def test_sm_time_only():
    """Without features or a load class, power goes with SM time."""
    assert work_power(None, Workload("resnet50", 4)) == SM_TIME_ONLY
    assert work_power(RATED, Workload("alexnet", 4)) == SM_TIME_ONLY
    assert work_power(Load(1.5, 0.0, 0.0, 0.1), Workload("alexnet", 4)) == WorkPower(1.5)


def test_limit_too_low():
    """A power limit that no clock keeps is refused."""
    assert highest_clock_mhz(lambda mhz: 40.0 + mhz / 100, 50.0, 1590.0, 1590.0) == pytest.approx(1000.0)
    with pytest.raises(InputError, match="at least 76 W"):
        highest_clock_mhz(lambda mhz: 76.0 + mhz / 100, 50.0, 1590.0, 1590.0)
