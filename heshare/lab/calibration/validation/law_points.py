"""Left-out points of the laws: power of saturated and limited GPUs, grids of MPS percentages, and language models."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from heshare.devices.language_models import FITTED_ON
from heshare.lab.calibration import grid_fit, language_fit
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.measurements import records
from heshare.lab.calibration.power import load_fit, voltage_fit
from heshare.lab.calibration.validation.points import LeftOutPoint, points
from heshare.world import catalogue

LANGUAGE = {
    "time": "H100 decode step, a language model left out",
    "step": "H100 mean step with prompts, a language model left out",
    "power": "H100 serving power, a language model left out",
    "joules": "H100 energy of a token, a language model left out",
}
"""Test of language models by quantity of a row (`language_fit.QUANTITIES`)."""
TARGETS = {
    "A100 saturated power, a model left out": (10.0, 18.0),
    "H100 saturated power, a model left out": (10.0, 18.0),
    "PCIe throughput under a power limit, a submission left out": (7.0, 12.0),
    "A100 saved by the best clock, a code left out, points": (5.0, 10.0),
    "V100 saved by the best clock, a code left out, points": (5.0, 10.0),
    **{
        f"{gpu} under MPS, {what}, a network left out": target
        for gpu in grid_fit.GPUS
        for what, target in (("time", (12.0, 25.0)), ("power", (9.0, 20.0)), ("n processes over one", (8.0, 18.0)))
    },
    LANGUAGE["time"]: (15.0, 30.0),
    LANGUAGE["step"]: (15.0, 30.0),
    LANGUAGE["power"]: (12.0, 25.0),
    LANGUAGE["joules"]: (15.0, 30.0),
}
"""Test: largest acceptable (mean, 90th percentile) of the absolute error, %."""


def saturated_power(gpu: str, _: Calibration) -> Iterator[LeftOutPoint]:
    """Yield the power of diffusion models, their work from the times, clock and dynamic power from the other models."""
    rows, curve = load_fit.saturated_rows(gpu), voltage_fit.voltage_curve("A100")
    test = f"{gpu} saturated power, a model left out"
    for model, part in rows.groupby("model", sort=True):
        fitted = load_fit.fit_saturated(gpu, curve, without=str(model))
        modelled_w = load_fit.modelled_w(gpu, part.load.to_numpy(float), curve, *fitted)
        settings = (f"{row.setting} b{row.batch_size:.0f}" for row in records(part))
        values = part.power_w.to_numpy(float), modelled_w, load_fit.FITTED
        yield from points(test, gpu, str(model), settings, "W", *values, str(part.kind.iloc[0]), "fp16", "eager")


def limited_throughput(test: str, column: str, calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield throughput under a limit over that without, from a fit without the rows of one value of `column`."""
    rows, curve = voltage_fit.limit_rows(), voltage_fit.voltage_curve("A100")
    for name, part in rows.groupby(column, sort=True):
        fitted = voltage_fit.BusyPower(rows[rows[column] != name], curve)
        modelled = voltage_fit.throughput_left(part, fitted.busy_w(part), curve)
        for row, ratio in zip(records(part), modelled, strict=True):
            setting = f"{row.submission} {row.limit_w} of {row.default_w:.0f} W"
            uncertainty = calibration.constants.spreads.limit * math.log(row.default_w / row.limit_w)
            values = float(row.rate), float(ratio), uncertainty
            yield LeftOutPoint(test, row.gpu, row.benchmark, setting, "1", *values, str(row.kind), "", "tensorrt")


def clock_savings(gpu: str, _: Calibration) -> Iterator[LeftOutPoint]:
    """Yield what the best clock of a code saves, its power from the other codes' curve and its own top clock.

    Errors are in points: measured is 1, and modelled 1 and the difference of the two savings.
    """
    test, idle_w = f"{gpu} saved by the best clock, a code left out, points", catalogue.gpu(gpu).idle_w
    for code, rows in voltage_fit.sweep_rows(gpu).groupby("application", sort=True):
        curve = voltage_fit.voltage_curve(gpu, without=str(code))
        measured = voltage_fit.best_saving(rows, rows.power_w.to_numpy(float))
        modelled = voltage_fit.best_saving(rows, voltage_fit.modelled_w(rows, curve, idle_w))
        setting = f"{100 * measured:.1f} % measured, {100 * modelled:.1f} % modelled"
        yield LeftOutPoint(test, gpu, str(code), setting, "1", 1.0, 1.0 + modelled - measured, kind="code")


def network_left_out(gpu: str, calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times, power and throughput of n processes over that of one, each by fits without the network.

    The FP32 times of a network of Table IV come from other records, those of the others from their features alone.
    """
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


def left_out_models(quantity: str, calibration: Calibration) -> Iterator[LeftOutPoint]:
    power, rows = calibration.fitted.power[FITTED_ON], language_fit.server_rows()
    for model, law in language_fit.left_out_laws(power).items():
        spreads = {"power": law.power_spread, "joules": math.hypot(law.time_spread, law.power_spread)}
        own = rows.of(model)
        values = rows.measured[quantity][own], language_fit.predicted(law, power, rows)[quantity][own]
        settings, unit = np.array(rows.settings)[own].tolist(), language_fit.QUANTITIES[quantity]
        about = LANGUAGE[quantity], FITTED_ON, model, settings, unit
        yield from points(*about, *values, spreads.get(quantity, law.time_spread), "decode", "fp16", "eager")


POWER_TESTS = (
    partial(saturated_power, "A100"),
    partial(saturated_power, "H100"),
    partial(limited_throughput, "PCIe throughput under a power limit, a submission left out", "group"),
    partial(limited_throughput, "PCIe throughput under a power limit, a benchmark left out", "benchmark"),
    partial(clock_savings, "A100"),
    partial(clock_savings, "V100"),
)
GRID_TESTS = tuple(partial(network_left_out, gpu) for gpu in grid_fit.GPUS)
LANGUAGE_TESTS = tuple(partial(left_out_models, quantity) for quantity in LANGUAGE)
"""The tests, each in the order of `errors.csv`."""
