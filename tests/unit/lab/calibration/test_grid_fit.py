"""Fit of the grid of MPS percentages: times of many processes, and power by operations, traffic and clocks."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.calibration import grid_fit
from heshare.lab.calibration.copies_fit import copies_s
from heshare.lab.calibration.time_fit import constants_of
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload


@cache
def fitted() -> dict:
    return grid_fit.fit_grid_timings(default().contention["A100"])


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_copies(copies: int):
    """The fit computes times of copies as the device model does."""
    gpu, name, batch, pct = catalogue.gpu("A100-40GB"), "resnet50", 16, 20
    timing = default().half_timing[gpu.name, "eager", name]
    residents = [Resident(Workload(name, batch, "fp16"), pct)] * copies
    modelled = copies_s(
        constants_of(timing)[None],
        np.array([float(batch)]),
        np.array([float(copies)]),
        np.array([timing.kernels]),
        default().contention["A100"],
        np.array([pct / 100]),
    )
    assert modelled == pytest.approx(co_run(gpu, residents).tasks[0].time_s, rel=1e-9)


@pytest.mark.slow
def test_fitted_times():
    """The fitted times reproduce the rows within the stated error."""
    for (gpu, _, name), one in fitted().items():
        rows = grid_fit.grid_rows(gpu, name)
        modelled_s = rows.modelled_s(constants_of(one.timing), default().contention["A100"])
        assert np.abs(modelled_s / rows.time_s - 1).mean() < one.timing.uncertainty


def test_fit_energy():
    """The fit of power recovers the energies of made-up rows."""
    gpu = "A100-40GB"
    known = grid_fit.WorkEnergy(clock_w=20.0, operations_j=2.0e-3, traffic_j=0.5)
    made = {}
    for name in grid_fit.networks():
        rows = grid_fit.grid_rows(gpu, name)
        power_w = known.power_w(rows, fitted()[gpu, "eager", name].timing, rows.time_s)
        made[name] = replace(rows, power_w=power_w)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_fit, "grid_rows", lambda _, name: made[name])
        free = grid_fit.fit_energy(gpu, fitted(), None)
        given = grid_fit.fit_energy(gpu, fitted(), 20.0)
    for found in (free, given):
        assert found.clock_w == pytest.approx(20.0, rel=1e-3)
        assert found.operations_j == pytest.approx(2.0e-3, rel=1e-3)
        assert found.traffic_j == pytest.approx(0.5, rel=1e-3)
