"""What `import heshare as hs` offers: the paper's words, with the defaults that most questions need.

Each function here draws its random numbers from a seed and believes the forest trained on the committed profiles,
unless told otherwise; the stages' own functions (named in each docstring) leave nothing to a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.policies import registry
from heshare.prediction.forest import load_predictor
from heshare.prediction.predictor import Predictor
from heshare.running.draw import draw
from heshare.running.grid import Grid
from heshare.running.result import Run
from heshare.running.run import run as run_policy
from heshare.running.sweep import sweep
from heshare.scheduling.effort import Effort
from heshare.scheduling.improved import optimise as optimise_tasks
from heshare.scheduling.pareto import Front
from heshare.scheduling.planner import plan as plan_tasks
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task


def task_set(
    n: int = 60,
    *,
    seed: int = 0,
    load: str = "mixed",
    arrivals: str = "at_once",
    batch_sizes: Sequence[int] = (4, 8),
    trace: str | Path | None = None,
) -> tuple[Task, ...]:
    """A task set by MISO's recipe (Section V-A); see `heshare.world.taskset.task_set`.

    Args:
        n: how many tasks.
        seed: of everything drawn.
        load: `low`, `medium`, `high` or `mixed`.
        arrivals: `at_once`, `poisson` or `front_loaded`.
        batch_sizes: inference batch sizes to draw from.
        trace: a trace file to take the durations from, instead of the shipped Helios percentiles.

    Raises:
        InputError: an argument is out of its range, or the trace is bad.
    """
    rng = np.random.default_rng(seed)
    return draw(n, rng=rng, load=load, arrivals=arrivals, batch_sizes=batch_sizes, trace=trace)


def plan(
    tasks: Sequence[Task],
    cluster: Cluster | str,
    *,
    seed: int = 0,
    predictor: Predictor | None = None,
    settings: Settings | None = None,
) -> Front:
    """HeShare's Pareto front of plans for a task set; see `heshare.scheduling.planner.plan`.

    Args:
        tasks: the task set.
        cluster: the GPUs, or their notation, such as `4xT4,2xV100,2xA100`.
        seed: of the search.
        predictor: what the scheduler believes; the trained forest unless given.
        settings: every choice that the paper leaves open.

    Raises:
        InputError: no task, a task that fits no GPU, a workload or GPU that was not profiled.
    """
    rng = np.random.default_rng(seed)
    return plan_tasks(tasks, _cluster(cluster), predictor or load_predictor(), rng=rng, settings=settings or Settings())


def optimise(
    tasks: Sequence[Task],
    cluster: Cluster | str,
    *,
    seed: int = 0,
    budget_s: float | None = None,
    predictor: Predictor | None = None,
    effort: Effort | None = None,
) -> Front:
    """A better Pareto front than `plan`'s, by the improved scheduler; see `heshare.scheduling.improved.optimise`.

    Args:
        tasks: the task set.
        cluster: the GPUs, or their notation, such as `4xT4,2xV100,2xA100`.
        seed: of the search.
        budget_s: search for so many seconds, s; without one it does `effort.rounds` rounds, and the same seed gives
            the same front.
        predictor: what the scheduler believes; the trained forest unless given.
        effort: how hard to search, and what a batch may choose from.

    Raises:
        InputError: no task, a task that fits no GPU, a workload or GPU that was not profiled.
    """
    rng = np.random.default_rng(seed)
    believed = predictor or load_predictor()
    return optimise_tasks(tasks, _cluster(cluster), believed, rng=rng, effort=effort or Effort(), budget_s=budget_s)


def run(
    tasks: Sequence[Task],
    cluster: Cluster | str,
    policy: str = "heshare:trade-off",
    *,
    seed: int = 0,
    predictor: Predictor | None = None,
) -> Run:
    """What happens when a policy runs a task set on emulated GPUs; see `heshare.running.run.run`.

    Args:
        tasks: the task set.
        cluster: the GPUs, or their notation.
        policy: a name of `policy_names()`.
        seed: of the policy.
        predictor: what the policy believes; the trained forest unless given.

    Raises:
        InputError: an unknown policy, no tasks, or a task that fits no GPU.
    """
    made = registry.make(policy)
    rng = np.random.default_rng(seed)
    return run_policy(tasks, _cluster(cluster), made, predictor=predictor or load_predictor(), rng=rng)


def compare(
    tasks: Sequence[Task] | int = 60,
    cluster: Cluster | str = "4xT4,2xV100,2xA100",
    policies: Sequence[str] | None = None,
    *,
    seed: int = 0,
    seeds: int = 10,
    load: str = "mixed",
    arrivals: str = "at_once",
    n_jobs: int = 1,
    progress: bool = False,
    cells: str | Path | None = None,
    engine: Any = "joblib",
) -> pd.DataFrame:
    """Policies side by side on the same task sets; see `heshare.running.sweep.sweep`, which takes whole grids.

    Args:
        tasks: a task set for every repetition, or how many tasks to draw anew in each.
        cluster: the GPUs, or their notation.
        policies: names of `policy_names()`; all of them unless given.
        seed: of all repetitions.
        seeds: how many repetitions.
        load: which models are drawn.
        arrivals: when tasks arrive.
        n_jobs: processes.
        progress: show a progress bar.
        cells: a folder in which finished runs are kept and looked for; None keeps nothing.
        engine: where runs run, see `heshare.running.engine.each`.

    Returns:
        The columns of `heshare.running.compare.compare`.

    Raises:
        InputError: an unknown policy, or an argument out of its range.
    """
    found = sweep(
        Grid(
            policies=tuple(policies or registry.policies()),
            clusters=(cluster,),
            tasks=(tasks if isinstance(tasks, int) else tuple(tasks),),
            loads=(load,),
            arrivals=(arrivals,),
            seeds=seeds,
            seed=seed,
        ),
        folder=cells,
        engine=engine,
        n_jobs=n_jobs,
        progress=progress,
    )
    return found.loc[:, "repetition":]


def policy_names() -> list[str]:
    """The names of all policies, in the paper's order."""
    return list(registry.policies())


def _cluster(cluster: Cluster | str) -> Cluster:
    return Cluster.parse(cluster) if isinstance(cluster, str) else cluster
