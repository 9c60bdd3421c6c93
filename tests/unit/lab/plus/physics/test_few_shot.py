"""Few-shot prediction: corrections from few points, shrunk by a prior from training workloads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from heshare.lab.calibration.public_mps_record import published_samples
from heshare.lab.plus.physics import few_shot
from heshare.lab.plus.physics.physics_predictor import PHYSICS_TECHNIQUE


def test_correction_shrinks_the_mean_of_few_points() -> None:
    assert few_shot.correction(np.array([]), 1.0) == 0
    assert few_shot.correction(np.array([0.1]), 1.0) == pytest.approx(0.05)
    assert few_shot.correction(np.full(99, 0.1), 1.0) == pytest.approx(0.099)


def test_prior_points_are_variance_within_cells_over_variance_between_them(rng: np.random.Generator) -> None:
    cells = [str(cell) for cell in range(40) for _ in range(50)]
    offsets = np.repeat(rng.normal(0, 0.1, 40), 50)
    errors = offsets + rng.normal(0, 0.2, 2000)
    assert few_shot.prior_points(errors, cells) == pytest.approx(4, rel=0.5)
    assert few_shot.prior_points(rng.normal(0, 0.2, 2000), cells) > 50


def test_few_shot_errors_and_learner_errors_on_the_published_record() -> None:
    samples = published_samples().every(4)
    results = few_shot.leave_workloads_out(samples, quick=True)
    assert len(results) == 1
    fold = results[0]
    names = samples.rows["workload"].to_numpy(str)
    assert not set(names[fold.test]) & set(names[fold.train])
    shots = few_shot.few_shot_errors(samples, results, draws=2)
    assert shots["points"].tolist() == list(few_shot.POINTS)
    assert set(shots["quantity"]) == {"time"}
    assert shots["mean_pct"].iloc[2] < 10
    table = few_shot.learner_errors(samples, results).set_index("learner")
    assert table["power_pct"].isna().all()
    assert table["time_covered_pct"].notna().tolist() == [name == few_shot.LEARNER for name in table.index]
    known = few_shot.physics_technique([samples], [results])["Physics"](samples, 0)
    assert known(fold.train, fold.test) is fold.predicted
    assert np.array_equal(PHYSICS_TECHNIQUE["Physics"](samples, 0)(fold.train, fold.test), fold.predicted)
    # Points that are all off by the same factor are corrected.
    biased = replace(fold, errors={few_shot.LEARNER: np.full((len(fold.test), 2), 0.3)})
    errors = few_shot.few_shot_errors(samples, (biased,), draws=1)["mean_pct"].tolist()
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]


def test_errors_by_measured_points_become_rows_and_a_sentence() -> None:
    rows = [("emulated", 0, "time", 6.0), ("emulated", 0, "power", 3.0), ("emulated", 10, "time", 5.0)]
    rows += [("emulated", 10, "power", 2.5), ("published", 0, "time", 3.2), ("published", 10, "time", 3.1)]
    shots = pd.DataFrame(rows, columns=["data", "points", "quantity", "mean_pct"])
    found = few_shot.as_learner_rows(shots).set_index(["data", "measured_points"])
    assert found.loc[("emulated", 10), ["time_pct", "power_pct"]].tolist() == [5.0, 2.5]
    assert np.isnan(found.loc[("published", 10), "power_pct"])
    assert set(found["learner"]) == {few_shot.LEARNER}
    words = "from 6.00 to 5.00 % (emulated) and from 3.20 to 3.10 % (published)."
    assert few_shot.few_shot_text(shots).endswith(words)
