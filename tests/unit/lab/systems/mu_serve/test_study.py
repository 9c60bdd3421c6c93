"""μ-Serve's study: requests and groups of models, power and limits, lower clocks over time and all at once."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from heshare.paper.studies.systems import mu_serve_study as study
from heshare.shared.errors import InputError

SETTING = study.StudySetting(window_s=60.0, warm_up_s=20.0)


def test_draw_requests_offers_the_load_in_the_window() -> None:
    long = replace(SETTING, window_s=4000.0, spread=0.5, burstiness=1.5)
    tasks = long.draw_requests(np.random.default_rng(0))
    busy_s = sum(task.iterations * study.alone_s("V100", task.workload) for task in tasks)
    assert busy_s / (long.gpus * long.window_s) == pytest.approx(long.load, rel=0.05)
    assert 0 < tasks[0].arrival_s < tasks[-1].arrival_s < long.window_s
    assert [task.id for task in tasks] == list(range(len(tasks)))


def test_a_window_that_ends_before_its_warm_up_is_refused() -> None:
    with pytest.raises(InputError, match=r"window_s: found 60\.0; expected more than 60 s"):
        study.StudySetting(window_s=60.0)


def test_run_systems_lowers_power_at_the_price_of_responses_only_where_the_clock_moves() -> None:
    runs = study.run_systems(SETTING, seed=0, seeds=1).set_index("title")
    top = runs.loc[study.TOP]
    assert (runs["requests"] == top["requests"]).all(), "the same requests for all"
    for title in (study.SLOWER, study.MU_SERVE, study.AIMED):
        assert runs.loc[title, "power_w"] < 0.97 * top["power_w"]
        assert runs.loc[title, "slowdown"] > top["slowdown"]
    assert runs.loc[study.BY_ITERATION, "power_w"] == pytest.approx(top["power_w"], rel=0.01)


def made_up() -> pd.DataFrame:
    """Six repetitions at two loads; μ-Serve takes 1/1.5 and 1/1.25 of the power and misses 4 and 0 points more."""
    rows = []
    for repetition in range(6):
        for load, ratio, lost in ((0.2, 1.5, 4.0), (0.4, 1.25, 0.0)):
            for title in (study.TOP, *study.SHOWN, study.BY_ITERATION):
                ours = title == study.MU_SERVE
                row = {"power_w": 100 / (ratio if ours else 1), "attained_pct": 99.0 - (lost if ours else 0)}
                rows.append({"repetition": repetition, "title": title, "load": load, "slowdown": 1.0, **row})
    return pd.DataFrame(rows)


def test_savings_and_claims_are_paired_with_the_top_clock() -> None:
    runs = made_up()
    found = study.savings(runs)
    own = found[found["title"] == study.MU_SERVE].set_index("load")
    assert own["ratio"].tolist() == pytest.approx([1.5, 1.25])
    assert own["lost_pct"].tolist() == [4, 0]
    limits = study.limits_claim(found)
    assert limits["holds"] == {"load 20 %": False, "load 40 %": True}
    assert limits["at"] == {"load": 0.2}


def pairs(column: str, ours: tuple[str, float], theirs: tuple[str, float]) -> pd.DataFrame:
    """Six repetitions of two systems with constant values."""
    rows = [
        {"repetition": number, "title": title, column: value} for number in range(6) for title, value in (ours, theirs)
    ]
    return pd.DataFrame(rows)


def test_claims_on_power_groups_and_order_stand_on_their_numbers() -> None:
    less, same = (pairs("power_w", (study.MU_SERVE, ours), (study.MIXED, 100.0)) for ours in (90.0, 100.0))
    orders = pairs("avg_jct_s", ("shortest first", 60.0), ("in order", 100.0))
    numbers = study.claim_numbers(made_up(), {1: less, 8: same}, orders)
    energies = pd.DataFrame({"gpu": ["V100", "V100"], "over_time_pct": [-20.0, -50.0]})
    least, most = (study.power_claim(numbers, energies, which) for which in (study.LEAST, study.MOST))
    assert (least["measured"], most["measured"]) == (pytest.approx(1.25), pytest.approx(1.5))
    assert "2.00x" in least["why"]
    groups = study.groups_claim(numbers, [1, 8])
    assert list(groups["holds"].values()) == [True, False]
    assert groups["measured"] == pytest.approx(-10)
    order = study.order_claim(numbers, SETTING)
    assert (order["measured"], order["testable"]) == (pytest.approx(-40), False)
