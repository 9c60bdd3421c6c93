"""Functions of `import heshare as hs`, in the paper's terms and with defaults.

Each function draws its random numbers from a seed, and its predictor is the forest trained on the committed profiles
unless another is given. The stages' own functions, named in each docstring, have no defaults for these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # each function imports what it calls, so that importing this module takes no time
    import pandas as pd

    from heshare.arguments import TasksLike
    from heshare.lab.limits import LimitSource
    from heshare.lab.plus.heshare_plus import Progress, SearchSettings
    from heshare.paper.explore import results
    from heshare.paper.explore.evaluation import Evaluation
    from heshare.paper.explore.results import DrawableRun, Front
    from heshare.policies.policy import Policy
    from heshare.prediction.predictor import Predictor
    from heshare.running.result import Run
    from heshare.scheduling.plan import Batch, Plan
    from heshare.scheduling.settings import Settings
    from heshare.shared.arrays import IntArray
    from heshare.world.arrivals import Arrivals
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
        TaskSet(4 tasks of 3 models, arriving 5,156 to 10,413 s)
    """
    from heshare import arguments
    from heshare.world.task import TaskSet

    streams = arguments.as_repetition(seed, repetition)
    how: dict[str, Any] = {"load": load, "batch_sizes": batch_sizes, "trace": trace}
    drawn = arguments.as_drawn(0, arrivals=arrivals, interval_s=interval_s, **how)
    return TaskSet(streams.task_set(n, cluster=None if cluster is None else arguments.as_cluster(cluster), **drawn))


def plan(
    tasks: TasksLike,
    cluster: Cluster | str,
    *,
    seed: int = 0,
    repetition: int = 0,
    predictor: Predictor | None = None,
    settings: Settings | None = None,
    progress: bool | None = None,
) -> results.Front:
    """Return HeShare's Pareto front of plans for a task set; see `heshare.scheduling.planner.plan`.

    Ctrl-C ends it with the front so far and an `InterruptedWarning`; so it does `optimise` and `compare`.

    Args:
        tasks: the task set, all there from the start; see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation, such as `4xT4,2xV100,2xA100`.
        seed: of the search, and of the tasks of a number.
        repetition: which one of `compare` with the same seed.
        predictor: of the scheduler; by default the trained forest.
        settings: the choices that the paper leaves open.
        progress: show a progress bar over the generations; None: on a terminal, after two seconds.

    Raises:
        InputError: no task, a task that fits no GPU or is a gang, tasks that arrive later, or an unknown GPU.

    Example:
        >>> import heshare as hs
        >>> front = hs.plan(4, "1xT4,1xA100")
        >>> front
        Front(16 plans, 382 to 441 kJ, average JCT 1,515 to 1,760 s)
        >>> front.trade_off
        Plan(4 tasks in 3 batches on 1xT4,1xA100, 403 kJ, average JCT 1,609 s)
    """
    from heshare import arguments
    from heshare.lab.sweeps.random_streams import POLICY
    from heshare.paper.explore.results import Front
    from heshare.scheduling.planner import plan as plan_tasks
    from heshare.scheduling.settings import DEFAULTS, Settings
    from heshare.shared.progress import bar
    from heshare.shared.stopping import finished

    streams = arguments.as_repetition(seed, repetition)
    to_plan, gpus, predictor = arguments.as_planned(tasks, cluster, streams, predictor)
    settings = arguments.as_kind("settings", settings, Settings, DEFAULTS)
    with bar("plan", "generation", progress) as update:
        how: Any = {"rng": streams.rng(POLICY), "settings": settings, "progress": update}
        front = finished(lambda: plan_tasks(to_plan, gpus, predictor, **how))
    return Front.of(front, predictor, piecewise=settings.piecewise)


