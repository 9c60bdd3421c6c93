"""Power budgets: what is read, what is refused, and the moment furthest above a limit."""

from __future__ import annotations

import math

import pytest

from heshare.lab.limits.power_budget import LimitExcess, PowerBudget, largest_excess
from heshare.running.timeline import Segment
from heshare.shared.errors import InputError


def test_parse_takes_watts_text_files_and_budgets(tmp_path):
    file = tmp_path / "limit.csv"
    file.write_text("time_s,limit_w\n0,900\n60.5,1200\n")
    stepped = PowerBudget((0.0, 60.5), (900.0, 1200.0))
    assert PowerBudget.parse(file) == PowerBudget.parse(str(file)) == stepped == PowerBudget.parse(stepped)
    assert PowerBudget.parse("900") == PowerBudget.parse(900) == PowerBudget.constant(900.0)
    assert PowerBudget.of_json(stepped.to_json()) == stepped
    assert (str(stepped), str(PowerBudget.constant(900.0))) == ("900 to 1200 W in 2 steps", "900 W")


def test_at_and_next_step_follow_the_steps():
    budget = PowerBudget((0.0, 60.0, 120.0), (900.0, 1200.0, 600.0))
    assert [budget.at(time_s) for time_s in (0, 59.9, 60.0 - 1e-12, 60, 500)] == [900, 900, 1200, 1200, 600]
    assert [budget.next_step_s(time_s) for time_s in (0, 60, 120)] == [60, 120, math.inf]
    assert budget.shifted(70.0) == PowerBudget((0.0, 50.0), (1200.0, 600.0))
    assert budget.shifted(0.0) is budget


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (0, "above 0"), (-5, "above 0"), (math.nan, "above 0"), (math.inf, "above 0"), ("nan", "above 0"),
        (True, "watts, or a CSV file"), ([900], "watts, or a CSV file"), ("no-such.csv", "no number and no file"),
        ("9_00", "no number and no file"),
    ],
)  # fmt: skip
def test_parse_refuses_what_is_no_limit(source, words):
    with pytest.raises(InputError, match=words):
        PowerBudget.parse(source)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time_s,limit_w\n", "no row"),
        ("time_s,limit_w\n5,900\n", "row 2, column time_s: .*0 in the first row"),
        ("time_s,limit_w\n0,900\n0,800\n", "row 3, column time_s: .*above 0"),
        ("time_s,limit_w\n0,-1\n", "row 2, column limit_w: .*above 0"),
        ("time_s,limit_w\n0,\n", "row 2, column limit_w: found an empty cell"),
        ("time_s,watts\n0,900\n", "limit_w: found a header without it"),
        ("time_s,limit_w,note\n0,900,x\n", "note: found an unknown column"),
    ],
)
def test_parse_names_the_row_and_column_of_a_bad_file(tmp_path, text, words):
    file = tmp_path / "limit.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        PowerBudget.parse(file)


def test_steps_must_ascend_from_zero():
    for times_s, limits_w in [((1.0,), (5.0,)), ((0.0, 0.0), (5.0, 6.0)), ((0.0,), ()), ((), ())]:
        with pytest.raises(InputError):
            PowerBudget(times_s, limits_w)


def segment(gpu, start_s, end_s, power_w):
    return Segment(gpu, start_s, end_s, None, 1000.0, power_w, ())


def test_largest_excess_sees_steps_of_power_and_of_the_limit():
    segments = [segment(0, 0.0, 10.0, 100.0), segment(1, 0.0, 4.0, 50.0), segment(1, 4.0, 10.0, 80.0)]
    assert largest_excess(segments, PowerBudget.constant(180.0)) is None
    assert largest_excess(segments, PowerBudget.constant(170.0)) == LimitExcess(4.0, 180.0, 170.0)
    assert largest_excess(segments, PowerBudget((0.0, 6.0), (180.0, 150.0))) == LimitExcess(6.0, 180.0, 150.0)
    assert largest_excess(segments, PowerBudget((0.0, 10.0), (180.0, 1.0))) is None
    assert largest_excess([], PowerBudget.constant(1.0)) is None
