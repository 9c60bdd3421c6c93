"""Reasons of failed claims: the numbers of the experiments and the sentences made from them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heshare.devices.task_sizes import draw
from heshare.lab.plus.optimum.exact_front import exact_front
from heshare.lab.plus.search_settings import BatchChoices
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper.claims import failure_reasons as reasons
from heshare.paper.studies.optimality_gap import device_front
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.world.cluster import Cluster


def table(bound: float, own: float, **swept: float) -> pd.DataFrame:
    sizes = {"En-opt": own, "Trade-off": own + 5, reasons.ON_DEVICE: own - 1, reasons.BOUND: bound}
    rows = [
        reasons.row("T4", name, reasons._ENERGY, ConfidenceInterval(value, value - 1, value + 1, 3))
        for name, value in sizes.items()
    ]
    rows += [
        reasons.row("T4", name, reasons._SWEPT, ConfidenceInterval(value, value, value, 3))
        for name, value in swept.items()
    ]
    return pd.DataFrame(rows)


def test_reason_of_o3_is_the_bound_if_its_whole_interval_misses_the_papers_value() -> None:
    swept = {"Morak (k 1)": -5.0, "Morak": -14.0, "Morak (cap 1.0, k 4)": -30.0}
    reason = reasons._why_o3(table(-15.0, -13.0, **swept), -28.0, "8 tasks on two T4, 3 seeds")
    assert reason.startswith("no plan that the bound is about can (8 tasks on two T4, 3 seeds)")
    assert "at most 3 tasks at 48 clocks" in reason
    assert "is -15 % [-16, -14] against Morak at its defaults; En-opt takes -13 % [-14, -12], and -14 % [" in reason
    assert reason.endswith("Of 3 settings of Morak's, En-opt reaches the paper's value only at cap 1.0, k 4.")
    reason = reasons._why_o3(table(-29.0, -13.0, **{"Morak": -14.0}), -28.0, "8 tasks")
    assert reason.startswith("a plan might, but En-opt does not")
    assert reason.endswith("En-opt reaches the paper's value at none.")


@pytest.mark.parametrize("name", ["morak", "mu-serve", "heshare:en-opt", "random"])
def test_least_energy_j_is_no_more_than_the_energy_of_any_policy(name: str) -> None:
    least_j = reasons.least_energy_j(4, "2xT4", seed=0, repetition=1)
    tasks = draw(4, rng=np.random.default_rng(np.random.SeedSequence(0, spawn_key=(1, 0))))
    done = run(tasks, Cluster.parse("2xT4"), make(name), predictor=DevicePredictor(), rng=np.random.default_rng(0))
    assert least_j <= done.energy_active_j * (1 + 1e-9)


@cache
def least_energies_j(**where: Any) -> tuple[float, float]:
    """Among the plans of the claims' searches, and of all."""
    return reasons.least_energy_j(**where, choices=BatchChoices()), reasons.least_energy_j(**where)


@pytest.mark.parametrize(
    ("outside", "below_pct"),
    [
        (BatchChoices(clocks=100), (0.3, 2.0)),
        (BatchChoices(mps_variants=100), (-0.1, 0.0)),
        (BatchChoices(width=4), (-0.1, 0.0)),
        (BatchChoices(clocks=100, width=4, mps_variants=100, mps_width=3), (0.65, 2.0)),
    ],
    ids=["more clocks", "more MPS percentages of pairs", "larger batches", "all, and MPS percentages of three"],
)
def test_plans_outside_the_defaults_pass_below_their_bound_and_not_below_that_of_the_claims(
    outside: BatchChoices, below_pct: tuple[float, float]
) -> None:
    where: dict[str, Any] = {"n": 4, "cluster": "2xA100", "seed": 0, "repetition": 2}
    narrow_j, wide_j = least_energies_j(**where)
    tasks = draw(4, rng=np.random.default_rng(np.random.SeedSequence(0, spawn_key=(2, 0))))
    front = exact_front(tasks, Cluster.parse("2xA100"), DevicePredictor(), choices=outside)
    cheapest_j = device_front(front, points=len(front), rng=np.random.default_rng(0))["energy_j"].min()
    assert below_pct[0] <= 100 * (1 - cheapest_j / narrow_j) <= below_pct[1]
    assert cheapest_j >= wide_j


def test_energy_on_one_kind_has_a_reason_for_each_of_its_claims() -> None:
    how = {"shares": [2, 4], "caps": [0.8], "seed": 0, "seeds": 2}
    rows, why = reasons.energy_on_one_kind(["V100"], 3, **how)  # type: ignore[arg-type]
    assert set(why) == {("O3", "V100"), ("O4", "")}
    here = rows[rows["study"] == "V100"]
    sizes = {name: part["value"].tolist() for name, part in here.groupby("variant")}
    assert sizes[reasons.BOUND][0] <= sizes["En-opt"][0]
    assert set(sizes) == {"En-opt", "Trade-off", reasons.ON_DEVICE, reasons.BOUND, "Morak", "Morak (k 4)"}
    assert (rows["low"] <= rows["value"]).all()
    cells = reasons.by_setting(rows, ["V100"], [2, 4], [0.8]).set_index(["axis", "level"])
    assert cells.index.tolist() == [
        ("possible", "proven bound"),
        ("possible", "knowing the device"),
        ("En-opt", "defaults"),
        ("cap 0.8", "k 2"),
        ("cap 0.8", "k 4"),
    ]
    assert cells["change_pct"].tolist() == [
        *(sizes[name][0] for name in (reasons.BOUND, reasons.ON_DEVICE, "En-opt", "Morak", "Morak (k 4)")),
    ]
