"""Unknown names: every place that takes a name suggests the nearest known one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heshare as hs
from heshare.lab.sweeps.grid import parse_grid
from heshare.paper.notebooks import output_folders, parameters
from heshare.policies.registry import make
from heshare.shared.errors import InputError, suggestion, unknown


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: make("morack"), "morak"),
        (lambda: make("HeShare:Trade-off"), "heshare:trade-off"),
        (lambda: make("morak(kap=0.7)"), "cap"),
        (lambda: hs.estimate("V10", ["resnet50:8"]), "V100"),
        (lambda: hs.Cluster.parse("2xRTX4091"), "RTX-4090"),
        (lambda: hs.estimate("V100", ["resnet51:8"]), "resnet50"),
        (lambda: hs.task_set(4, load="meduim"), "medium"),
        (lambda: hs.task_set(4, arrivals="exponentail"), "exponential"),
        (lambda: parameters.find(["04_comparson"]), "04_comparison"),
        (lambda: output_folders.folder_for("papper"), "paper"),
        (lambda: parse_grid({"policy": "random"}), "policies"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_known_one(call, meant: str) -> None:
    with pytest.raises(InputError, match=f"Did you mean '{meant}'"):
        call()


def test_a_name_that_is_like_no_other_gets_the_list_and_the_advice() -> None:
    error = unknown("zzz", ["a", "b"], "Describe it.", column="gpu")
    assert str(error) == "argument gpu: found 'zzz'; expected one of a, b. Describe it."


def test_a_long_list_is_left_out_beside_a_suggestion() -> None:
    known = [f"policy-{number}" for number in range(60)]
    assert "one of the 60 known names. Did you mean 'policy-5'?" in str(unknown("polici-5", known))
    assert "policy-59" in str(unknown("zzz", known))


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5), st.text(max_size=8))
def test_suggestion_is_a_known_name_or_the_other_sentence(known: list[str], name: str) -> None:
    assert suggestion(name, known, "No.") in {"No.", *(f"Did you mean {each!r}?" for each in known)}
