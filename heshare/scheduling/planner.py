"""HeShare's planner: both stages, from a task set to a Pareto front of plans (Sections III-B and III-C)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import DEFAULT_CLOCK, BatchModel, plan_objectives
from heshare.scheduling.configuration import PlanBuilder, configure, split_into_batches, spt_queues
from heshare.scheduling.front import Front
from heshare.scheduling.genetic import Progress, Schemes, search
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.pareto import knee
from heshare.scheduling.plan import Plan
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.interruption import InterruptedWithResult
from heshare.world.cluster import Cluster
from heshare.world.task import Task


def plan(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    settings: Settings = DEFAULTS,
    progress: Progress | None = None,
    ready_s: FloatArray | None = None,
    seeds: IntArray | None = None,
) -> Front:
    """Return the Pareto front of a task set: task scheduling (stage 1), then GPU sharing optimization (stage 2).

    `hs.plan` calls it with the tasks, GPUs and predictor that its arguments stand for (`heshare.arguments`), and draws
    `rng` from its seed.

    Task migration (Section III-B 2c) compares all GPUs for each task that moves: tasks times GPUs in a generation.
    Algorithm 1 configures every queue of the schemes of PS, fewer of them above 200 tasks (`Settings.solutions`).

    Args:
        tasks: the task set; arrival times are ignored.
        cluster: the GPUs.
        predictor: predicts time and power.
        rng: the only source of randomness; the same state gives the same front, byte for byte.
        settings: every choice that the paper leaves open.
        progress: called with (generations done, generations in all) of stage 1; False stops the search early.
        ready_s: time at which each GPU can begin with these tasks, s from now, shape (k,); at once unless given.
        seeds: schemes that stage 1 begins with, shape (m, n), such as the last plan's.

    Raises:
        InputError: there is no task, or a task fits no GPU.
        InterruptedWithResult: a Ctrl-C after the first generation, with the front so far: in stage 2 that of stage 1.
    """
    calls_before = predictor.calls
    stopped = ""
    instance = make_instance(tasks, cluster, predictor, ready_s)

    # Stage 1: the Pareto set PS of schemes (Section III-B).
    try:
        schemes = search(instance, settings, rng, progress, seeds=seeds)
    except InterruptedWithResult as stop:
        schemes = stop.result
        stopped = stop.text

    # Stage 2: batches, MPS percentages and clocks (Section III-C, Algorithm 1).
    try:
        plans, objectives = configure(schemes, instance, predictor, settings)
    except KeyboardInterrupt:
        stopped = "the plans are those of stage 1, without sharing"
        as_found = replace(settings, batching="single", mps_goal="none", clock_scope="none")
        plans, objectives = configure(schemes, instance, predictor, as_found)

    front = Front(plans, objectives, predictor.calls - calls_before)
    if stopped:
        raise InterruptedWithResult(stopped, front)
    return front


def sched_only(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    settings: Settings = DEFAULTS,
    all_at_once: bool = False,
    searched: Callable[[Instance, np.random.Generator], Schemes] | None = None,
) -> Plan:
    """Return the plan of Sched-only (Section IV, baseline 2): the knee of stage 1 without resource configuration.

    Each GPU runs its queue one task at a time in SPT order, at 100 % and the default clock, as stage 1 evaluates a
    scheme (Eqs. 6 to 9), so energy and average JCT are those of the scheme. With `all_at_once` the same queues run in
    batches of as many tasks as memory and the MPS clients allow, for which energy and average JCT are predicted.
    `searched` returns what `search` with these settings does, such as from a cache.

    Raises:
        InputError: there is no task, or a task fits no GPU.
    """
    instance = make_instance(tasks, cluster, predictor)
    schemes = search(instance, settings, rng) if searched is None else searched(instance, rng)
    chosen = knee(schemes.objectives)

    queues = spt_queues(schemes.gpus[[chosen]], instance)
    model = BatchModel(instance, predictor)
    how = replace(settings, batching="memory" if all_at_once else "single")
    batched = split_into_batches(queues, model, how)
    clocks_mhz = np.full(instance.k, DEFAULT_CLOCK)
    plan = PlanBuilder(batched, instance).plan(queues.of_gpu[0], clocks_mhz, schemes.objectives[chosen])
    if not all_at_once:
        return plan

    energy_j, jct_s = plan_objectives([plan], instance, model)[0].tolist()
    return replace(plan, energy_j=energy_j, jct_s=jct_s)
