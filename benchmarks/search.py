"""Speed of HeShare's first stage against pymoo's algorithms, and hypervolumes of all final fronts.

Times are wall times of the searches alone, one after the other on one core. The rivals' external archives are made
afterwards, outside their time; HeShare's own is inside its time. HeShare+ gets the time that NSGA-II took. The rivals
start at random; the ranked ones start with HeShare's initial population. Only times need pymoo itself: what is run for
its hypervolume alone (rate 1/n, ranked, ten times the evaluations) is `array_searches`, which finds pymoo's schemes to
the last bit in less time. MOEA/D is unbatched at rate 0.1, and in batches of a generation in all that.
"""

from __future__ import annotations

import statistics
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
from bench_rows import Row, sample_row

import heshare
from heshare.arrays import FloatArray
from heshare.experiments.studies.front_indicators import FrontIndicators, random_plan_mean
from heshare.experiments.studies.searches import array_searches, pymoo_searches
from heshare.plus.costs import BatchCosts
from heshare.plus.search_settings import SearchSettings
from heshare.plus.weighted_search import WeightedSearch
from heshare.scheduling.configuration import configure
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

CLUSTER = "4xT4,2xV100,2xA100"
TASKS = 60
NAMES = ("nsga2", "spea2", "moead")
UNTIMED = {"nsga2": "nsga2", "spea2": "spea2", "moead": "moead-batched"}
"""Search of `array_searches` for each rival."""


@cache
def world(seed: int) -> Instance:
    """Return the instance of a seed."""
    return make_instance(heshare.task_set(TASKS, seed=seed), Cluster.parse(CLUSTER), predictor())


@cache
def predictor() -> Any:
    """Return the predictor that all searches share, with its cache."""
    return heshare.load_predictor()


def one_seed(seed: int) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Return the final front of each system on one task set, and the times of the searches, s."""
    instance, settings = world(seed), Settings()
    stages = {
        "heshare": pymoo_searches.genetic_checkpoints(instance, settings, rng(seed), (pymoo_searches.EVALUATIONS,))[-1]
    }
    for name in NAMES:
        run = pymoo_searches.search_checkpoints(
            name, instance, pymoo_searches.RANDOM_START, rng(seed), (pymoo_searches.EVALUATIONS,), rate=0.1
        )
        stages[f"{name} at 0.1"] = run[-1]
        for title, start in (("at 1/n", pymoo_searches.RANDOM_START), ("ranked", Settings(initialisation="rank"))):
            run = array_searches.search_checkpoints(
                UNTIMED[name], instance, start, rng(seed), (pymoo_searches.EVALUATIONS,), rate="1/n"
            )
            stages[f"{name} {title}"] = run[-1]
    batched = pymoo_searches.search_checkpoints(
        "moead-batched", instance, pymoo_searches.RANDOM_START, rng(seed), (pymoo_searches.EVALUATIONS,), rate=0.1
    )
    times_s = {title: stage.seconds for title, stage in stages.items()} | {"moead batched": batched[-1].seconds}
    fronts = {title: configure(stage.schemes, instance, predictor(), settings)[1] for title, stage in stages.items()}
    fronts["plus"] = improved(instance, seed, times_s["nsga2 at 0.1"])
    return fronts, times_s


def improved(instance: Instance, seed: int, budget_s: float) -> FloatArray:
    """Return HeShare+'s front within a budget; the tables of predictions are filled before, as for the others."""
    settings = SearchSettings()
    costs = BatchCosts(instance, predictor(), settings.choices)
    # An unreported search first: it compiles, and fills the tables.
    WeightedSearch(costs, SearchSettings(rounds=2), rng(seed)).run()
    search = WeightedSearch(costs, settings, rng(seed))
    search.run(perf_counter() + budget_s)
    return search.front().objectives


def rng(seed: int) -> np.random.Generator:
    """Return the random generator of a seed."""
    return np.random.default_rng(np.random.SeedSequence([seed, 1]))


def results(seeds: int = 10) -> list[Row]:
    """Return all ratios over the seeds; the best rival also runs with ten times the evaluations."""
    done = [one_seed(seed) for seed in range(seeds)]
    medians = {
        title: statistics.median(volumes(fronts, seed)[title] for seed, (fronts, _) in enumerate(done))
        for title in done[0][0]
    }
    best = max((title for title in medians if " at " in title), key=medians.__getitem__)
    for seed, (fronts, _) in enumerate(done):
        fronts["rival 10x"] = ten_times(best, seed)
    rows = [
        sample_row(f"speed_vs_{name}", (times[f"{name} at 0.1"] / times["heshare"] for _, times in done))
        for name in NAMES
    ]
    rows.append(sample_row("speed_vs_moead_batched", (times["moead batched"] / times["heshare"] for _, times in done)))
    by_seed = [volumes(fronts, seed) for seed, (fronts, _) in enumerate(done)]
    rows.append(sample_row("hv_plus_vs_faithful", (volume["plus"] / volume["heshare"] for volume in by_seed)))
    for name in NAMES:
        rows.append(sample_row(f"hv_plus_vs_{name}", (volume["plus"] / volume[f"{name} at 0.1"] for volume in by_seed)))
        rows.append(
            sample_row(f"hv_plus_vs_{name}_1n", (volume["plus"] / volume[f"{name} at 1/n"] for volume in by_seed))
        )
        rows.append(
            sample_row(f"hv_faithful_vs_{name}", (volume["heshare"] / volume[f"{name} at 0.1"] for volume in by_seed))
        )
        rows.append(
            sample_row(
                f"hv_faithful_vs_{name}_1n", (volume["heshare"] / volume[f"{name} at 1/n"] for volume in by_seed)
            )
        )
    ranked = [
        sample_row("hv_plus_vs_ranked_1n", (volume["plus"] / volume[f"{name} ranked"] for volume in by_seed))
        for name in NAMES
    ]
    rows.append(min(ranked, key=lambda row: float(row["value"])))
    rows.append(sample_row("hv_plus_vs_best_rival_10x", (volume["plus"] / volume["rival 10x"] for volume in by_seed)))
    rows.append(sample_row("search_stage1", (times["heshare"] for _, times in done), "s"))
    return rows


def ten_times(title: str, seed: int) -> FloatArray:
    """Return the final front of a rival with ten times the evaluations."""
    name, rate = title.split(" at ")
    mutation_rate: pymoo_searches.Rate = "1/n" if rate == "1/n" else float(rate)
    run = array_searches.search_checkpoints(
        UNTIMED[name],
        world(seed),
        pymoo_searches.RANDOM_START,
        rng(seed),
        (10 * pymoo_searches.EVALUATIONS,),
        rate=mutation_rate,
    )
    return configure(run[-1].schemes, world(seed), predictor())[1]


def volumes(fronts: dict[str, FloatArray], seed: int) -> dict[str, float]:
    """Return the hypervolume of each front, relative to the union of all."""
    indicators = FrontIndicators.of(list(fronts.values()), random_plan_mean(world(seed), np.random.default_rng(seed)))
    return {title: indicators.hypervolume(front) for title, front in fronts.items()}
