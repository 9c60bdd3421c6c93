"""Functions of `import heshare as hs`, in the paper's terms and with defaults.

Each function draws its random numbers from a seed, and its predictor is the one trained on the committed profiles
unless another is given. The stages' own functions, named in each docstring, have no defaults for these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

from heshare import arguments
from heshare.arguments import TasksLike
from heshare.lab.limits import LimitSource, within_limit
from heshare.lab.plus.heshare_plus import DEFAULT_SETTINGS, Progress, SearchSettings
from heshare.lab.plus.heshare_plus import optimise as optimise_tasks
from heshare.lab.pymoo_problem import scheduling_problem
from heshare.lab.sweeps.grid import SHIPPED, make_grid
from heshare.lab.sweeps.random_streams import POLICY, Repetition
from heshare.lab.sweeps.sweep import sweep
from heshare.policies import registry
from heshare.policies.policy import Policy
from heshare.prediction.load import TREES
from heshare.prediction.predictor import Predictor
from heshare.running.evaluation import Evaluation, evaluation
from heshare.running.result import Run
from heshare.running.run import run as run_tasks
from heshare.scheduling.configuration import configure
from heshare.scheduling.front import Front
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.objectives import evaluate_schemes, make_instance
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.planner import plan as plan_tasks
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.arrays import IntArray
from heshare.shared.display import found
from heshare.shared.errors import require
from heshare.shared.inputs.bounds import check_whole
from heshare.shared.interruption import InterruptedWithResult, return_partial_result
from heshare.shared.progress import bar, rounds_of
from heshare.world.arrivals import INTERVAL_S, Arrivals, check_arrivals
from heshare.world.cluster import Cluster
from heshare.world.task import TaskSet


def task_set(
    n: int = 60,
    *,
    seed: int = 0,
    repetition: int = 0,
    load: str = "mixed",
    arrivals: Arrivals = "at_once",
    interval_s: float | None = None,
    batch_sizes: Sequence[int] = (4, 8),
    trace: str | Path | None = None,
    cluster: Cluster | str | None = None,
) -> TaskSet:
    """Return a task set by MISO's recipe (Section IV); see `heshare.world.task_set.task_set`.

    Args:
        n: number of tasks.
        seed: of the random numbers.
        repetition: which one of `compare` with the same seed.
        load: `low`, `medium`, `high` or `mixed`.
        arrivals: `at_once`, `exponential` (a Poisson process), `miso` (whole seconds near the mean), `front_loaded`,
            or a trace: seconds in ascending order, or a CSV file, see `heshare.world.arrivals`. `exponential@0.8` is at
            that load of `cluster`, see `heshare.devices.task_sizes.offered_load`.
        interval_s: mean time between two arrivals that are drawn, s; 60 if None.
        batch_sizes: inference batch sizes to draw from.
        trace: a trace file to take the durations from, instead of the shipped Helios percentiles.
        cluster: that of an offered load; of no effect without one.

    Raises:
        InputError: an argument is out of its range, or the trace is bad.

    Example:
        >>> import heshare as hs
        >>> tasks = hs.task_set(4, seed=0)
        >>> tasks
        TaskSet(4 tasks of 3 models, at once)
        >>> str(tasks[0].workload)
        'mobilenetv2:8'
        >>> hs.task_set(4, arrivals="exponential@0.8", cluster="2xT4")
        TaskSet(4 tasks of 3 models, arriving 4,913 to 9,921 s)
    """
    arguments.check_interval(arrivals, interval_s)
    drawn = Repetition(repetition, seed).task_set(
        n,
        load=load,
        arrivals=arrivals,
        interval_s=INTERVAL_S if interval_s is None else interval_s,
        batch_sizes=batch_sizes,
        trace=trace,
        cluster=None if cluster is None else arguments.as_cluster(cluster),
    )
    return TaskSet(drawn)


@return_partial_result
def plan(
    tasks: TasksLike,
    cluster: Cluster | str,
    *,
    seed: int = 0,
    repetition: int = 0,
    predictor: Predictor | None = None,
    settings: Settings = DEFAULTS,
    progress: bool | None = None,
) -> Front:
    """Return HeShare's Pareto front of plans for a task set; see `heshare.scheduling.planner.plan`.

    Ctrl-C ends it with the front so far and an `InterruptedWarning`; so it does `optimise` and `compare`.

    Args:
        tasks: the task set, all there from the start; see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation, such as `4xT4,2xV100,2xA100`.
        seed: of the search, and of the tasks of a number.
        repetition: which one of `compare` with the same seed.
        predictor: of the scheduler; `load_predictor()` unless given.
        settings: the choices that the paper leaves open.
        progress: show a progress bar over the generations; None: on a terminal, after two seconds.

    Raises:
        InputError: no task, a task that fits no GPU or is a gang, tasks that arrive later, or an unknown GPU.

    Example:
        >>> import heshare as hs
        >>> front = hs.plan(4, "1xT4,1xA100")
        >>> front
        Front(18 plans, 636 to 784 kJ, average JCT 1,987 to 4,702 s)
        >>> front.trade_off
        Plan(4 tasks in 2 batches on 1xT4,1xA100, 653 kJ, average JCT 2,359 s)
    """
    arguments.check_kind("settings", settings, Settings)
    streams = Repetition(repetition, seed)
    to_plan = arguments.as_tasks_at_once(tasks, streams)
    predictor = arguments.as_predictor(predictor)
    gpus = arguments.as_cluster(cluster, predictor)

    with bar("plan", "generation", progress) as update:
        return plan_tasks(to_plan, gpus, predictor, rng=streams.rng(POLICY), settings=settings, progress=update)


@return_partial_result
def optimise(
    tasks: TasksLike,
    cluster: Cluster | str,
    *,
    seed: int = 0,
    repetition: int = 0,
    budget_s: float | None = None,
    predictor: Predictor | None = None,
    effort: SearchSettings = DEFAULT_SETTINGS,
    progress: bool | Progress | None = None,
) -> Front:
    """Return a better Pareto front than `plan`, by HeShare+; see `heshare.lab.plus.heshare_plus.optimise`.

    Args:
        tasks: the task set, all there from the start; see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation, such as `4xT4,2xV100,2xA100`.
        seed: of the search, and of the tasks of a number.
        repetition: which one of `compare` with the same seed.
        budget_s: wall time of the search, s, whose first round is always finished; without one the search takes
            `effort.rounds` rounds, and the same seed gives the same front.
        predictor: of the scheduler; `load_predictor()` unless given.
        effort: extent of the search, and the choices of a batch.
        progress: a bar over the rounds, as in `plan`, or a function to call after each round with their number so far
            and the objectives, shape (m, 2); what returns False stops the search.

    Raises:
        InputError: no task, a task that fits no GPU or is a gang, tasks that arrive later, or an unknown GPU.

    Example:
        >>> import heshare as hs
        >>> hs.optimise(4, "1xT4,1xA100")
        Front(63 plans, 532 to 830 kJ, average JCT 1,558 to 4,758 s)
    """
    start_s = perf_counter()
    arguments.check_kind("effort", effort, SearchSettings)
    good = budget_s is None or (isinstance(budget_s, Real) and 0 < budget_s < math.inf)
    require("budget_s", found(budget_s), good, "finite seconds above zero, or None", "Correct the budget.")

    streams = Repetition(repetition, seed)
    to_plan = arguments.as_tasks_at_once(tasks, streams)
    predictor = arguments.as_predictor(predictor)
    gpus = arguments.as_cluster(cluster, predictor)

    shown = False if callable(progress) else progress
    with bar("optimise", "round", shown) as update:
        rounds = effort.rounds if budget_s is None else None
        return optimise_tasks(
            to_plan,
            gpus,
            predictor,
            rng=streams.rng(POLICY),
            effort=effort,
            budget_s=None if budget_s is None else max(0.0, budget_s - (perf_counter() - start_s)),
            progress=progress if callable(progress) else rounds_of(update, rounds),
        )


def run(
    tasks: TasksLike,
    cluster: Cluster | str,
    policy: str | Policy | Plan = "heshare:trade-off",
    *,
    seed: int = 0,
    repetition: int = 0,
    predictor: Predictor | None = None,
    power_limit: LimitSource | None = None,
    progress: bool | None = None,
    max_time_s: float = math.inf,
) -> Run:
    """Run a task set under a policy on emulated GPUs; see `heshare.running.run.run`.

    Args:
        tasks: the task set, see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation.
        policy: a name of `policy_names(variants=True)`, a policy, or a plan of these tasks on this cluster.
        seed: of the policy, and of the tasks of a number.
        repetition: which one of `compare` with the same seed.
        predictor: of the policy; `load_predictor()` unless given.
        power_limit: on the sum of all GPUs' power at every moment: watts, a CSV file with the columns time_s and
            limit_w, or a `heshare.lab.limits.PowerLimit`; None for none.
        progress: show a progress bar over completed tasks; None: on a terminal, after two seconds.
        max_time_s: most wall time that the run may take, s.

    Raises:
        InputError: an unknown policy, no tasks, a task that fits no GPU, or a limit that the cluster cannot keep.
        HeShareError: the run takes longer than `max_time_s`.

    Example:
        >>> import heshare as hs
        >>> hs.run(4, "1xT4,1xA100", "sjf")
        Run(sjf, 4 tasks on 1xT4,1xA100, 842 kJ, average JCT 2,089 s, emulated)
        >>> hs.run(4, "1xT4,1xA100", hs.plan(4, "1xT4,1xA100").trade_off)
        Run(plan, 4 tasks on 1xT4,1xA100, 649 kJ, average JCT 2,378 s, emulated)
        >>> hs.run(4, "1xT4,1xA100", "sjf", power_limit=200)
        Run(sjf within 200 W, 4 tasks on 1xT4,1xA100, 855 kJ, average JCT 2,634 s, emulated)
    """
    good = isinstance(max_time_s, Real) and not isinstance(max_time_s, bool) and max_time_s > 0
    require("max_time_s", found(max_time_s), good, "seconds above zero", "Correct the time.")

    streams = Repetition(repetition, seed)
    to_run = arguments.as_tasks(tasks, streams)
    gpus = arguments.as_cluster(cluster)
    chosen = within_limit(arguments.as_policy(policy, to_run, gpus), power_limit)
    predictor = arguments.as_predictor(predictor)
    return run_tasks(
        to_run,
        gpus,
        chosen,
        predictor=predictor,
        rng=streams.rng(POLICY),
        progress=progress,
        max_time_s=max_time_s,
    )


def evaluate(
    plan: Plan | Sequence[Sequence[Batch]],
    tasks: TasksLike | None = None,
    cluster: Cluster | str | None = None,
    *,
    predictor: Predictor | None = None,
) -> Evaluation:
    """Return what a plan of your own promises and what a run of it gives; see `heshare.running.evaluation`.

    Args:
        plan: a plan, or the queue of each GPU: its batches in order of execution.
        tasks: the task set, all there from the start; a plan's own unless given.
        cluster: the GPUs, or their notation; a plan's own unless given.
        predictor: of the promise; `load_predictor()` unless given.

    Raises:
        InputError: queues without tasks and a cluster, those of another plan, or tasks that arrive later.
        PlanError: queues that no GPU could run, or that miss a task.

    Example:
        >>> import heshare as hs
        >>> from heshare.scheduling.plan import Batch
        >>> tasks = hs.task_set(2)
        >>> found = hs.evaluate([[Batch((0, 1), (50, 50), sm_mhz=1410)]], tasks, "1xA100")
        >>> found
        Evaluation(predicted 87.1 kJ, 297.3 s; run 99.7 kJ, 279.2 s)
        >>> found.plan == hs.Front.of([found.plan]).trade_off
        True
    """
    queues = plan.queues if isinstance(plan, Plan) else plan
    if isinstance(plan, Plan):
        tasks = plan.tasks if tasks is None else tasks
        cluster = plan.cluster if cluster is None else cluster
    given = tasks is not None and cluster is not None
    require("plan", "queues alone", given, "queues, their tasks and their cluster", "Pass the tasks and the cluster.")

    to_run = arguments.as_tasks_at_once(tasks, Repetition(0, 0))
    gpus = arguments.as_cluster(cluster)
    if isinstance(plan, Plan):
        arguments.check_plan(plan, to_run, gpus)
    return evaluation(queues, to_run, gpus, arguments.as_predictor(predictor))


def problem(
    tasks: TasksLike,
    cluster: Cluster | str,
    *,
    seed: int = 0,
    repetition: int = 0,
    predictor: Predictor | None = None,
    settings: Settings = DEFAULTS,
) -> Any:
    """Return stage 1, the GPU of each task, as a problem for any algorithm of pymoo.

    `problem.front(x)` makes plans of schemes x, numbers of GPUs of shape (p, n), by stage 2.

    Args:
        tasks: the task set, all there from the start; see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation.
        seed: of the tasks of a number.
        repetition: of the tasks of a number.
        predictor: of the scheduler; `load_predictor()` unless given.
        settings: the choices of stage 2.

    Raises:
        InputError: no task, or a task that fits no GPU.

    Example:
        >>> import heshare as hs
        >>> from pymoo.algorithms.moo.nsga2 import NSGA2
        >>> from pymoo.optimize import minimize
        >>> problem = hs.problem(4, "1xT4,1xA100")
        >>> found = minimize(problem, NSGA2(pop_size=20), ("n_gen", 10), seed=1)
        >>> problem.front(found.X)
        Front(18 plans, 636 to 784 kJ, average JCT 1,987 to 4,702 s)
    """
    arguments.check_kind("settings", settings, Settings)
    to_plan = arguments.as_tasks_at_once(tasks, Repetition(repetition, seed))
    answers = arguments.as_predictor(predictor)
    instance = make_instance(to_plan, arguments.as_cluster(cluster, answers), answers)

    def evaluated(schemes: IntArray) -> Any:
        return evaluate_schemes(schemes, instance)

    def configured(schemes: IntArray) -> Front:
        searched = Schemes(schemes, evaluated(schemes), len(schemes))
        plans, objectives = configure(searched, instance, answers, settings)
        return Front(plans, objectives)

    return scheduling_problem(instance, evaluated, configured)


@return_partial_result
def compare(
    tasks: TasksLike = 60,
    cluster: Cluster | str = "4xT4,2xV100,2xA100",
    policies: Sequence[str | Policy] | str | Policy | None = None,
    *,
    seed: int = 0,
    seeds: int = 10,
    load: str = "mixed",
    arrivals: Arrivals = "at_once",
    interval_s: float | None = None,
    batch_sizes: Sequence[int] = (4, 8),
    trace: str | Path | None = None,
    predictor: Predictor | None = None,
    metrics: Mapping[str, Callable[[Run], float]] | None = None,
    n_jobs: int | None = None,
    progress: bool | None = None,
    cells: str | Path | None = None,
    power_limit: LimitSource | None = None,
) -> pd.DataFrame:
    """Run policies on the same task sets; see `heshare.lab.sweeps.sweep`, which runs whole grids.

    Args:
        tasks: the number of tasks to draw in each repetition, or a task set for all of them, as in `run`.
        cluster: the GPUs, or their notation.
        policies: names, `module:function` that returns a policy, or policies; by default those of `policy_names()`.
        seed: of all repetitions; `task_set` and `run` with the same seed and `repetition=i` give repetition i.
        seeds: number of repetitions.
        load: load class of the models, as in `task_set`.
        arrivals: as in `task_set`; a load is that of `cluster`.
        interval_s: as in `task_set`, s.
        batch_sizes: inference batch sizes, as in `task_set`.
        trace: as in `task_set`.
        predictor: of all policies, as in `run`.
        metrics: more columns by name: functions that return a number of a run.
        n_jobs: number of processes; None is one, or all workers of joblib's Dask backend (docs/sweeps.md).
        progress: show a progress bar; None: on a terminal, after two seconds.
        cells: a folder that caches finished runs; None caches nothing.
        power_limit: for every policy, as in `run`.

    Returns:
        The columns of `sweep` from repetition on.

    Raises:
        InputError: an unknown policy, or an argument out of its range.

    Example:
        >>> import heshare as hs
        >>> table = hs.compare(4, "1xT4,1xA100", ["random", "sjf"], seeds=2)
        >>> table[["repetition", "title", "avg_jct_s"]].round()
           repetition   title  avg_jct_s
        0           0  Random     2140.0
        1           0     SJF     2089.0
        2           1  Random    18331.0
        3           1     SJF     9300.0
        >>> import numpy as np
        >>> p95 = lambda run: np.percentile(run.jct_s, 95)
        >>> hs.compare(4, "1xT4,1xA100", "sjf", seeds=1, metrics={"p95_s": p95})["p95_s"].round().tolist()
        [4377.0]
    """
    sizes = arguments.as_sizes(batch_sizes)
    drawn = arguments.draw_options(
        tasks, load=load, arrivals=arrivals, interval_s=interval_s, batch_sizes=sizes, trace=trace
    )
    measures = arguments.as_metrics(metrics)

    grid = make_grid(
        arguments.as_policies(policies),
        arguments.as_cluster(cluster),
        arguments.as_grid_tasks(tasks),
        loads=load,
        arrivals=arrivals if isinstance(arrivals, str) else [check_arrivals(arrivals)],
        intervals_s=drawn.get("interval_s", INTERVAL_S),
        batch_sizes=sizes,
        predictors=TREES if predictor is None else arguments.as_predictor(predictor),
        traces=SHIPPED if trace is None else str(trace),
        seeds=check_whole("seeds", seeds, least=1),
        seed=check_whole("seed", seed, least=0),
        power_limit=power_limit,
    )

    try:
        table = sweep(grid, folder=cells, n_jobs=n_jobs, progress=progress, metrics=measures)
    except InterruptedWithResult as stop:
        stop.result = stop.result.loc[:, "repetition":]
        raise
    return table.loc[:, "repetition":]


def policy_names(*, variants: bool = False) -> list[str]:
    """Return the names of the policies that `compare` runs by default: every system once, and the baselines.

    Args:
        variants: every registered name: also the variants of systems, such as `heshare:trade-off/no-mps`.

    Example:
        >>> import heshare as hs
        >>> hs.policy_names()[:3]
        ['random', 'sched-only', 'heshare:trade-off']
        >>> hs.policy_names()[-3:]
        ['sjf', 'srtf', 'srtf:fixed-clock']
        >>> "morak:heshare-placement" in hs.policy_names(variants=True)
        True
    """
    return list(registry.policies(variants=True)) if variants else registry.default_names()
