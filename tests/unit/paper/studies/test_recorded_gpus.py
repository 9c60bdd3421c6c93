"""Recorded GPUs in the figures: only recorded rows, marked as measured; emulated rows do not change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare.ops.recording import recordings
from heshare.ops.recording.budget_plan import PAIRS
from heshare.ops.recording.recordings import Recording
from heshare.paper.studies import motivation, recorded_gpus, sources
from heshare.prediction.features import is_reference
from heshare.world.workload import DEFAULT_PRECISION


@pytest.fixture(scope="module")
def h100(made_up_h100: Path) -> Recording:
    return recordings.read(made_up_h100)


def without(record: Recording, gone: pd.Series) -> Recording:
    return replace(record, table=record.table[~gone].reset_index(drop=True))


@pytest.mark.slow
def test_solo(h100: Recording) -> None:
    """A row of a workload alone is the recorded one; emulated rows stay; without repeats there is no interval."""
    emulated = motivation.solo(batch_sizes=[8])
    found = recorded_gpus.solo([h100], batch_sizes=[8])
    assert list(found.columns) == list(emulated.columns)
    assert len(found) == 15

    row = found[found["workload"] == "resnet50"].iloc[0]
    at_size = h100.table["batch_size"] == 8
    table = h100.table[is_reference(h100.table) & at_size & (h100.table["precision"] == DEFAULT_PRECISION)]
    cell = table[table["workload"] == "resnet50"].iloc[0]
    assert (row["time_s"], row["energy_j"], row["power_w"]) == (cell["time_s"], cell["energy_j"], cell["power_w"])
    assert row["time_low_s"] < row["time_s"] < row["time_high_s"]

    once = replace(h100, table=h100.table.assign(repeats=1))
    assert recorded_gpus.solo([once], batch_sizes=[8])["time_low_s"].isna().all()


def test_other_workloads(h100: Recording) -> None:
    """A recorded workload outside Table IV is in no figure."""
    lone = h100.table[is_reference(h100.table) & (h100.table["workload"] == "vgg19")]
    more = pd.concat([h100.table, lone.assign(workload="llama3_8b")], ignore_index=True)
    other = replace(h100, table=more)
    expected = recorded_gpus.solo([h100], batch_sizes=[8])
    pd.testing.assert_frame_equal(recorded_gpus.solo([other], batch_sizes=[8]), expected)


def test_mark_provenance() -> None:
    """Rows that are not emulated are marked."""
    kinds = ["emulated", "measured", "fitted"]
    marked = recorded_gpus.mark_provenance(pd.DataFrame({"gpu": "T4", "provenance": kinds}))
    assert marked["gpu"].tolist() == ["T4", "T4 (measured)", "T4 (fitted)"]


def test_default_source() -> None:
    """Figs. 1 and 4 of the default source are of the emulated GPUs, and then of the shipped records."""
    emulated = sources.read("emulated")
    found = recorded_gpus.alone(emulated, batch_sizes=[8])
    pd.testing.assert_frame_equal(found.iloc[:45], motivation.solo(batch_sizes=[8]))
    assert recorded_gpus.counts(found) == {"emulated": 45, "measured": 15 * len(recordings.shipped())}
    pairs = recorded_gpus.pairs_on(emulated, batch_size=8)
    assert set(pairs[pairs["provenance"] == "measured"]["gpu"]) == {one.gpu for one in recordings.shipped()}


def test_clocks(h100: Recording) -> None:
    """A curve over the clock needs two recorded clocks."""
    none = recorded_gpus.clocks([h100], "resnet152", batch_sizes=[16, 32])
    assert none.empty

    slower = h100.table.assign(sm_mhz=990, time_s=2 * h100.table["time_s"])
    both = replace(h100, table=pd.concat([h100.table, slower], ignore_index=True))
    found = recorded_gpus.clocks([both], "resnet152", batch_sizes=[16])
    assert list(found.columns) == list(motivation.clocks("resnet152", batch_sizes=[16], points=2).columns)
    assert found["requested_mhz"].tolist() == [990, 1980]
    assert found["relative_time"].tolist() == [1.0, 0.5]


def test_pairs(h100: Recording) -> None:
    """A pair needs both directions and each workload alone; its time is the geometric mean of both."""
    found = recorded_gpus.pairs([h100], batch_size=8)
    assert len(found) == len(PAIRS)

    table = h100.table[(h100.table["batch_size"] == 8) & (h100.table["mps_pct"] == 100)]
    pair = table[(table["workload"] == "bert_large") & (table["co_runners"] == "gpt2:8@100")].iloc[0]
    other = table[(table["workload"] == "gpt2") & (table["co_runners"] == "bert_large:8@100")].iloc[0]
    assert found["together_s"].iloc[-1] == pytest.approx((pair["time_s"] * other["time_s"]) ** 0.5)

    gone = without(h100, (h100.table["workload"] == "gpt2") & (h100.table["co_runners"] == ""))
    assert len(recorded_gpus.pairs([gone], batch_size=8)) == len(PAIRS) - 1
    assert recorded_gpus.pairs([h100], batch_size=32).empty


def test_samples(h100: Recording) -> None:
    """Samples are of tasks that were recorded alone as well; a record of tasks alone has none."""
    (every,) = recorded_gpus.samples([h100])
    assert every.provenance == "measured"
    assert len(every.rows) == (~is_reference(h100.table)).sum()

    gone = is_reference(h100.table) & (h100.table["workload"] == "vgg19")
    (fewer,) = recorded_gpus.samples([without(h100, gone)])
    assert "vgg19" not in {resident.workload.model for members in fewer.members for resident in members}
    assert 0 < len(fewer.rows) < len(every.rows)

    assert recorded_gpus.samples([without(h100, ~is_reference(h100.table))]) == []
    assert recorded_gpus.samples([]) == []


@pytest.mark.slow
def test_modelled_utilisations(h100: Recording) -> None:
    """Utilisations that were not recorded are modelled."""
    blind = replace(h100, table=h100.table.assign(l2_util_pct=np.nan))
    (found,) = recorded_gpus.samples([blind], 4)
    assert not np.isnan(found.features()).any()
