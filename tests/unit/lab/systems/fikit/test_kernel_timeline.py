"""Timelines of kernels: lanes that do not overlap, joined where one piece follows the other."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from support.kernel_chain import chain

from heshare.lab.systems.fikit.kernel_rules import FikitRule, MpsRule, TimeSliceRule
from heshare.paper.studies.systems import fikit_timeline as kernel_timeline

HIGH, LOW = chain("high", [1e-3, 1e-3], [0.5e-3, 0.0], kernel=[0, 1]), chain("low", [0.4e-3], [0.0])
WAYS = {"FIKIT": FikitRule(least_gap_s=0.0, launch_s=0.0), "time slices": TimeSliceRule(2e-3, 0.0), "MPS": MpsRule()}


def test_pieces_are_those_of_the_loop_joined_and_cut_off():
    rows = kernel_timeline.pieces(HIGH, LOW, WAYS, arrivals_ms=[1.0], until_ms=3.3)
    mine = rows[rows["way"] == "FIKIT"]
    spans = {task: part[["start_ms", "end_ms"]].to_numpy().round(6).tolist() for task, part in mine.groupby("task")}
    # The other runs 0.4 at a time until 1.2; the urgent one 1.2..2.2; 0.4 fit into its gap of 0.5; 2.7..3.7.
    assert spans["other"] == [[0.0, 1.2], [2.2, 2.6]]
    assert spans["urgent"] == [[1.2, 2.2], [2.7, 3.3]]
    assert rows["end_ms"].max() == pytest.approx(3.3)


def test_panel_has_a_lane_for_both_tasks():
    rows = kernel_timeline.pieces(HIGH, LOW, WAYS, arrivals_ms=[0.0, 5.0], until_ms=8.0)
    assert rows.groupby("way")["task"].nunique().tolist() == [2, 2, 2]
    _, ax = plt.subplots()
    drawn = kernel_timeline.panel(ax, rows, [0.0, 5.0])
    assert len(drawn) == 2 + 6
    assert [label.get_text() for label in ax.get_yticklabels()] == ["FIKIT", "time slices", "MPS"]
    plt.close("all")


def test_seen_says_how_long_the_first_urgent_request_takes():
    rows = [("FIKIT", "urgent", 1.0, 5.5), ("FIKIT", "other", 5.5, 9.0), ("FIKIT", "urgent", 9.0, 13.0)]
    rows += [("MPS", "urgent", 1.0, 9.5)]
    frame = pd.DataFrame(rows, columns=["way", "task", "start_ms", "end_ms"])
    expected = "The first urgent request takes 4.5 ms under FIKIT, more than 8 ms under MPS."
    assert kernel_timeline.seen(frame, [1.0, 9.0]) == expected
