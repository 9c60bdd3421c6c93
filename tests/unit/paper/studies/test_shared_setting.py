"""Comparison of all systems in one shared setting: changes at each load, who dominates whom, ties."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heshare.paper.studies import shared_setting


def test_changes_by_load_are_paired_by_repetition():
    rows = [
        (load, repetition, title, energy * (1 + repetition), jct)
        for load in ("low", "high")
        for title, energy, jct in (("A", 110.0, 80.0), ("B", 100.0, 100.0))
        for repetition in ((0, 1) if title == "A" else (1, 0))
    ]
    runs = pd.DataFrame(rows, columns=["load", "repetition", "title", shared_setting.ENERGY, shared_setting.JCT])
    found = shared_setting.changes_by_load(runs, "A", "B")
    for sizes in (found["low"], found["high"]):
        assert [(size.low, size.high) for size in sizes] == [pytest.approx((10, 10)), pytest.approx((-20, -20))]


def in_one_world(points: dict[str, tuple[float, float]]) -> pd.DataFrame:
    rows = [
        {"load": "high", "title": title, shared_setting.ENERGY: energy, shared_setting.JCT: jct, "repetition": 0}
        for title, (energy, jct) in points.items()
    ]
    runs = pd.DataFrame(rows).assign(
        **dict.fromkeys(["energy_cluster_j", "median_jct_s", "p99_jct_s", "utilisation"], 1.0)
    )
    return shared_setting.medians(runs, ["load"])


POINTS = {
    "FIFO": (9.0, 9.0),
    "SJF": (2.0, 8.1),
    "EaCO": (2.0, 2.1),
    "Random": (10.0, 10.0),
    "Marginal, 30 W": (1.0, 8.0),
    "Marginal": (1.9, 2.0),
}


def test_a_system_that_no_other_beats_in_both_measures_is_not_dominated() -> None:
    table = in_one_world(POINTS)
    assert shared_setting.non_dominated(table) == {"high": ["Marginal, 30 W", "Marginal"]}


def test_pareto_panels_name_the_best_and_those_asked_for_and_draw_the_others_as_dots() -> None:
    table = in_one_world(POINTS)
    figure, ax = plt.subplots(figsize=(3, 3), layout="constrained")
    shared_setting.pareto_panels([ax], table, ["EaCO"])
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    marks = {"Marginal, waiting costs 30 W", "Marginal", "EaCO"}
    assert names == marks | {"none is better in both", "all others"}
    assert len(next(line for line in ax.lines if line.get_marker() == ".").get_xdata()) == len(POINTS) - len(marks)
    assert len([tick for tick in ax.get_yticks() if ax.get_ylim()[0] <= tick <= ax.get_ylim()[1]]) >= 3
    plt.close(figure)


def test_a_win_holds_in_every_repetition_or_not_and_rows_are_sorted() -> None:
    products = {"FIFO": [1.0, 3.0, 3.0], "SJF": [2.0, 2.0, 2.0], "EaCO": [3.0, 3.0, 2.5]}
    rows = [
        (mix, "low", title, at, value if mix == "m" or title != "SJF" else 0.5, 1.0)
        for mix in ("m", "k")
        for title, values in products.items()
        for at, value in enumerate(values)
    ]
    columns = ["mix", "load", "title", "repetition", shared_setting.ENERGY, shared_setting.JCT]
    runs = pd.DataFrame(rows, columns=columns)
    won = shared_setting.wins(runs, ["mix", "load"]).set_index("mix")
    assert won["title"].to_dict() == {"m": "SJF", "k": "SJF"}
    assert won["always"].to_dict() == {"m": False, "k": True}
    figure, ax = plt.subplots()
    shared_setting.product_rows(ax, shared_setting.energy_jct_products(runs, ["mix", "load"]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["SJF", "FIFO", "EaCO"]
    plt.close(figure)
