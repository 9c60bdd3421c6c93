"""Left-out points of the grid of MPS percentages: times, power and gain of many processes of a network not fitted.

The FP32 times of a network of Table IV come from other records, those of the others from their features alone.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from heshare.lab.calibration import grid_fit
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.validation.points import LeftOutPoint, points

TARGETS = {
    f"{gpu} under MPS, {what}, a network left out": target
    for gpu in grid_fit.GPUS
    for what, target in (("time", (12.0, 25.0)), ("power", (9.0, 20.0)), ("n processes over one", (8.0, 18.0)))
}
"""Test: largest acceptable (mean, 90th percentile) of the absolute error, %."""


def network_left_out(gpu: str, calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times, power and throughput of n processes over that of one, each by fits without the network."""
    constants, about = calibration.constants, {"kind": "cnn", "precision": "fp16", "engine": "eager"}
    load, half = constants.loads[gpu, "cnn", "fp16"], constants.half[gpu, "eager", "cnn"]
    test = f"{gpu} under MPS, {{}}, a network left out".format
    for name, model in grid_fit.networks().items():
        rows, full = grid_fit.grid_rows(gpu, name), grid_fit.full_timing(constants, gpu, model)
        fitted = grid_fit.half_without(constants, gpu, name)
        timing, time_s = fitted.timing(full), grid_fit.half_s(constants, rows, full, fitted)
        others = [other for other in grid_fit.networks() if other != name]
        energy = grid_fit.fit_energy(gpu, calibration.grid, constants.power[gpu].clock_w, others)
        power_w = energy.power_w(rows, timing, time_s)
        spread = math.hypot(half.uncertainty, full.total_uncertainty)
        power_spread = np.hypot(load.uncertainty, spread * (1.0 - grid_fit.held_w(gpu) / power_w))
        keys = list(zip(rows.batch.tolist(), rows.share.tolist(), strict=True))
        settings = [
            f"{count:.0f} x b{batch:.0f} @{100 * share:.0f}"
            for count, (batch, share) in zip(rows.processes, keys, strict=True)
        ]
        yield from points(test("time"), gpu, name, settings, "s", rows.time_s, time_s, spread, **about)
        yield from points(test("power"), gpu, name, settings, "W", rows.power_w, power_w, power_spread, **about)
        one = {key: place for place, key in enumerate(keys) if rows.processes[place] == 1}
        many = [place for place, key in enumerate(keys) if rows.processes[place] > 1 and key in one]
        alone, settings = [one[keys[place]] for place in many], [settings[place] for place in many]
        measured, modelled = (rows.processes[many] * each[alone] / each[many] for each in (rows.time_s, time_s))
        yield from points(test("n processes over one"), gpu, name, settings, "1", measured, modelled, np.nan, **about)


TESTS = tuple(partial(network_left_out, gpu) for gpu in grid_fit.GPUS)
"""The tests, in the order of `errors.csv`."""
