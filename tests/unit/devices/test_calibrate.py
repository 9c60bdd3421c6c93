"""The fit run anew: the committed constants, the errors on points left out, the size of what is shipped."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from heshare import files
from heshare.devices import calibration
from heshare.devices.calibration import extras, pairs, times
from heshare.devices.calibration.data import Rows
from heshare.devices.calibration.power import extended, spaced
from heshare.devices.constants import Contention, Power, Timing, read
from heshare.devices.emulated import NoiseModel
from heshare.errors import InputError
from heshare.world import catalogue


@pytest.fixture(scope="module")
def report() -> tuple[pd.DataFrame, pd.DataFrame]:
    return calibration.calibration_report()


def _rows(text: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(io.StringIO(text))


def test_the_committed_constants_are_those_of_the_committed_figures(report):
    kept = list(_rows(files.data("calibration", "constants.csv").read_text(encoding="utf-8")))
    fresh = list(_rows(calibration.constants_csv()))
    assert len(kept) == len(fresh)
    for old, new in zip(kept, fresh, strict=True):
        assert [old[key] for key in ("kind", "gpu", "engine", "workload", "name", "unit", "source")] == [
            new[key] for key in ("kind", "gpu", "engine", "workload", "name", "unit", "source")
        ]
        assert float(new["value"]) == pytest.approx(float(old["value"]), rel=2e-2, abs=2e-7)
        assert float(new["low"]) <= float(new["value"]) <= float(new["high"])
        assert new["source"]


def test_errors_on_points_left_out_meet_their_targets(report):
    errors, _ = report
    judged = errors[errors.target_mape_pct.notna()]
    assert len(judged) == 8
    assert (judged.mape_pct <= judged.target_mape_pct).all()
    assert (judged.p90_pct <= judged.target_p90_pct).all()
    kept = pd.read_csv(files.data("calibration", "errors.csv"))
    pd.testing.assert_frame_equal(kept, errors, check_dtype=False, atol=0.1)


def test_pairs_end_to_end_are_as_good_as_their_parts(report):
    errors, _ = report
    both = errors.set_index("test").loc["pairs within 100 %, end to end, a pair of workloads left out"]
    assert both.mape_pct < 3.4
    assert both.p90_pct < 7.6


def test_every_cell_of_the_catalogue_has_constants():
    known = read(files.data("calibration", "constants.csv"))
    for gpu in catalogue.gpus():
        assert known.power[gpu].idle_w == catalogue.gpu(gpu).idle_w
        for model in catalogue.models():
            for engine in ("eager", "tensorrt"):
                assert (gpu, engine, model) in known.timing


def test_shipped_figures_stay_small():
    assert sum(path.stat().st_size for path in files.data("calibration").iterdir()) < 1_000_000


def test_a_fit_finds_the_constants_that_made_its_rows():
    truth = Timing(1e-3, 0.1e-3, 0.5e-3, 0.6e-3, fill_s=0.8e-3)
    batch, share = (axis.ravel().astype(float) for axis in np.meshgrid([1, 2, 4, 8, 16, 32], [0.2, 0.5, 1.0]))
    rows = Rows(batch, share, np.ones(len(batch)), np.full(len(batch), np.nan))
    rows = Rows(batch, share, times.times_s(truth, rows), rows.sm_mhz)
    found = times.fit(rows, times.Prior(0.1e-3)).timing
    assert found.work_per_sample_s == pytest.approx(truth.work_per_sample_s, rel=0.01)
    assert times.times_s(found, rows) == pytest.approx(rows.time_s, rel=0.01)


def test_a_fit_of_throttled_rows_undoes_the_throttling():
    truth = Timing(0.1e-3, 0.0, 0.1e-3, 1e-3)
    power = Power(20.0, 150.0, 0.0, 1200.0, 0.8, 0.0)
    card = times.Card(power, 1590.0, 70.0)
    batch = np.array([1.0, 2, 4, 8, 16])
    rows = Rows(batch, np.ones(5), np.ones(5), np.full(5, np.nan))
    rows = Rows(batch, np.ones(5), times.times_s(truth, rows, card), rows.sm_mhz)
    assert rows.time_s[-1] > 1.3 * times.times_s(truth, rows)[-1]
    found = times.fit(rows, times.Prior(1e-6), card).timing
    assert found.work_per_sample_s == pytest.approx(1e-3, rel=0.05)


def test_contention_is_found_again():
    known = pairs.victims()
    truth = Contention(0.05, 5e-6)
    made = known.assign(time_s=known.solo_s * pairs.slowdowns(truth, known))
    found = pairs.fit(made)
    assert found.strength == pytest.approx(truth.strength, rel=1e-3)
    assert found.wait_s == pytest.approx(truth.wait_s, rel=1e-3)


def test_small_helpers():
    assert spaced(range(0, 101, 10), 3) == [0, 50, 100]
    # V(1000) = 1 and V(500) = 0.5 on one line: V(1500) = 1.5
    assert extended(500, 0.5, 1000, 1500) == pytest.approx((1 / 3, 2 / 3))


def test_a_constant_that_is_no_number_is_named(tmp_path):
    path = tmp_path / "constants.csv"
    path.write_text("kind,gpu,engine,workload,name,value\npower,T4,,,idle_w,twenty\n", encoding="utf-8")
    with pytest.raises(InputError, match="twenty"):
        read(path)


def test_the_default_noise_is_that_of_the_record():
    noise = NoiseModel(np.random.default_rng(0))
    assert noise.time_cv == pytest.approx(extras.time_noise(), abs=1e-4)
    assert noise.power_cv == pytest.approx(extras.power_noise(), abs=1e-4)
