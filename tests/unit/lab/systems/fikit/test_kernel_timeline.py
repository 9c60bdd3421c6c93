"""Timelines of kernels: lanes that do not overlap, joined where one piece follows the other."""

import pytest
from support.kernel_chain import chain

from heshare.lab.systems.fikit.kernel_rules import FikitRule, MpsRule, TimeSliceRule
from heshare.paper.studies.systems import fikit_study as study

HIGH, LOW = chain("high", [1e-3, 1e-3], [0.5e-3, 0.0], kernel=[0, 1]), chain("low", [0.4e-3], [0.0])
WAYS = {"FIKIT": FikitRule(least_gap_s=0.0, launch_s=0.0), "time slices": TimeSliceRule(2e-3, 0.0), "MPS": MpsRule()}


def test_pieces_are_those_of_the_loop_joined_and_cut_off():
    rows = study.pieces(HIGH, LOW, WAYS, arrivals_ms=[1.0], until_ms=3.3)
    mine = rows[rows["way"] == "FIKIT"]
    spans = {task: part[["start_ms", "end_ms"]].to_numpy().round(6).tolist() for task, part in mine.groupby("task")}
    # The other runs 0.4 at a time until 1.2; the urgent one 1.2..2.2; 0.4 fit into its gap of 0.5; 2.7..3.7.
    assert spans["other"] == [[0.0, 1.2], [2.2, 2.6]]
    assert spans["urgent"] == [[1.2, 2.2], [2.7, 3.3]]
    assert rows["end_ms"].max() == pytest.approx(3.3)
