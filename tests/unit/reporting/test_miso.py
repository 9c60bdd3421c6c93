"""MISO's home setting in small: what is compared, how the best partition is chosen, what is priced."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.reporting import miso


@pytest.fixture(scope="module")
def runs():
    policies = [miso.WHOLE, miso.MISO, "miso:static(partition=3/3)", "miso:static"]
    return miso.home(policies, seed=3, seeds=3, tasks=20, gpus=2)


def test_the_cluster_has_small_cards():
    assert {gpu.memory_mib for gpu in miso.cluster(3).gpus} == {miso.MEMORY_MIB}
    assert str(miso.cluster(3)) == "3xA100"


def test_static_partitions_can_hold_the_largest_job():
    assert len(miso.statics()) == 8
    assert miso.partition_of(miso.statics()[0]) == "4/2/1"
    assert miso.name_of("miso:static") == "Static 3/2/2"


def test_everybody_gets_the_same_jobs_and_the_same_seed_the_same_result(runs):
    assert len(runs) == 12
    again = miso.home([miso.WHOLE, miso.MISO], seed=3, seeds=3, tasks=20, gpus=2)
    pd.testing.assert_frame_equal(again, runs[runs["policy"].isin([miso.WHOLE, miso.MISO])].reset_index(drop=True))


def test_the_best_static_partition_is_the_best_in_the_mean():
    frame = pd.DataFrame(
        {
            "policy": ["miso:static(partition=3/3)", "miso:static"] * 2 + [miso.MISO] * 2,
            "avg_jct_s": [10.0, 12.0, 30.0, 20.0, 1.0, 1.0],
            "repetition": [0, 0, 1, 1, 0, 1],
        }
    )
    assert miso.best_static(frame) == "miso:static"
    found = miso.against(frame, miso.MISO, "miso:static", np.random.default_rng(0))
    assert found.value == pytest.approx(np.median([100 / 12 - 100, 100 / 20 - 100]))


def test_the_table_compares_with_both(runs):
    best = miso.best_static(runs)
    table = miso.table(runs, best, np.random.default_rng(0)).set_index("policy")
    assert table.loc[miso.WHOLE, "against_whole_pct"] == 0
    assert table.loc[best, "against_static_pct"] == 0
    assert table.loc[miso.MISO, "against_whole_pct"] < 0


def test_by_interval_has_a_row_a_policy_and_reference():
    found = miso.by_interval(
        [60.0], np.random.default_rng(0), chosen=["miso:static"], seed=0, seeds=2, tasks=12, gpus=2
    )
    assert found["reference"].tolist() == ["Unpartitioned", "Best static"] * 2
    assert set(found["static"]) == {"Static 3/2/2"}
    assert (found["low"] <= found["change_pct"]).all()
