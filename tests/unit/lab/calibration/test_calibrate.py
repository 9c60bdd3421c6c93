"""The fit of the device model: the committed constants, errors on points left out, and fits of made-up data."""

from __future__ import annotations

import io

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
from heshare.lab.calibration.validation.left_out import TARGETS
from heshare.lab.calibration.validation.points import coverage
from heshare.shared import files
from heshare.world import catalogue

KEYS = ["kind", "gpu", "engine", "workload", "name", "unit", "source"]


@pytest.mark.nightly
def test_constants_file() -> None:
    """A new fit gives the committed constants, each within its range."""
    committed = pd.read_csv(files.data("calibration", "constants.csv"), keep_default_na=False)
    refitted = pd.read_csv(io.StringIO(calibrate.constants_csv()), keep_default_na=False)
    pd.testing.assert_frame_equal(committed[KEYS], refitted[KEYS])
    assert refitted.value.tolist() == pytest.approx(committed.value.tolist(), rel=2e-2, abs=2e-7)
    assert (refitted.low <= refitted.value).all()
    assert (refitted.value <= refitted.high).all()
    assert (refitted.source != "").all()


@pytest.mark.slow
def test_error_tables() -> None:
    """A new fit gives the committed tables of errors and coverage, whose 90 % intervals hold about as often."""
    errors, points = calibrate.calibration_report()
    committed = pd.read_csv(files.data("calibration", "errors.csv"))
    pd.testing.assert_frame_equal(committed, errors, check_dtype=False, atol=0.1)
    assert set(errors[errors.target_mape_pct.notna()].test) == set(TARGETS)
    assert set(errors.test) == set(points.test)

    covered = coverage(points)
    committed = pd.read_csv(files.data("calibration", "coverage.csv"))
    assert committed.n.tolist() == covered.n.tolist()
    assert committed.within_90_pct.tolist() == pytest.approx(covered.within_90_pct.tolist(), abs=2)
    assert 80 <= covered[covered.grouping == "all"].within_90_pct.item() <= 98


def test_every_gpu_and_workload():
    """Every GPU, engine and workload of the catalogue has constants."""
    constants = default()
    for gpu in catalogue.gpus():
        assert constants.power[gpu].idle_w == catalogue.gpu(gpu).idle_w
        for model in catalogue.paper_models():
            for engine in ("eager", "tensorrt"):
                assert (gpu, engine, model) in constants.timing


def test_fit_timing():
    """The fit of times recovers the constants of made-up rows."""
    truth = Timing(1e-3, 0.1e-3, 0.5e-3, 0.6e-3, fill_s=0.8e-3)
    batch, share = (axis.ravel().astype(float) for axis in np.meshgrid([1, 2, 4, 8, 16, 32], [0.2, 0.5, 1.0]))
    rows = TimeRows(batch, share, np.ones(len(batch)), np.full(len(batch), np.nan))
    rows = TimeRows(batch, share, time_fit.times_s(truth, rows), rows.sm_mhz)
    fitted = time_fit.fit_timing(rows, time_fit.Prior(0.1e-3)).timing
    assert fitted.work_per_sample_s == pytest.approx(truth.work_per_sample_s, rel=0.01)
    assert time_fit.times_s(fitted, rows) == pytest.approx(rows.time_s, rel=0.01)


def test_throttled_rows():
    """The fit of times corrects for throttling."""
    truth = Timing(0.1e-3, 0.0, 0.1e-3, 1e-3)
    power = Power(20.0, 150.0, 0.0, 1200.0, 0.8, 0.0)
    gpu = time_fit.ThrottledGpu(power, 1590.0, 70.0)
    batch = np.array([1.0, 2, 4, 8, 16])
    rows = TimeRows(batch, np.ones(5), np.ones(5), np.full(5, np.nan))
    rows = TimeRows(batch, np.ones(5), time_fit.times_s(truth, rows, gpu), rows.sm_mhz)
    assert rows.time_s[-1] > 1.3 * time_fit.times_s(truth, rows)[-1]
    fitted = time_fit.fit_timing(rows, time_fit.Prior(1e-6), gpu).timing
    assert fitted.work_per_sample_s == pytest.approx(1e-3, rel=0.05)


def test_fit_contention():
    """The fit of contention recovers the constants of made-up pairs."""
    pairs = contention_fit.pair_rows()
    truth = Contention(0.05, 5e-6)
    made_up = pairs.assign(time_s=pairs.solo_s * contention_fit.slowdowns(truth, pairs))
    fitted = contention_fit.fit_contention(made_up)
    assert fitted.strength == pytest.approx(truth.strength, rel=1e-3)
    assert fitted.wait_s == pytest.approx(truth.wait_s, rel=1e-3)


def test_extend_voltage():
    """The voltage above the measured clocks is on their straight line."""
    # V(1000) = 1 and V(500) = 0.5 on one line: V(1500) = 1.5
    assert extend_voltage(500, 0.5, 1000, 1500) == pytest.approx((1 / 3, 2 / 3))


def test_time_noise():
    """The default noise of times is the median spread of the measured pairs."""
    pairs = table("pairs")
    spread = np.concatenate([pairs.std_1_s / pairs.time_1_s, pairs.std_2_s / pairs.time_2_s])
    assert NoiseModel(np.random.default_rng(0)).time_cv == pytest.approx(np.median(spread), abs=1e-4)
