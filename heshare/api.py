"""Functions of `import heshare as hs`, in the paper's terms and with defaults.

Each function draws its random numbers from a seed, and its predictor is the forest trained on the committed profiles
unless another is given. The stages' own functions, named in each docstring, have no defaults for these.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.task_sizes import draw
from heshare.experiments.sweeps.grid import Grid
from heshare.experiments.sweeps.sweep import sweep
from heshare.exploring.results import DrawableRun, ExplorableFront
from heshare.plugins import registry
from heshare.plus.heshare_plus import optimise as optimise_tasks
from heshare.plus.physics.physics_predictor import load_predictor
from heshare.plus.search_settings import SearchSettings
from heshare.prediction.predictor import Predictor
from heshare.running.run import run as run_policy
from heshare.scheduling.planner import plan as plan_tasks
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
from heshare.world.task import Task, TaskSet


def task_set(
    n: int = 60,
    *,
    seed: int = 0,
    load: str = "mixed",
    arrivals: str = "at_once",
    batch_sizes: Sequence[int] = (4, 8),
    trace: str | Path | None = None,
) -> TaskSet:
    """Return a task set by MISO's recipe (Section IV); see `heshare.world.task_set.task_set`.

    Args:
        n: number of tasks.
        seed: of the random numbers.
        load: `low`, `medium`, `high` or `mixed`.
        arrivals: `at_once`, `poisson` or `front_loaded`.
        batch_sizes: inference batch sizes to draw from.
        trace: a trace file to take the durations from, instead of the shipped Helios percentiles.

    Raises:
        InputError: an argument is out of its range, or the trace is bad.
    """
    rng = np.random.default_rng(seed)
    return TaskSet(draw(n, rng=rng, load=load, arrivals=arrivals, batch_sizes=batch_sizes, trace=trace))


def plan(
    tasks: Sequence[Task],
    cluster: Cluster | str,
    *,
    seed: int = 0,
    predictor: Predictor | None = None,
    settings: Settings | None = None,
) -> ExplorableFront:
    """Return HeShare's Pareto front of plans for a task set; see `heshare.scheduling.planner.plan`.

    Args:
        tasks: the task set.
        cluster: the GPUs, or their notation, such as `4xT4,2xV100,2xA100`.
        seed: of the search.
        predictor: of the scheduler; by default the trained forest.
        settings: the choices that the paper leaves open.

    Raises:
        InputError: no task, a task that fits no GPU, a workload or GPU that was not profiled.
    """
    rng = np.random.default_rng(seed)
    predictor, settings = predictor or load_predictor(), settings or Settings()
    front = plan_tasks(tasks, Cluster.parse(cluster), predictor, rng=rng, settings=settings)
    return ExplorableFront.of(front, predictor, piecewise=settings.piecewise)


def optimise(
    tasks: Sequence[Task],
    cluster: Cluster | str,
    *,
    seed: int = 0,
    budget_s: float | None = None,
    predictor: Predictor | None = None,
    effort: SearchSettings | None = None,
) -> ExplorableFront:
    """Return a better Pareto front than `plan`, by HeShare+; see `heshare.plus.heshare_plus.optimise`.

    Args:
        tasks: the task set.
        cluster: the GPUs, or their notation, such as `4xT4,2xV100,2xA100`.
        seed: of the search.
        budget_s: time of the search, s; without one it takes `effort.rounds` rounds, and the same seed gives the same
            front.
        predictor: of the scheduler; by default the trained forest.
        effort: extent of the search, and the choices of a batch.

    Raises:
        InputError: no task, a task that fits no GPU, a workload or GPU that was not profiled.
    """
    rng = np.random.default_rng(seed)
    predictor, effort = predictor or load_predictor(), effort or SearchSettings()
    front = optimise_tasks(tasks, Cluster.parse(cluster), predictor, rng=rng, effort=effort, budget_s=budget_s)
    return ExplorableFront.of(front, predictor, series="HeShare+")


def run(
    tasks: Sequence[Task],
    cluster: Cluster | str,
    policy: str = "heshare:trade-off",
    *,
    seed: int = 0,
    predictor: Predictor | None = None,
) -> DrawableRun:
    """Run a task set under a policy on emulated GPUs; see `heshare.running.run.run`.

    Args:
        tasks: the task set.
        cluster: the GPUs, or their notation.
        policy: a name of `policy_names()`.
        seed: of the policy.
        predictor: of the policy; by default the trained forest.

    Raises:
        InputError: an unknown policy, no tasks, or a task that fits no GPU.
    """
    rng, chosen = np.random.default_rng(seed), registry.make(policy)
    done = run_policy(tasks, Cluster.parse(cluster), chosen, predictor=predictor or load_predictor(), rng=rng)
    return DrawableRun.of(done)


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
    """Run policies on the same task sets; see `heshare.experiments.sweeps.sweep.sweep`, which takes whole grids.

    Args:
        tasks: a task set for every repetition, or the number of tasks to draw in each.
        cluster: the GPUs, or their notation.
        policies: names of `policy_names()`; by default all.
        seed: of all repetitions.
        seeds: number of repetitions.
        load: load class of the models, as in `task_set`.
        arrivals: kind of arrivals, as in `task_set`.
        n_jobs: number of processes.
        progress: show a progress bar.
        cells: a folder that caches finished runs; None caches nothing.
        engine: what runs them, see `heshare.experiments.sweeps.engine.map_unordered`.

    Returns:
        The columns of `sweep` from repetition on.

    Raises:
        InputError: an unknown policy, or an argument out of its range.
    """
    table = sweep(
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
    return table.loc[:, "repetition":]


def policy_names() -> list[str]:
    """Return the names of all policies, in the paper's order."""
    return list(registry.policies())
