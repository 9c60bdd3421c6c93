"""Speed of HeShare's first stage against pymoo's algorithms, and hypervolumes of all final fronts.

Times are wall times of the searches alone, one after the other on one core. The rivals' external archives are made
afterwards, outside their time; HeShare's own is inside its time. HeShare+ gets the time that NSGA-II took, and in
`front_at_100ms` 0.1 s (its first round is always finished) and all its rounds. The rivals
start at random; the ranked ones start with HeShare's initial population. What is run for its hypervolume alone (rate
1/n, ranked, ten times the evaluations) runs on two cores after all that is timed. MOEA/D is unbatched at rate 0.1,
and in batches of a generation in all that. What takes longest is run on the first `SLOW_SEEDS` seeds only, which is
the n of its rows: MOEA/D at rate 0.1, and ten times the evaluations.

Rows that end with `_queues` compare the searches alone (`queue_evaluation`): the rivals, in the form in which they
cover most (rate 1/n, HeShare's initial population), search with HeShare+'s evaluation of a queue;
`hv_plus_vs_faithful_queues` gives HeShare+'s second stage to the schemes of HeShare's own search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
from bench_rows import Row, sample_row
from queue_evaluation import QueueRecord, front_of_schemes, weights_of_front
from two_processes import in_processes

import heshare
from heshare.lab.plus.batch_table import BatchTable
from heshare.lab.plus.heshare_plus import PlusSearch, SearchSettings
from heshare.paper.studies import pymoo_searches
from heshare.paper.studies.front_indicators import FrontIndicators, random_plan_mean
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray
from heshare.world.cluster import Cluster

CLUSTER = "4xT4,2xV100,2xA100"
TASKS = 60
SLOW_SEEDS = 5
EARLY_S = 0.1
NAMES = ("nsga2", "spea2", "moead")
UNTIMED = {"nsga2": "nsga2", "spea2": "spea2", "moead": "moead-batched"}
"""Search of each rival whose time is not reported."""


@cache
def world(seed: int) -> Instance:
    """Return the instance of a seed."""
    return make_instance(heshare.task_set(TASKS, seed=seed), Cluster.parse(CLUSTER), predictor())


@cache
def predictor() -> Any:
    """Return the predictor that all searches share, with its cache."""
    return heshare.load_predictor()


def timed(seed: int) -> tuple[dict[str, Schemes], dict[str, float], FloatArray]:
    """Return the final schemes of what is timed on one task set, the times, s, and the front of HeShare+."""
    instance, settings, most = world(seed), Settings(), (pymoo_searches.EVALUATIONS,)
    stages = {"heshare": pymoo_searches.genetic_checkpoints(instance, settings, rng(seed), most)[-1]}
    for name in (*NAMES, "moead-batched") if seed < SLOW_SEEDS else NAMES[:2]:
        stages[f"{name} at 0.1"] = pymoo_searches.search_checkpoints(
            name, instance, pymoo_searches.RANDOM_START, rng(seed), most, rate=0.1
        )[-1]
    times_s = {title: stage.seconds for title, stage in stages.items()}
    # Of MOEA/D in batches at this rate only the time is reported.
    stages.pop("moead-batched at 0.1", None)
    plus = improved(instance, seed, times_s["nsga2 at 0.1"])
    return {title: stage.schemes for title, stage in stages.items()}, times_s, plus


def fronts_of(seed: int, schemes: dict[str, Schemes]) -> dict[str, FloatArray]:
    """Return the fronts of final schemes, and of the rivals at rate 1/n, from random and from ranked schemes."""
    for name in NAMES:
        for title, start in (("at 1/n", pymoo_searches.RANDOM_START), ("ranked", Settings(initialisation="rank"))):
            run = pymoo_searches.search_checkpoints(
                UNTIMED[name], world(seed), start, rng(seed), (pymoo_searches.EVALUATIONS,), rate="1/n"
            )
            schemes = {**schemes, f"{name} {title}": run[-1].schemes}
    fronts = {title: configure(final, world(seed), predictor())[1] for title, final in schemes.items()}
    return {**fronts, **fronts_by_queues(seed, schemes["heshare"])}


def fronts_by_queues(seed: int, own: Schemes) -> dict[str, FloatArray]:
    """Return the fronts of the rivals that search with HeShare+'s evaluation of a queue, and of HeShare's schemes."""
    table = BatchTable(world(seed), predictor())
    weights = weights_of_front(table, rng(seed))
    found = {"heshare queues": front_of_schemes(own, table)}

    for name in NAMES:
        run = pymoo_searches.search_checkpoints(
            UNTIMED[name],
            world(seed),
            Settings(initialisation="rank"),
            rng(seed),
            (pymoo_searches.EVALUATIONS,),
            rate="1/n",
            record=QueueRecord(table, weights),
        )
        found[f"{name} queues"] = front_of_schemes(run[-1].schemes, table)
    return found


def improved(instance: Instance, seed: int, budget_s: float | None) -> FloatArray:
    """Return HeShare+'s front within a budget, if any; the table of predictions is made before, as for others."""
    settings = SearchSettings()
    table = BatchTable(instance, predictor(), settings.choices)
    # An unreported search first: it compiles.
    PlusSearch(table, SearchSettings(rounds=2), rng(seed)).run()
    search = PlusSearch(table, settings, rng(seed))
    search.run(None if budget_s is None else perf_counter() + budget_s)
    return search.front().objectives