def optimise(
    tasks: TasksLike,
    cluster: Cluster | str,
    *,
    seed: int = 0,
    repetition: int = 0,
    budget_s: float | None = None,
    predictor: Predictor | None = None,
    effort: SearchSettings | None = None,
    progress: bool | Progress | None = None,
) -> results.Front:
    """Return a better Pareto front than `plan`, by HeShare+; see `heshare.lab.plus.heshare_plus.optimise`.

    Args:
        tasks: the task set, all there from the start; see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation, such as `4xT4,2xV100,2xA100`.
        seed: of the search, and of the tasks of a number.
        repetition: which one of `compare` with the same seed.
        budget_s: wall time of the search, s, whose first round is always finished; without one the search takes
            `effort.rounds` rounds, and the same seed gives the same front.
        predictor: of the scheduler; by default the trained forest.
        effort: extent of the search, and the choices of a batch.
        progress: a bar over the rounds, as in `plan`, or a function to call after each round with their number so far
            and the objectives, shape (m, 2); what returns False stops the search.

    Raises:
        InputError: no task, a task that fits no GPU or is a gang, tasks that arrive later, or an unknown GPU.

    Example:
        >>> import heshare as hs
        >>> hs.optimise(4, "1xT4,1xA100")
        Front(69 plans, 370 to 443 kJ, average JCT 1,504 to 1,800 s)
    """
    from time import perf_counter

    from heshare import arguments
    from heshare.lab.plus.heshare_plus import DEFAULT_SETTINGS, SearchSettings
    from heshare.lab.plus.heshare_plus import optimise as optimise_tasks
    from heshare.lab.sweeps.random_streams import POLICY
    from heshare.paper.explore.results import Front
    from heshare.shared.progress import bar, rounds_of
    from heshare.shared.stopping import finished

    start_s = perf_counter()
    streams = arguments.as_repetition(seed, repetition)
    to_plan, gpus, predictor = arguments.as_planned(tasks, cluster, streams, predictor)
    arguments.check_budget(budget_s)
    effort = arguments.as_kind("effort", effort, SearchSettings, DEFAULT_SETTINGS)
    rng, rounds = streams.rng(POLICY), effort.rounds if budget_s is None else None
    with bar("optimise", "round", False if callable(progress) else progress) as update:
        told = progress if callable(progress) else rounds_of(update, rounds)
        left_s = None if budget_s is None else max(0.0, budget_s - (perf_counter() - start_s))
        how: Any = {"rng": rng, "effort": effort, "budget_s": left_s, "progress": told}
        front = finished(lambda: optimise_tasks(to_plan, gpus, predictor, **how))
    return Front.of(front, predictor, series="HeShare+")


def run(
    tasks: TasksLike,
    cluster: Cluster | str,
    policy: str | Policy | Plan = "heshare:trade-off",
    *,
    seed: int = 0,
    repetition: int = 0,
    predictor: Predictor | None = None,
    power_limit: LimitSource | None = None,
) -> DrawableRun:
    """Run a task set under a policy on emulated GPUs; see `heshare.running.run.run`.

    Args:
        tasks: the task set, see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation.
        policy: a name of `policy_names()`, a policy, or a plan of these tasks on this cluster.
        seed: of the policy, and of the tasks of a number.
        repetition: which one of `compare` with the same seed.
        predictor: of the policy; by default the trained forest.
        power_limit: on the sum of all GPUs' power at every moment: watts, a CSV file with the columns time_s and
            limit_w, or a `heshare.lab.limits.PowerLimit`; None for none.

    Raises:
        InputError: an unknown policy, no tasks, a task that fits no GPU, or a limit that the cluster cannot keep.

    Example:
        >>> import heshare as hs
        >>> hs.run(4, "1xT4,1xA100", "sjf")
        Run(sjf, 4 tasks on 1xT4,1xA100, 694 kJ, average JCT 2,246 s, emulated)
        >>> hs.run(4, "1xT4,1xA100", hs.plan(4, "1xT4,1xA100").trade_off)
        Run(plan, 4 tasks on 1xT4,1xA100, 383 kJ, average JCT 1,574 s, emulated)
        >>> hs.run(4, "1xT4,1xA100", "sjf", power_limit=200)
        Run(sjf within 200 W, 4 tasks on 1xT4,1xA100, 693 kJ, average JCT 2,247 s, emulated)
    """
    from heshare import arguments
    from heshare.lab.limits import within_limit
    from heshare.lab.sweeps.random_streams import POLICY
    from heshare.paper.explore.results import DrawableRun
    from heshare.running.run import run as run_policy

    streams = arguments.as_repetition(seed, repetition)
    to_run, gpus = arguments.as_tasks(tasks, streams), arguments.as_cluster(cluster)
    chosen, predictor = arguments.as_policy(policy, to_run, gpus), arguments.as_predictor(predictor)
    chosen = within_limit(chosen, power_limit)
    return DrawableRun.of(run_policy(to_run, gpus, chosen, predictor=predictor, rng=streams.rng(POLICY)))


