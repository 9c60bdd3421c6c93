"""The harness of the studies: random streams of repetitions, the tidy frame, medians and paired changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import median_intervals, paired_change, repeat
from heshare.shared.errors import InputError

FRAME = pd.DataFrame(
    {
        "repetition": [0, 0, 1, 1, 2, 2],
        "title": ["ours", "theirs"] * 3,
        "jct_s": [70.0, 100.0, 14.0, 20.0, 7.0, 10.0],
        "provenance": "emulated",
    }
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_streams_are_the_children_that_the_seed_spawns() -> None:
    spawned = np.random.SeedSequence(5).spawn(3)
    streams = spawned[2].spawn(2)
    assert Repetition(2, 5).rng().random() == np.random.default_rng(np.random.SeedSequence(5).spawn(3)[2]).random()
    assert Repetition(2, 5).rng(1).random() == np.random.default_rng(streams[1]).random()


def test_repeat_returns_the_rows_of_all_repetitions_in_order() -> None:
    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        for title in ("ours", "theirs"):
            yield {"title": title, "drawn": repetition.rng().random()}

    frame = repeat(run_one, seed=3, seeds=2)
    assert list(frame.columns) == ["repetition", "title", "drawn"]
    assert frame["repetition"].tolist() == [0, 0, 1, 1]
    assert frame["drawn"].tolist() == [Repetition(number, 3).rng().random() for number in (0, 0, 1, 1)]


def test_paired_change_compares_within_repetitions() -> None:
    change = paired_change(FRAME, "ours", "theirs", "jct_s")
    assert (change.value, change.low, change.high, change.n) == (pytest.approx(-30),) * 3 + (3,)


def test_paired_change_refuses_a_repetition_that_lacks_a_system() -> None:
    with pytest.raises(InputError):
        paired_change(FRAME.iloc[1:], "ours", "theirs", "jct_s")


def test_median_intervals_has_a_row_for_each_group_and_measure() -> None:
    table = median_intervals(FRAME, ["title"], ["jct_s"])
    assert list(table.columns) == ["title", "metric", "median", "low", "high", "n", "provenance"]
    assert table["median"].tolist() == [14.0, 20.0]
    assert (table["low"] <= table["median"]).all()
    assert table["n"].tolist() == [3, 3]
