"""Comparison of searches on a toy cluster: what is measured of each, and by which evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import moocore
import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.paper.harness import change
from heshare.paper.studies import search_fronts
from heshare.paper.studies.front_indicators import random_plan_mean
from heshare.scheduling.batch_model import plan_objectives
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.plan import Plan
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task

SETTINGS = Settings(generations=20, solutions=20)
RANDOM = replace(SETTINGS, initialisation="random")
CLUSTER = Cluster.parse("1xT4,1xV100,1xA100")
DEVICE = Toy(demand={name: 2 * each for name, each in DEMANDS.items()})
"""What plans are run on: sharing costs more than the predictor says."""
SEEDS = (3, 4)


class ToySetting:
    """Twelve tasks on three GPUs."""

    gpus = CLUSTER

    def labels(self) -> dict[str, object]:
        return {}

    def draw(self, *, rng: np.random.Generator) -> Sequence[Task]:
        return mixed_tasks(12, int(rng.integers(100)))

    def make_predictor(self) -> Toy:
        return Toy(demand=DEMANDS)

    def make_devices(self, cluster: Cluster) -> None:
        return None


def compare(searches: dict[str, search_fronts.Search], **how: Any) -> search_fronts.Study:
    how = {"device": DEVICE, "seeds": len(SEEDS), "seed": SEEDS[0], **how}
    return search_fronts.compare(ToySetting(), searches, **how)


SEARCHES = {
    "HeShare": search_fronts.genetic(SETTINGS, [500, 333, 25_000]),
    "NSGA-II": search_fronts.pymoo_search("nsga2", RANDOM, [500]),
    "SPEA2": search_fronts.pymoo_search("spea2", SETTINGS, [500], rate="1/n"),
}


@pytest.fixture(scope="module")
def study() -> search_fronts.Study:
    return compare(SEARCHES)


def test_measures(study: search_fronts.Study) -> None:
    """Every search is measured on every task set, and at the checkpoints that end a generation; curves never fall."""
    measured = study.final.groupby("title", sort=False)["repetition"].apply(tuple)
    assert measured.to_dict() == dict.fromkeys(SEARCHES, SEEDS)
    measures = study.final[["hypervolume", "predicted_hypervolume"]]
    assert ((measures > 0) & (measures <= 1 + 1e-12)).all(axis=None)
    for _, one in study.curves.groupby(["title", "repetition"]):
        assert one["evaluations"].tolist() == [500, 1000]
        assert one["hypervolume"].is_monotonic_increasing


def test_fronts(study: search_fronts.Study) -> None:
    """Fronts are of plans as run, and have the reported hypervolume."""
    once = study.fronts[study.fronts["repetition"] == SEEDS[0]]
    fronts = {title: part[["energy_j", "jct_s"]].to_numpy() for title, part in once.groupby("title")}
    assert all(non_dominated(front).all() for front in fronts.values())

    tasks = ToySetting().draw(rng=np.random.default_rng(SEEDS[0]))
    level = random_plan_mean(make_instance(tasks, CLUSTER, DEVICE), search_fronts._rng(SEEDS[0], 3))
    areas = {title: moocore.hypervolume(front, ref=level) for title, front in fronts.items()}
    wanted = 100 * (areas["HeShare"] / areas["NSGA-II"] - 1)
    here = study.final[study.final["repetition"] == SEEDS[0]]
    assert change(here, "HeShare", "NSGA-II", "hypervolume").value == pytest.approx(wanted)


def test_run_and_predicted(study: search_fronts.Study) -> None:
    """Plans are judged as run and as predicted."""
    assert (study.final["predicted_hypervolume"] - study.final["hypervolume"]).abs().max() > 0.01
    same = compare(SEARCHES, device=Toy(demand=DEMANDS), seeds=1).final
    assert same["hypervolume"].tolist() == pytest.approx(same["predicted_hypervolume"].tolist())


def test_same_start() -> None:
    """Searches with HeShare's start begin with its initial population."""
    once = replace(SETTINGS, generations=1)
    searches = {
        "HeShare": search_fronts.genetic(once),
        "same": search_fronts.pymoo_search("nsga2", once),
        "random": search_fronts.pymoo_search("nsga2", replace(once, initialisation="random")),
    }
    world = make_instance(mixed_tasks(12, 3), CLUSTER, Toy(demand=DEMANDS))
    first = {
        title: each.run(world, rng=np.random.default_rng(7))[-1].schemes.objectives for title, each in searches.items()
    }

    def covers(title: str) -> bool:
        """Whether a rival's first front has, for each point of HeShare's, one that is no worse."""
        return all((first[title] <= point).all(axis=1).any() for point in first["HeShare"])

    assert covers("same")
    assert not covers("random")


def test_planner() -> None:
    """A planner of whole plans is judged as the searches are."""

    def everything_alone(tasks: Any, cluster: Any, predictor: Any, *, rng: Any) -> tuple[Plan, ...]:
        world = make_instance(tasks, cluster, predictor)
        return configure(search(world, SETTINGS, rng), world, predictor, replace(SETTINGS, batching="single"))[0]

    final = compare({"HeShare": SEARCHES["HeShare"]}, planners={"Alone": everything_alone}).final
    lead = change(final, "HeShare", "Alone", "predicted_hypervolume")
    assert lead.low > 0, "sharing is what the planner leaves out"
    assert change(final, "HeShare", "Alone", "hypervolume").value < lead.value, "sharing costs more on the device"


def test_plan_objectives() -> None:
    """Objectives of plans are those that they were chosen by."""
    toy = Toy(demand=DEMANDS)
    world = make_instance(mixed_tasks(12, 3), CLUSTER, toy)
    for settings in (SETTINGS, replace(SETTINGS, clock_scope="plan")):
        plans, own = configure(search(world, settings, np.random.default_rng(0)), world, toy, settings)
        assert plan_objectives(plans, world, toy) == pytest.approx(own)

    literal = Settings.literal(generations=20, solutions=20)
    plans, own = configure(search(world, literal, np.random.default_rng(0)), world, toy, literal)
    judged = plan_objectives(plans, world, toy)
    assert (judged <= own * (1 + 1e-9)).all(), "tasks that speed up when others end are no slower than by Eq. 13"
    assert (judged < own * (1 - 1e-3)).any()