def evaluate(
    plan: Plan | Sequence[Sequence[Batch]],
    tasks: TasksLike | None = None,
    cluster: Cluster | str | None = None,
    *,
    predictor: Predictor | None = None,
) -> Evaluation:
    """Return what a plan of your own promises and what a run of it gives; see `heshare.paper.explore.evaluation`.

    Args:
        plan: a plan, or the queue of each GPU: its batches in order of execution.
        tasks: the task set, all there from the start; a plan's own unless given.
        cluster: the GPUs, or their notation; a plan's own unless given.
        predictor: of the promise; by default the trained forest.

    Raises:
        InputError: queues without tasks and a cluster, those of another plan, or tasks that arrive later.
        PlanError: queues that no GPU could run, or that miss a task.

    Example:
        >>> import heshare as hs
        >>> from heshare.scheduling.plan import Batch
        >>> tasks = hs.task_set(2)
        >>> found = hs.evaluate([[Batch((0, 1), (50, 50), sm_mhz=1410)]], tasks, "1xA100")
        >>> found
        Evaluation(predicted 102 kJ, 303.2 s; run 103 kJ, 298.6 s)
        >>> found.plan == hs.Front.of([found.plan]).trade_off
        True
    """
    from heshare import arguments
    from heshare.paper.explore.evaluation import evaluation
    from heshare.scheduling.plan import Plan
    from heshare.shared.errors import require

    own = plan if isinstance(plan, Plan) else None
    given = own is not None or (tasks is not None and cluster is not None)
    require("plan", "queues alone", given, "queues, their tasks and their cluster", "Pass the tasks and the cluster.")
    to_run = arguments.as_tasks(own.tasks if own and tasks is None else tasks, arguments.as_repetition(0), at_once=True)
    gpus = arguments.as_cluster(own.cluster if own and cluster is None else cluster)
    if own is not None:
        arguments.check_plan(own, to_run, gpus)
    queues = arguments.as_queues(plan if own is None else own.queues)
    return evaluation(queues, to_run, gpus, arguments.as_predictor(predictor))


