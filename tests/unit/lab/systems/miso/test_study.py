"""The study of MISO in small: the compared policies, the choice of the best partition, and the tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.paper.studies.systems import miso_study as study


@pytest.fixture(scope="module")
def runs():
    policies = [study.WHOLE, study.MISO, "miso:static(partition=3/3)", "miso:static"]
    return study.run_policies(policies, seed=3, seeds=3, tasks=20, gpus=2)


def test_run_policies_gives_the_same_jobs_and_for_the_same_seed_the_same_result(runs):
    assert len(runs) == 12
    again = study.run_policies([study.WHOLE, study.MISO], seed=3, seeds=3, tasks=20, gpus=2)
    pd.testing.assert_frame_equal(again, runs[runs["policy"].isin([study.WHOLE, study.MISO])].reset_index(drop=True))


def test_best_static_has_the_least_mean_jct():
    frame = pd.DataFrame(
        {
            "policy": ["miso:static(partition=3/3)", "miso:static"] * 2 + [study.MISO] * 2,
            "avg_jct_s": [10.0, 12.0, 30.0, 20.0, 1.0, 1.0],
            "repetition": [0, 0, 1, 1, 0, 1],
        }
    )
    assert study.best_static(frame) == "miso:static"
    found = study.against(frame, study.MISO, "miso:static")
    assert found.value == pytest.approx(np.median([100 / 12 - 100, 100 / 20 - 100]))


def test_table_compares_with_whole_gpus_and_the_best_static(runs):
    best = study.best_static(runs)
    table = study.table(runs, best).set_index("policy")
    assert table.loc[study.WHOLE, "against_whole_pct"] == 0
    assert table.loc[best, "against_static_pct"] == 0
    assert table.loc[study.MISO, "against_whole_pct"] < 0
