"""The fit of the device model: the committed constants, errors on points left out, and fits of made-up data."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from heshare.devices import iteration_time
from heshare.devices.constants import Contention, Power, Timing, default
from heshare.devices.noise import NoiseModel
from heshare.lab.calibration import calibrate, contention_fit, time_fit, timing_constants
from heshare.lab.calibration.measurements import (
    EAGER_RECORD,
    IMAGE_MODELS,
    MPS_MODELS,
    TimeRows,
    table,
    time_rows,
)
from heshare.lab.calibration.power_fit import extend_voltage, sweep
from heshare.lab.calibration.validation.left_out import TARGETS
from heshare.lab.calibration.validation.points import LEAST_GROUP, coverage
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


MISSED = {
    "A100-40GB under MPS, time, a network left out",
    "A100-40GB under MPS, power, a network left out",
    "A100-40GB under MPS, n processes over one, a network left out",
    "RTX-3080-Ti under MPS, time, a network left out",
    "RTX-3080-Ti under MPS, n processes over one, a network left out",
}
"""Tests whose targets are missed, with the values in `errors.csv`."""


@pytest.mark.slow
def test_errors_on_left_out_points_meet_their_targets(calibration_errors):
    errors, _ = calibration_errors
    with_target = errors[errors.target_mape_pct.notna()]
    assert set(with_target.test) == set(TARGETS)
    mean, p90 = (with_target[f"{name}_pct"] / with_target[f"target_{name}_pct"] for name in ("mape", "p90"))
    assert set(with_target.test[(mean > 1) | (p90 > 1)]) == MISSED, "the errors are told where they miss a target"
    assert mean.max() < 3
    assert p90.max() < 3
    committed = pd.read_csv(files.data("calibration", "errors.csv"))
    pd.testing.assert_frame_equal(committed, errors, check_dtype=False, atol=0.1)


@pytest.mark.slow
def test_stated_90_pct_intervals_hold_for_82_to_97_pct_of_left_out_points(calibration_errors):
    covered = coverage(calibration_errors[1])
    assert 82 <= covered[covered.grouping == "all"].within_90_pct.item() <= 97
    assert covered[covered.n > LEAST_GROUP].within_90_pct.min() >= 70
    committed = pd.read_csv(files.data("calibration", "coverage.csv"))
    assert committed.n.tolist() == covered.n.tolist()
    assert committed.within_90_pct.tolist() == pytest.approx(covered.within_90_pct.tolist(), abs=2)


def four_samples_error() -> float:
    """Mean absolute error of times of 4 samples from those of 1 and 8, image models of records without a host part.

    The exponent was chosen by it, so that it is no test of points left out and does not stand in `errors.csv`.
    """
    times, errors = table("times"), []
    known = times[times.workload.isin((*IMAGE_MODELS, *MPS_MODELS)) & (times.precision == "fp32")]
    known = known[(known.processes == 1) & known.sm_mhz.isna() & (known.framework != EAGER_RECORD)]
    for (card, name, framework), _rows in known.groupby(["gpu", "workload", "framework"]):
        rows = time_rows(card, name, framework)
        prior = time_fit.Prior(timing_constants.memory_s(name, card.split(" ")[0], fused=True))
        for share in np.unique(rows.share):
            part = rows.where((rows.share == share) & np.isin(rows.batch, (1, 4, 8)))
            if len(part) == 3:
                four = part.where(part.batch == 4)
                fitted = time_fit.fit_timing(part.where(part.batch != 4), prior)
                errors.append(abs(time_fit.times_s(fitted.timing, four)[0] / four.time_s[0] - 1.0))
    assert len(errors) > 30
    return float(np.mean(errors))


@pytest.mark.slow
def test_the_batch_exponent_explains_four_samples_best(monkeypatch):
    own = four_samples_error()
    for exponent in (1.0001, 2.0, 3.0):
        monkeypatch.setattr(iteration_time, "BATCH_EXPONENT", exponent)
        monkeypatch.setattr(time_fit, "BATCH_EXPONENT", exponent)
        assert four_samples_error() > own


@pytest.mark.slow
def test_no_summary_counts_a_choice_among_points_left_out(calibration_errors):
    errors, points = calibration_errors
    assert not points.test.str.contains("batch size 4 from 1 and 8").any()
    assert set(errors.test) == set(points.test)


@pytest.mark.slow
def test_a_second_laboratory_judges_mig_instances_with_all_of_the_stated_uncertainty(calibration_errors):
    _, points = calibration_errors
    own = points[points.test == "A100 inference in MIG instances, a second laboratory"]
    assert sorted(own.setting.str.split(" ").str[1].unique()) == ["1g", "2g", "3g", "7g"]
    assert len(own) == 36
    fitted = points[points.test == "A100 inference in MIG instances, a workload left out"]
    assert own.uncertainty.min() > fitted.uncertainty.max()
    assert own.error_pct.mean() == pytest.approx(-8.0, abs=3.0)


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


def test_default_power_noise_is_the_scatter_about_a_smooth_curve_over_the_a100_clocks():
    scatter = []
    for _, rows in sweep("A100").sort_values("sm_mhz").groupby("application", sort=True):
        power_w = rows.power_w.to_numpy(float)
        bend = power_w[2:] - 2.0 * power_w[1:-1] + power_w[:-2]
        # A second difference of independent noise has six times its variance.
        scatter.append(np.median(np.abs(bend)) / 0.6745 / np.sqrt(6.0) / np.mean(power_w))
    assert NoiseModel(np.random.default_rng(0)).power_cv == pytest.approx(np.median(scatter), abs=1e-4)
