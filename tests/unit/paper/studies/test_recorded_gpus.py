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
from heshare.paper.studies import motivation, recorded_gpus
from heshare.prediction.features import is_reference


@pytest.fixture(scope="module")
def h100(made_up_h100: Path) -> Recording:
    return recordings.read(f"recorded:{made_up_h100}")[0]


def without(record: Recording, gone: pd.Series) -> Recording:
    return replace(record, table=record.table[~gone].reset_index(drop=True))


def test_solo_has_the_rows_of_workloads_recorded_alone(h100: Recording) -> None:
    emulated = motivation.solo(batch_sizes=[8])
    found = recorded_gpus.solo([h100], batch_sizes=[8])
    assert list(found.columns) == list(emulated.columns)
    assert len(found) == 15
    row = found[found["workload"] == "resnet50"].iloc[0]
    in_fp32 = (h100.table["batch_size"] == 8) & (h100.table["precision"] == "fp32")
    table = h100.table[is_reference(h100.table) & in_fp32]
    cell = table[table["workload"] == "resnet50"].iloc[0]
    assert (row["time_s"], row["energy_j"], row["power_w"]) == (cell["time_s"], cell["energy_j"], cell["power_w"])
    assert row["time_low_s"] < row["time_s"] < row["time_high_s"]
    both = recorded_gpus.append_measured(emulated, found)
    pd.testing.assert_frame_equal(both.iloc[: len(emulated)], emulated)
    assert recorded_gpus.counts(both) == {"emulated": 45, "measured": 15}


def test_solo_of_a_setting_without_repeats_has_no_interval(h100: Recording) -> None:
    once = replace(h100, table=h100.table.assign(repeats=1))
    assert recorded_gpus.solo([once], batch_sizes=[8])["time_low_s"].isna().all()


def test_mark_measured_names_the_provenance_of_gpus() -> None:
    frame = pd.DataFrame({"gpu": ["T4", "T4"], "provenance": ["emulated", "measured"]})
    assert recorded_gpus.mark_measured(frame)["gpu"].tolist() == ["T4", "T4 (measured)"]
    assert recorded_gpus.mark_measured(frame, all_of_them=True)["gpu"].tolist() == ["T4 (emulated)", "T4 (measured)"]


def test_beside_and_labelled_without_records_return_the_emulated_rows() -> None:
    emulated = motivation.pairs(batch_size=8)
    assert recorded_gpus.append_measured(emulated, recorded_gpus.pairs([], batch_size=8)) is emulated
    assert recorded_gpus.mark_measured(emulated).equals(emulated)


def test_clocks_has_the_recorded_clocks_where_there_are_two(h100: Recording) -> None:
    none = recorded_gpus.clocks([h100], "resnet152", batch_sizes=[16, 32])
    assert none.empty
    slower = h100.table.assign(sm_mhz=990, time_s=2 * h100.table["time_s"])
    both = replace(h100, table=pd.concat([h100.table, slower], ignore_index=True))
    found = recorded_gpus.clocks([both], "resnet152", batch_sizes=[16])
    assert list(found.columns) == list(motivation.clocks("resnet152", batch_sizes=[16], points=2).columns)
    assert found["requested_mhz"].tolist() == [990, 1980]
    assert found["relative_time"].tolist() == [1.0, 0.5]


def test_pairs_needs_both_directions_and_each_workload_alone(h100: Recording) -> None:
    found = recorded_gpus.pairs([h100], batch_size=8)
    assert len(found) == len(PAIRS)
    table = h100.table[(h100.table["batch_size"] == 8) & (h100.table["mps_pct"] == 100)]
    pair = table[(table["workload"] == "bert_large") & (table["co_runners"] == "gpt2:8@100")].iloc[0]
    other = table[(table["workload"] == "gpt2") & (table["co_runners"] == "bert_large:8@100")].iloc[0]
    assert found["together_s"].iloc[-1] == pytest.approx((pair["time_s"] * other["time_s"]) ** 0.5)
    gone = without(h100, (h100.table["workload"] == "gpt2") & (h100.table["co_runners"] == ""))
    assert len(recorded_gpus.pairs([gone], batch_size=8)) == len(PAIRS) - 1
    assert recorded_gpus.pairs([h100], batch_size=32).empty


def test_samples_are_of_tasks_that_were_recorded_alone_as_well(h100: Recording) -> None:
    (every,) = recorded_gpus.samples([h100])
    assert every.provenance == "measured"
    assert len(every.rows) == (~is_reference(h100.table)).sum()
    gone = is_reference(h100.table) & (h100.table["workload"] == "vgg19")
    (fewer,) = recorded_gpus.samples([without(h100, gone)])
    assert "vgg19" not in {resident.workload.model for members in fewer.members for resident in members}
    assert 0 < len(fewer.rows) < len(every.rows)


def test_a_small_record_and_no_record_have_no_samples(h100: Recording) -> None:
    assert recorded_gpus.samples([without(h100, ~is_reference(h100.table))]) == []
    assert recorded_gpus.samples([]) == []


def test_utilisations_that_were_not_recorded_are_modelled(h100: Recording) -> None:
    blind = replace(h100, table=h100.table.assign(l2_util_pct=np.nan))
    (found,) = recorded_gpus.samples([blind], 4)
    assert not np.isnan(found.features()).any()


def test_inventory_has_a_row_none_if_nothing_was_recorded(h100: Recording) -> None:
    emulated = h100.table.assign(provenance="emulated")
    found = recorded_gpus.inventory([emulated])
    assert found["gpu"].tolist() == ["H100", "none"]
    assert recordings.COMMAND in found["note"].iloc[1]
    assert found["rows"].tolist() == [len(emulated), 0]
    both = recorded_gpus.inventory([emulated, h100.table])
    assert both["provenance"].tolist() == ["emulated", "measured"]
