"""Searches side by side, on a toy world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.experiments.studies import search_fronts
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

SETTINGS = Settings(generations=20, solutions=20)
CLUSTER = Cluster.parse("1xT4,1xV100,1xA100")
SETS = {seed: mixed_tasks(12, seed) for seed in (3, 4)}


@pytest.fixture(scope="module")
def study() -> search_fronts.Study:
    runners = search_fronts.systems(SETTINGS, {0.1: ["nsga2"], "1/n": ["spea2"]})
    toy = Toy(demand=DEMANDS)
    return search_fronts.compare(SETS, CLUSTER, toy, runners=runners, settings=SETTINGS, improved=None)


def test_compare_runs_every_system_with_every_seed(study: search_fronts.Study) -> None:
    titles = ["HeShare", "NSGA-II at 0.1", "SPEA2 at 1/n"]
    assert list(dict.fromkeys(study.final["system"])) == titles
    assert study.final.groupby("system")["seed"].apply(sorted).tolist() == [[3, 4]] * 3
    assert study.final["hypervolume"].between(0, 1 + 1e-12).all()
    assert set(study.curves["evaluations"]) == {500, 1000}


def test_compare_hypervolume_never_falls_with_evaluations(study: search_fronts.Study) -> None:
    for _, one in study.curves.groupby(["system", "seed"]):
        assert one["hypervolume"].is_monotonic_increasing
        assert one["seconds"].is_monotonic_increasing


def test_compare_repeats_except_for_its_times(study: search_fronts.Study) -> None:
    runners = search_fronts.systems(SETTINGS, {0.1: ["nsga2"], "1/n": ["spea2"]})
    again = search_fronts.compare(SETS, CLUSTER, Toy(demand=DEMANDS), runners=runners, settings=SETTINGS, improved=None)
    pd.testing.assert_frame_equal(again.final, study.final)
    pd.testing.assert_frame_equal(again.curves.drop(columns="seconds"), study.curves.drop(columns="seconds"))


def frame(ours: list[float], theirs: list[float]) -> pd.DataFrame:
    rows = [("HeShare", at, value) for at, value in enumerate(ours)]
    rows += [("SPEA2 at 0.1", at, value) for at, value in enumerate(theirs)]
    return pd.DataFrame(rows, columns=["system", "seed", "hypervolume"]).assign(igd_plus=0.1)


def test_covers_more_holds_only_if_the_whole_interval_does() -> None:
    rng = np.random.default_rng(0)
    better = search_fronts.covers_more(frame([1.0, 0.99, 0.98, 0.97], [0.9, 0.9, 0.9, 0.9]), rng)
    assert better["holds"] == {"SPEA2 at 0.1": True}
    assert better["measured"] == pytest.approx(100 * (0.985 / 0.9 - 1))
    unsure = search_fronts.covers_more(frame([1.0, 0.8, 1.0, 0.8], [0.9, 0.9, 0.9, 0.9]), rng)
    assert unsure["holds"] == {"SPEA2 at 0.1": False}


def test_surfaces_begin_at_the_best_objectives(study: search_fronts.Study) -> None:
    one = replace(study, fronts={title: own[:1] for title, own in study.fronts.items()})
    drawn = search_fronts.surfaces(one, list(study.fronts))
    assert drawn["energy"].min() == pytest.approx(1.0)
    assert drawn["jct"].min() == pytest.approx(1.0)


def test_ablation_replaces_one_part_at_a_time() -> None:
    base = Settings(generations=5, solutions=10)
    for name, changes in search_fronts.ABLATIONS.items():
        changed = [field for field, value in changes.items() if getattr(base, field) != value]
        assert len(changed) == (0 if name == "as it is" else 1), name
    found = search_fronts.ablation({3: SETS[3]}, CLUSTER, Toy(demand=DEMANDS), base=base)
    assert len(found) == len(search_fronts.ABLATIONS) + 1
    table = found.set_index("system")["hypervolume"]
    assert table["as it is"] > table["no sharing"]


def test_plan_objectives_are_those_that_plans_were_chosen_by() -> None:
    toy = Toy(demand=DEMANDS)
    world = make_instance(SETS[3], CLUSTER, toy)
    for settings in (SETTINGS, replace(SETTINGS, clock_scope="plan")):
        plans, own = configure(search(world, settings, np.random.default_rng(0)), world, toy, settings)
        assert search_fronts.plan_objectives(plans, world, toy) == pytest.approx(own)
    literal = Settings.literal(generations=20, solutions=20)
    plans, own = configure(search(world, literal, np.random.default_rng(0)), world, toy, literal)
    judged = search_fronts.plan_objectives(plans, world, toy)
    assert (judged <= own * (1 + 1e-9)).all(), "tasks that speed up when others end are no slower than by Eq. 13"
    assert (judged < own * (1 - 1e-3)).any()
