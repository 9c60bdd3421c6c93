"""Left-out points of the grid of MPS percentages: times, power and gain of many processes of a network not fitted.

The FP32 times of a network of Table IV come from other records, those of the others from their features alone.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from heshare.lab.calibration import grid_fit
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.grid_fit import GridRows
from heshare.lab.calibration.validation.points import LeftOutPoint
from heshare.shared.arrays import FloatArray

TARGETS = {
    f"{gpu} under MPS, {what}, a network left out": target
    for gpu in grid_fit.GPUS
    for what, target in (("time", (12.0, 25.0)), ("power", (9.0, 20.0)), ("n processes over one", (8.0, 18.0)))
}
"""Test: largest acceptable (mean, 90th percentile) of the absolute error, %."""


def network_left_out(gpu: str, calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times, power and throughput of n processes over that of one, each by fits without the network."""
    constants = calibration.constants
    load = constants.loads[gpu, "cnn", "fp16"]
    half = constants.half[gpu, "eager", "cnn"]
    for name, model in grid_fit.networks().items():
        rows, full = grid_fit.grid_rows(gpu, name), grid_fit.full_timing(constants, gpu, model)
        fitted = grid_fit.half_without(constants, gpu, name)
        timing, time_s = fitted.timing(full), grid_fit.half_s(constants, rows, full, fitted)
        others = [other for other in grid_fit.networks() if other != name]
        energy = grid_fit.fit_energy(gpu, calibration.grid, constants.power[gpu].clock_w, others)
        power_w = energy.power_w(rows, timing, time_s)
        spread = math.hypot(half.uncertainty, full.total_uncertainty)
        above = 1.0 - grid_fit.held_w(gpu) / power_w
        power_spread = np.hypot(load.uncertainty, spread * above)
        point = partial(_point, gpu, name, rows)
        yield from point("time", "s", rows.time_s, time_s, np.full(len(time_s), spread))
        yield from point("power", "W", rows.power_w, power_w, power_spread)
        yield from _gains(gpu, name, rows, time_s)


def _point(
    gpu: str,
    name: str,
    rows: GridRows,
    what: str,
    unit: str,
    measured: FloatArray,
    modelled: FloatArray,
    spread: FloatArray,
) -> Iterator[LeftOutPoint]:
    test = f"{gpu} under MPS, {what}, a network left out"
    for place in range(len(measured)):
        setting = f"{rows.processes[place]:.0f} x b{rows.batch[place]:.0f} @{100 * rows.share[place]:.0f}"
        values = float(measured[place]), float(modelled[place]), float(spread[place])
        yield LeftOutPoint(test, gpu, name, setting, unit, *values, "cnn", "fp16", "eager")


def _gains(gpu: str, name: str, rows: GridRows, time_s: FloatArray) -> Iterator[LeftOutPoint]:
    """Yield throughput of many processes over that of one with the same batch size and share."""
    settings = zip(rows.batch.tolist(), rows.share.tolist(), strict=True)
    one = {key: place for place, key in enumerate(settings) if rows.processes[place] == 1}
    for place, key in enumerate(zip(rows.batch.tolist(), rows.share.tolist(), strict=True)):
        if rows.processes[place] > 1 and key in one:
            alone = one[key]
            measured, modelled = (
                rows.processes[place] * seconds[alone] / seconds[place] for seconds in (rows.time_s, time_s)
            )
            yield LeftOutPoint(
                f"{gpu} under MPS, n processes over one, a network left out",
                gpu,
                name,
                f"{rows.processes[place]:.0f} x b{key[0]:.0f} @{100 * key[1]:.0f}",
                "1",
                float(measured),
                float(modelled),
                kind="cnn",
                precision="fp16",
                engine="eager",
            )


TESTS = tuple(partial(network_left_out, gpu) for gpu in grid_fit.GPUS)
"""The tests, in the order of `errors.csv`."""
