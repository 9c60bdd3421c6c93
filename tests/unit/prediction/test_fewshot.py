"""A new workload: corrections from few points, shrunk by what training workloads say of them; intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.prediction import fewshot
from heshare.prediction.samples import published


def test_a_correction_is_a_mean_that_few_points_pull_little() -> None:
    assert fewshot.correction(np.array([]), 1.0) == 0
    assert fewshot.correction(np.array([0.1]), 1.0) == pytest.approx(0.05)
    assert fewshot.correction(np.full(99, 0.1), 1.0) == pytest.approx(0.099)


def test_trust_is_noise_within_cells_over_differences_between_them(rng: np.random.Generator) -> None:
    cells = [str(cell) for cell in range(40) for _ in range(50)]
    offsets = np.repeat(rng.normal(0, 0.1, 40), 50)
    gaps = offsets + rng.normal(0, 0.2, 2000)
    assert fewshot.trust(gaps, cells) == pytest.approx(4, rel=0.5)
    assert fewshot.trust(rng.normal(0, 0.2, 2000), cells) > 50


def test_a_new_workload_of_the_published_record() -> None:
    samples = published().every(4)
    done = fewshot.study(samples, quick=True)
    assert len(done) == 1
    fold = done[0]
    names = samples.rows["workload"].to_numpy(str)
    assert not set(names[fold.test]) & set(names[fold.train])
    shots = fewshot.few_shot(samples, done, draws=2)
    assert shots["points"].tolist() == list(fewshot.POINTS)
    assert set(shots["quantity"]) == {"time"}
    assert shots["mean_pct"].iloc[2] < 10
    table = fewshot.learners(samples, done).set_index("learner")
    assert table["power_pct"].isna().all()
    assert table["time_covered_pct"].notna().tolist() == [name == fewshot.LEARNER for name in table.index]
    # Points that all lie off by the same factor are put right.
    off = fewshot.Fold(fold.test, {fewshot.LEARNER: np.full((len(fold.test), 2), 0.3)}, fold.trained, fold.train)
    errors = fewshot.few_shot(samples, (off,), draws=1)["mean_pct"].tolist()
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]
