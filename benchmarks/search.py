"""The search: how fast HeShare's first stage is against pymoo, and how good everybody's final fronts are.

Times are wall times of the search alone, one after the other on one core; the rivals' external archive is kept
afterwards, outside their time, HeShare's own is kept inside it. HeShare+ gets the time that NSGA-II took.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

import heshare
from heshare.scheduling import rivals
from heshare.scheduling.costs import BatchCosts
from heshare.scheduling.effort import Effort
from heshare.scheduling.improved import Search
from heshare.scheduling.indicators import Yardstick, random_level
from heshare.scheduling.objectives import FloatArray, Instance, instance
from heshare.scheduling.planner import configure
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

CLUSTER = "4xT4,2xV100,2xA100"
TASKS = 60
RATES: tuple[rivals.Rate, ...] = (0.1, "1/n")
NAMES = ("nsga2", "spea2", "moead")


@cache
def world(seed: int) -> Instance:
    """The task set of a seed."""
    return instance(heshare.task_set(TASKS, seed=seed), Cluster.parse(CLUSTER), predictor())


@cache
def predictor() -> Any:
    """What is believed, with what it has answered so far."""
    return heshare.load_predictor()


def one_seed(seed: int) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Everybody's final front of one task set, and how long the searches took, s."""
    here, settings = world(seed), Settings()
    stages = {"heshare": rivals.own_stages(here, settings, rng(seed), (rivals.EVALUATIONS,))[-1]}
    for rate in RATES:
        for name in NAMES:
            run = rivals.stages(name, here, rivals.FAIR, rng(seed), (rivals.EVALUATIONS,), rate=rate)
            stages[f"{name} at {rate}"] = run[-1]
    batched = rivals.stages("moead-batched", here, rivals.FAIR, rng(seed), (rivals.EVALUATIONS,), rate=0.1)
    times_s = {title: stage.seconds for title, stage in stages.items()} | {"moead batched": batched[-1].seconds}
    fronts = {title: configure(stage.schemes, here, predictor(), settings)[1] for title, stage in stages.items()}
    fronts["plus"] = improved(here, seed, times_s["nsga2 at 0.1"])
    return fronts, times_s


def improved(here: Instance, seed: int, budget_s: float) -> FloatArray:
    """HeShare+ in a budget, the predictor's tables filled beforehand as they are for the others."""
    effort = Effort()
    costs = BatchCosts(here, predictor(), effort.freedom)
    Search(costs, Effort(rounds=2), rng(seed)).run()  # fills the tables
    search = Search(costs, effort, rng(seed))
    search.run(perf_counter() + budget_s)
    return search.archive.plans()[1]


def rng(seed: int) -> np.random.Generator:
    """The chance of a seed."""
    return np.random.default_rng(np.random.SeedSequence([seed, 1]))


def results(seeds: int) -> list[dict[str, object]]:
    """Every ratio, medians over the seeds; the best rival is run again with ten times the evaluations."""
    done = [one_seed(seed) for seed in range(seeds)]
    middle = {
        title: statistics.median(volumes(fronts, seed)[title] for seed, (fronts, _) in enumerate(done))
        for title in done[0][0]
    }
    best = max((title for title in middle if " at " in title), key=middle.__getitem__)
    for seed, (fronts, _) in enumerate(done):
        fronts["rival 10x"] = ten_times(best, seed)
    rows = [
        ratio(f"speed_vs_{name}", (times[f"{name} at 0.1"] / times["heshare"] for _, times in done)) for name in NAMES
    ]
    rows.append(ratio("speed_vs_moead_batched", (times["moead batched"] / times["heshare"] for _, times in done)))
    seen = [volumes(fronts, seed) for seed, (fronts, _) in enumerate(done)]
    rows.append(ratio("hv_plus_vs_faithful", (one["plus"] / one["heshare"] for one in seen)))
    for name in NAMES:
        rows.append(ratio(f"hv_plus_vs_{name}", (one["plus"] / one[f"{name} at 0.1"] for one in seen)))
        rows.append(ratio(f"hv_plus_vs_{name}_1n", (one["plus"] / one[f"{name} at 1/n"] for one in seen)))
        rows.append(ratio(f"hv_faithful_vs_{name}", (one["heshare"] / one[f"{name} at 0.1"] for one in seen)))
        rows.append(ratio(f"hv_faithful_vs_{name}_1n", (one["heshare"] / one[f"{name} at 1/n"] for one in seen)))
    rows.append(ratio("hv_plus_vs_best_rival_10x", (one["plus"] / one["rival 10x"] for one in seen)))
    rows.append({**ratio("search_stage1", (times["heshare"] for _, times in done)), "unit": "s"})
    return rows


def ten_times(title: str, seed: int) -> FloatArray:
    """The final front of a rival with ten times the evaluations."""
    name, rate = title.split(" at ")
    at: rivals.Rate = "1/n" if rate == "1/n" else float(rate)
    found = rivals.search(name, world(seed), rivals.FAIR, rng(seed), evaluations=10 * rivals.EVALUATIONS, rate=at)
    return configure(found, world(seed), predictor())[1]


def volumes(fronts: dict[str, FloatArray], seed: int) -> dict[str, float]:
    """Hypervolume of each front, relative to the union of all."""
    stick = Yardstick.of(list(fronts.values()), random_level(world(seed), np.random.default_rng(seed)))
    return {title: stick.hypervolume(front) for title, front in fronts.items()}


def ratio(name: str, values: Iterable[float]) -> dict[str, object]:
    """A row of the report: the median of some values."""
    sample = list(values)
    return {"name": name, "value": statistics.median(sample), "unit": "1", "n": len(sample)}