def problem(
    tasks: TasksLike,
    cluster: Cluster | str,
    *,
    seed: int = 0,
    repetition: int = 0,
    predictor: Predictor | None = None,
    settings: Settings | None = None,
) -> Any:
    """Return stage 1, the GPU of each task, as a problem for any algorithm of pymoo.

    `problem.front(x)` makes plans of schemes x, numbers of GPUs of shape (p, n), by stage 2.

    Args:
        tasks: the task set, all there from the start; see `heshare.arguments.TasksLike`.
        cluster: the GPUs, or their notation.
        seed: of the tasks of a number.
        repetition: of the tasks of a number.
        predictor: of the scheduler; by default the trained forest.
        settings: the choices of stage 2.

    Raises:
        InputError: no task, or a task that fits no GPU.

    Example:
        >>> import heshare as hs
        >>> from pymoo.algorithms.moo.age import AGEMOEA
        >>> from pymoo.optimize import minimize
        >>> problem = hs.problem(4, "1xT4,1xA100")
        >>> found = minimize(problem, AGEMOEA(pop_size=20), ("n_gen", 10), seed=1)
        >>> problem.front(found.X)
        Front(16 plans, 382 to 441 kJ, average JCT 1,515 to 1,760 s)
    """
    from heshare import arguments
    from heshare.paper.explore.results import Front
    from heshare.paper.studies.pymoo_searches import problem as pymoo_problem
    from heshare.scheduling.configuration import configure
    from heshare.scheduling.genetic import Schemes
    from heshare.scheduling.objectives import evaluate_schemes, make_instance
    from heshare.scheduling.settings import DEFAULTS, Settings

    streams = arguments.as_repetition(seed, repetition)
    to_plan, gpus, predictor = arguments.as_planned(tasks, cluster, streams, predictor)
    settings = arguments.as_kind("settings", settings, Settings, DEFAULTS)
    instance = make_instance(to_plan, gpus, predictor)

    def configured(schemes: IntArray) -> Front:
        found = Schemes(schemes, evaluate_schemes(schemes, instance), len(schemes))
        return Front.of(configure(found, instance, predictor, settings)[0], predictor, piecewise=settings.piecewise)

    return pymoo_problem(instance, lambda schemes: evaluate_schemes(schemes, instance), configured)


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
    n_jobs: int = 1,
    progress: bool | None = None,
    cells: str | Path | None = None,
    power_limit: LimitSource | None = None,
) -> pd.DataFrame:
    """Run policies on the same task sets; see `heshare.lab.sweeps.sweep.sweep`, which takes whole grids.

    Args:
        tasks: the number of tasks to draw in each repetition, or a task set for all of them, as in `run`.
        cluster: the GPUs, or their notation.
        policies: names of `policy_names()`, `module:function` that returns a policy, or policies; by default all.
        seed: of all repetitions; `task_set` and `run` with the same seed and `repetition=i` give repetition i.
        seeds: number of repetitions.
        load: load class of the models, as in `task_set`.
        arrivals: as in `task_set`; a load is that of `cluster`.
        interval_s: as in `task_set`, s.
        batch_sizes: inference batch sizes, as in `task_set`.
        trace: as in `task_set`.
        predictor: of all policies, as in `run`.
        metrics: more columns by name: functions that return a number of a run.
        n_jobs: number of processes; see `heshare.lab.sweeps.parallel` for other machines.
        progress: show a progress bar; None: on a terminal, after two seconds.
        cells: a folder that caches finished runs; None caches nothing.
        power_limit: for every policy, as in `run`.

    Returns:
        The columns of `sweep` from repetition on.

    Raises:
        InputError: an unknown policy, an argument out of its range, or objects (policies, a predictor, metrics) with
            `cells` or `n_jobs`.

    Example:
        >>> import heshare as hs
        >>> table = hs.compare(4, "1xT4,1xA100", ["random", "sjf"], seeds=2)
        >>> table[["repetition", "title", "avg_jct_s"]].round()
           repetition   title  avg_jct_s
        0           0  Random     2187.0
        1           0     SJF     2246.0
        2           1  Random    16631.0
        3           1     SJF     8542.0
        >>> import numpy as np
        >>> p95 = lambda run: np.percentile(run.jct_s, 95)
        >>> hs.compare(4, "1xT4,1xA100", "sjf", seeds=1, metrics={"p95_s": p95})["p95_s"].round().tolist()
        [5317.0]
    """
    from heshare import arguments
    from heshare.lab.limits import PowerLimit
    from heshare.lab.sweeps.grid import Grid
    from heshare.lab.sweeps.resolve import SHIPPED, given_predictor
    from heshare.lab.sweeps.sweep import sweep
    from heshare.policies.registry import given_policies
    from heshare.shared.stopping import finished
    from heshare.world.arrivals import INTERVAL_S, check_arrivals

    sizes = arguments.as_sizes(batch_sizes)
    how: dict[str, Any] = {"load": load, "batch_sizes": sizes, "trace": trace}
    drawn = arguments.as_drawn(tasks, arrivals=arrivals, interval_s=interval_s, **how)
    chosen, metrics = arguments.as_policies(policies), arguments.as_metrics(metrics)
    arguments.check_here(chosen, predictor, metrics, elsewhere=cells is not None or n_jobs != 1)
    own = None if predictor is None else arguments.as_predictor(predictor)
    with given_policies(chosen) as names, given_predictor(own) as predicts:
        grid = Grid(
            policies=names,
            clusters=(arguments.as_cluster(cluster),),
            tasks=(arguments.as_grid_tasks(tasks),),
            loads=(load,),
            arrivals=(arrivals if isinstance(arrivals, str) else check_arrivals(arrivals),),
            intervals_s=(drawn.get("interval_s", INTERVAL_S),),
            batch_sizes=sizes,
            predictors=(predicts,),
            traces=(SHIPPED if trace is None else str(trace),),
            seeds=arguments.as_whole("seeds", seeds, least=1),
            seed=arguments.as_whole("seed", seed, least=0),
            power_limit=None if power_limit is None else PowerLimit.parse(power_limit),
        )
        how = {"folder": cells, "n_jobs": n_jobs, "progress": progress, "metrics": metrics}
        table = finished(lambda: sweep(grid, **how))
    return table.loc[:, "repetition":]


def policy_names() -> list[str]:
    """Return the names of all policies, in the paper's order.

    Example:
        >>> import heshare as hs
        >>> hs.policy_names()[:3]
        ['random', 'sched-only', 'heshare:trade-off']
    """
    from heshare.policies import registry

    return list(registry.policies())
