"""The fit of the device model: the committed constants, errors on points left out, and fits of made-up data."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from heshare.devices.constants import Contention, Power, Timing, default
from heshare.devices.noise import NoiseModel
from heshare.lab.calibration import calibrate, contention_fit, time_fit
from heshare.lab.calibration.measurements import (
    TimeRows,
    table,
)
from heshare.lab.calibration.power_fit import extend_voltage
from heshare.shared import files
from heshare.world import catalogue


@pytest.fixture(scope="module")
def calibration_errors() -> tuple[pd.DataFrame, pd.DataFrame]:
    return calibrate.calibration_report()


def _rows(text: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(io.StringIO(text))


@pytest.mark.slow
def test_constants_csv_is_the_committed_file(calibration_errors):
    committed = list(_rows(files.data("calibration", "constants.csv").read_text(encoding="utf-8")))
    refitted = list(_rows(calibrate.constants_csv()))
    assert len(committed) == len(refitted)
    for old, new in zip(committed, refitted, strict=True):
        assert [old[key] for key in ("kind", "gpu", "engine", "workload", "name", "unit", "source")] == [
            new[key] for key in ("kind", "gpu", "engine", "workload", "name", "unit", "source")
        ]
        assert float(new["value"]) == pytest.approx(float(old["value"]), rel=2e-2, abs=2e-7)
        assert float(new["low"]) <= float(new["value"]) <= float(new["high"])
        assert new["source"]


def test_constants_cover_every_gpu_engine_and_workload_of_the_catalogue():
    constants = default()
    for gpu in catalogue.gpus():
        assert constants.power[gpu].idle_w == catalogue.gpu(gpu).idle_w
        for model in catalogue.paper_models():
            for engine in ("eager", "tensorrt"):
                assert (gpu, engine, model) in constants.timing


def test_fit_timing_recovers_the_constants_of_made_up_rows():
    truth = Timing(1e-3, 0.1e-3, 0.5e-3, 0.6e-3, fill_s=0.8e-3)
    batch, share = (axis.ravel().astype(float) for axis in np.meshgrid([1, 2, 4, 8, 16, 32], [0.2, 0.5, 1.0]))
    rows = TimeRows(batch, share, np.ones(len(batch)), np.full(len(batch), np.nan))
    rows = TimeRows(batch, share, time_fit.times_s(truth, rows), rows.sm_mhz)
    fitted = time_fit.fit_timing(rows, time_fit.Prior(0.1e-3)).timing
    assert fitted.work_per_sample_s == pytest.approx(truth.work_per_sample_s, rel=0.01)
    assert time_fit.times_s(fitted, rows) == pytest.approx(rows.time_s, rel=0.01)


def test_fit_timing_corrects_for_throttling():
    truth = Timing(0.1e-3, 0.0, 0.1e-3, 1e-3)
    power = Power(20.0, 150.0, 0.0, 1200.0, 0.8, 0.0)
    gpu = time_fit.ThrottledGpu(power, 1590.0, 70.0)
    batch = np.array([1.0, 2, 4, 8, 16])
    rows = TimeRows(batch, np.ones(5), np.ones(5), np.full(5, np.nan))
    rows = TimeRows(batch, np.ones(5), time_fit.times_s(truth, rows, gpu), rows.sm_mhz)
    assert rows.time_s[-1] > 1.3 * time_fit.times_s(truth, rows)[-1]
    fitted = time_fit.fit_timing(rows, time_fit.Prior(1e-6), gpu).timing
    assert fitted.work_per_sample_s == pytest.approx(1e-3, rel=0.05)


def test_fit_contention_recovers_the_constants_of_made_up_pairs():
    pairs = contention_fit.pair_rows()
    truth = Contention(0.05, 5e-6)
    made_up = pairs.assign(time_s=pairs.solo_s * contention_fit.slowdowns(truth, pairs))
    fitted = contention_fit.fit_contention(made_up)
    assert fitted.strength == pytest.approx(truth.strength, rel=1e-3)
    assert fitted.wait_s == pytest.approx(truth.wait_s, rel=1e-3)


def test_extend_voltage_follows_the_straight_line():
    # V(1000) = 1 and V(500) = 0.5 on one line: V(1500) = 1.5
    assert extend_voltage(500, 0.5, 1000, 1500) == pytest.approx((1 / 3, 2 / 3))


def test_default_time_noise_is_the_median_spread_of_the_measured_pairs():
    pairs = table("pairs")
    spread = np.concatenate([pairs.std_1_s / pairs.time_1_s, pairs.std_2_s / pairs.time_2_s])
    assert NoiseModel(np.random.default_rng(0)).time_cv == pytest.approx(np.median(spread), abs=1e-4)
