"""Fig. 7: searches on the same task sets, compared by the fronts of their final plans, as run and as predicted.

A search of stage 1 finds schemes, the GPU of each task, and stage 2 configures them. The plans of all searches are run
on the same device model. Changes between searches are those of `heshare.paper.harness`: paired by repetition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from heshare.paper.harness import REPETITION, TITLE, Comparable
from heshare.paper.studies.front_indicators import FrontIndicators, random_plan_mean
from heshare.paper.studies.pymoo_searches import Rate, SearchCheckpoint, genetic_checkpoints, search_checkpoints
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import BatchModel, plan_objectives
from heshare.scheduling.configuration import configure
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.plan import Plan
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray

Run = Callable[..., list[SearchCheckpoint]]
"""Searches an `Instance` with the random numbers `rng`; returns the front after some numbers of evaluations."""
Planner = Callable[..., Iterable[Plan]]
"""Returns plans, such as a front, of tasks, a cluster and a predictor, with the random numbers `rng`."""
_SEARCH, _PLANNER, _REFERENCE = 1, 2, 3
"""Random streams of a repetition: of the searches, of the planners, and of the random plans."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search of stage 1, and the settings with which stage 2 configures its schemes."""

    run: Run
    settings: Settings


def genetic(settings: Settings, checkpoints: Sequence[int] = ()) -> Search:
    """Return HeShare's search; fronts are recorded after those `checkpoints` (evaluations) that end a generation."""
    return Search(partial(genetic_checkpoints, settings=settings, checkpoints=_ends(settings, checkpoints)), settings)


def pymoo_search(name: str, settings: Settings, checkpoints: Sequence[int] = (), *, rate: Rate = 0.1) -> Search:
    """Return a search of pymoo, a key of `pymoo_searches.TITLES`, with the second stage of `settings`.

    `settings.initialisation` is `random` for random schemes, or `rank` for HeShare's initial population; `rate` is the
    chance that a task mutates.
    """
    ends = _ends(settings, checkpoints)
    return Search(partial(search_checkpoints, name, settings=settings, checkpoints=ends, rate=rate), settings)


def _ends(settings: Settings, checkpoints: Sequence[int]) -> list[int]:
    last = settings.population * settings.generations
    return [*(at for at in sorted(checkpoints) if at < last and at % settings.population == 0), last]


@dataclass(frozen=True)
class Study:
    """Results of searches on the same task sets, with the columns `title` and `repetition`.

    Attributes:
        final: one row a task set and search. Of its final plans as run: `hypervolume` and `igd_plus`, and `extent` and
            `spacing` of those that no other one dominates. As predicted: `predicted_hypervolume`, and its `points`.
        curves: one row a task set, search and number of `evaluations`: `hypervolume` of stage 1's front, as predicted.
        fronts: one row a plan of a search, non-dominated as run: `energy_j`, `jct_s`.
    """

    final: pd.DataFrame
    curves: pd.DataFrame
    fronts: pd.DataFrame


def compare(
    setting: Comparable,
    searches: Mapping[str, Search],
    *,
    seeds: int,
    seed: int = 0,
    planners: Mapping[str, Planner] = MappingProxyType({}),
    device: Predictor | None = None,
) -> Study:
    """Return the results of searches on the same task sets.

    Args:
        setting: the tasks, GPUs and predictor.
        searches: the searches by title.
        seeds: number of task sets.
        seed: that of the first task set and of its searches; the next ones follow.
        planners: by title, functions that return plans, in place of schemes that stage 2 configures.
        device: runs the plans: a predictor without errors; by default the device model.
    """
    predictor = setting.make_predictor()
    runs_plans = device or DevicePredictor()
    final: list[dict[str, object]] = []
    curves: list[dict[str, object]] = []
    fronts: list[pd.DataFrame] = []

    for number in tqdm(range(seed, seed + seeds), desc="task sets", leave=False):
        tasks = setting.draw(rng=np.random.default_rng(number))
        instance = make_instance(tasks, setting.gpus, predictor)
        model = BatchModel(instance, predictor)

        stages = {title: each.run(instance, rng=_rng(number, _SEARCH)) for title, each in searches.items()}
        plans: dict[str, Sequence[Plan]] = {
            title: configure(stage[-1].schemes, instance, model, searches[title].settings)[0]
            for title, stage in stages.items()
        }
        for title, planner in planners.items():
            plans[title] = list(planner(instance.tasks, setting.gpus, predictor, rng=_rng(number, _PLANNER)))

        actual = make_instance(tasks, setting.gpus, runs_plans)
        actual_model = BatchModel(actual, runs_plans)
        predicted = {title: plan_objectives(each, instance, model) for title, each in plans.items()}
        run = {title: plan_objectives(each, actual, actual_model) for title, each in plans.items()}

        final += _final(predicted, run, instance, actual, number)
        curves += _curves(stages, instance, number)
        fronts += [_front(points, title, number) for title, points in run.items()]

    return Study(pd.DataFrame(final), pd.DataFrame(curves), pd.concat(fronts, ignore_index=True))


def _rng(number: int, stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([number, stream]))


def _front(points: FloatArray, title: str, number: int) -> pd.DataFrame:
    """Return the non-dominated points by energy."""
    energy_j, jct_s = points[non_dominated(points)].T
    frame = pd.DataFrame({REPETITION: number, TITLE: title, "energy_j": energy_j, "jct_s": jct_s})
    return frame.sort_values("energy_j")


def _final(
    predicted: Mapping[str, FloatArray],
    run: Mapping[str, FloatArray],
    instance: Instance,
    actual: Instance,
    number: int,
) -> list[dict[str, Any]]:
    """Return a row a search, from the objectives of its final plans as predicted and as run."""
    by_prediction = FrontIndicators.of(list(predicted.values()), random_plan_mean(instance, _rng(number, _REFERENCE)))
    as_run = FrontIndicators.of(list(run.values()), random_plan_mean(actual, _rng(number, _REFERENCE)))
    return [
        {
            REPETITION: number,
            TITLE: title,
            "hypervolume": as_run.hypervolume(run[title]),
            "igd_plus": as_run.igd_plus(run[title]),
            "predicted_hypervolume": by_prediction.hypervolume(front),
            "extent": as_run.extent(run[title][non_dominated(run[title])]),
            "spacing": as_run.spacing(run[title][non_dominated(run[title])]),
            "points": len(front),
        }
        for title, front in predicted.items()
    ]


def _curves(stages: Mapping[str, list[SearchCheckpoint]], instance: Instance, number: int) -> list[dict[str, Any]]:
    """Return a row a search and checkpoint, of stage 1's front as predicted."""
    last = [stage[-1].schemes.objectives for stage in stages.values()]
    indicators = FrontIndicators.of(last, random_plan_mean(instance, _rng(number, _REFERENCE)))
    return [
        {
            REPETITION: number,
            TITLE: title,
            "evaluations": checkpoint.schemes.evaluations,
            "hypervolume": indicators.hypervolume(checkpoint.schemes.objectives),
        }
        for title, stage in stages.items()
        for checkpoint in stage
    ]
