"""Figs. 1 to 4: the order of the rows, the ratios beside them, and the sentences that captions begin with."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.paper.studies import motivation


@pytest.fixture(scope="module")
def every() -> pd.DataFrame:
    return motivation.solo(batch_sizes=[1, 8])


def test_rows_are_by_load_class_and_then_by_the_slowest_time(every: pd.DataFrame) -> None:
    drawn = motivation.by_weight(every[every["batch_size"] == 8])
    rows = drawn[drawn["gpu"] == "T4"]
    assert rows["load"].drop_duplicates().tolist() == ["low", "medium", "high"]
    for _, part in rows.groupby("load"):
        assert part["time_s"].is_monotonic_increasing
    assert (drawn["unmeasured"] == ~drawn["anchored"]).all()
    assert 0 < drawn["unmeasured"].sum() < len(drawn)


def test_ratios_are_of_the_named_gpus_or_of_the_ends(every: pd.DataFrame) -> None:
    times = every.set_index(["workload", "batch_size", "gpu"])["time_s"].sort_index()
    slower = motivation.ratios(every, "time_s", [1, 8], ("T4", "A100"))
    spread = motivation.ratios(every, "time_s", [8])
    assert slower.loc["bert_large", 1] == times["bert_large", 1, "T4"] / times["bert_large", 1, "A100"]
    assert spread.loc["gpt2", 8] == times["gpt2", 8].max() / times["gpt2", 8].min()
    rows = motivation.with_ratios(every[every["batch_size"] == 8], slower)
    assert rows["workload"].tolist() == every.loc[every["batch_size"] == 8, "workload"].tolist()
    assert rows.loc[rows["workload"] == "vgg19", "ratio_bs8"].tolist() == [slower.loc["vgg19", 8]] * 3


def test_class_medians_are_over_workloads() -> None:
    frame = pd.DataFrame({"workload": ["a", "b", "c", "d", "e"], "load": ["low", "low", "low", "medium", "high"]})
    found = pd.Series({"a": 1.0, "b": 2.0, "c": 9.0, "d": 3.0, "e": 4.0})
    assert motivation.class_medians(frame, found).to_dict() == {"low": 2.0, "medium": 3.0, "high": 4.0}


def test_the_slowdown_of_a_pair_is_that_of_the_drawn_times() -> None:
    row = motivation.pair_row("T4", ("resnet50", "gpt2"), np.array([1.0, 4.0]), np.array([2.0, 32.0]))
    assert (row["alone_s"], row["together_s"], row["degradation_pct"]) == pytest.approx((2.0, 8.0, 300.0))


def test_clock_gains_compare_half_of_the_top_clock_with_all_of_it() -> None:
    rows = [("T4", 500, 3.0), ("T4", 1000, 2.0), ("A100", 600, 4.0), ("A100", 700, 3.0), ("A100", 1400, 1.0)]
    frame = pd.DataFrame(rows, columns=["gpu", "requested_mhz", "time_s"]).assign(batch_size=32)
    assert motivation.clock_gains(frame) == {"T4": 1.5, "A100": 3.0}