def early(seed: int) -> float:
    """Return the hypervolume of HeShare+'s front after `EARLY_S` over that of its whole search."""
    budgets_s = {"early": EARLY_S, "whole": None}
    found = volumes({name: improved(world(seed), seed, budget_s) for name, budget_s in budgets_s.items()}, seed)
    return found["early"] / found["whole"]


def rng(seed: int) -> np.random.Generator:
    """Return the random generator of a seed."""
    return np.random.default_rng(np.random.SeedSequence([seed, 1]))


def results(seeds: int = 10) -> list[Row]:
    """Return all ratios over the seeds; the best rival also runs with ten times the evaluations."""
    pymoo_searches.genetic_checkpoints(world(0), Settings(), rng(0), (1_000,))  # loads compiled code
    schemes, times, plus = zip(*map(timed, range(seeds)), strict=True)
    early_shares = list(map(early, range(seeds)))
    fronts = in_processes(fronts_of, range(seeds), schemes)
    for seed, front in enumerate(plus):
        fronts[seed]["plus"] = front
    first = [volumes(found, seed) for seed, found in enumerate(fronts)]
    medians = {title: float(np.median(list(of(title, first)))) for title in first[0] if " at " in title}
    slow = range(min(SLOW_SEEDS, seeds))
    longer = in_processes(ten_times, [max(medians, key=medians.__getitem__)] * len(slow), slow)
    for seed, front in enumerate(longer):
        fronts[seed]["rival 10x"] = front
    by_seed = [volumes(found, seed) for seed, found in enumerate(fronts)]
    return [
        *(sample_row(f"speed_vs_{name}", ratios(times, f"{name} at 0.1", "heshare")) for name in NAMES),
        sample_row("speed_vs_moead_batched", ratios(times, "moead-batched at 0.1", "heshare")),
        sample_row("hv_plus_vs_faithful", ratios(by_seed, "plus", "heshare")),
        *(
            sample_row(f"hv_{ours}_vs_{name}{suffix}", ratios(by_seed, system, f"{name} at {rate}"))
            for name in NAMES
            for ours, system in (("plus", "plus"), ("faithful", "heshare"))
            for suffix, rate in (("", "0.1"), ("_1n", "1/n"))
        ),
        min(
            (sample_row("hv_plus_vs_ranked_1n", ratios(by_seed, "plus", f"{name} ranked")) for name in NAMES),
            key=lambda row: float(row["value"]),
        ),
        sample_row("hv_plus_vs_faithful_queues", ratios(by_seed, "plus", "heshare queues")),
        *(sample_row(f"hv_plus_vs_{name}_queues", ratios(by_seed, "plus", f"{name} queues")) for name in NAMES),
        sample_row("hv_plus_vs_best_rival_10x", ratios(by_seed, "plus", "rival 10x")),
        sample_row("front_at_100ms", early_shares),
        sample_row("search_stage1", of("heshare", times), "s"),
    ]


def of(title: str, seeds: Iterable[Mapping[str, float]]) -> Iterator[float]:
    """Yield the value of a system for each seed that has one."""
    return (values[title] for values in seeds if title in values)


def ratios(seeds: Iterable[Mapping[str, float]], above: str, below: str) -> Iterator[float]:
    """Yield the ratio of two systems' values for each seed that has both."""
    return (values[above] / values[below] for values in seeds if above in values and below in values)


def ten_times(title: str, seed: int) -> FloatArray:
    """Return the final front of a rival, `NAME at RATE`, with ten times the evaluations."""
    name, rate = title.split(" at ")
    mutation_rate: pymoo_searches.Rate = "1/n" if rate == "1/n" else float(rate)
    run = pymoo_searches.search_checkpoints(
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
