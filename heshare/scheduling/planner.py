"""HeShare's two stages from a task set to a Pareto front of plans (Sections III-B and III-C)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.batching import Lines, Split, distinct_lines, split_all, split_for_jct, split_for_memory
from heshare.scheduling.configuration import clock_candidates, clock_curves, combine, mps_percentages
from heshare.scheduling.genetic import Progress, Schemes, search
from heshare.scheduling.objectives import FloatArray, Instance, IntArray, fit_mask, instance
from heshare.scheduling.operators import anywhere
from heshare.scheduling.pareto import Front, knee, non_dominated, thin
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.settings import Settings
from heshare.scheduling.sharing import DEFAULT_CLOCK, NOBODY, Sharing
from heshare.world.cluster import Cluster
from heshare.world.task import Task

DEFAULTS = Settings()


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
    """Plan a task set: energy-aware task scheduling, then GPU sharing optimization.

    Args:
        tasks: the task set; all are taken to be there from the start, whatever their arrival.
        cluster: the GPUs.
        predictor: what the scheduler believes of time and power.
        rng: the only source of chance; the same state gives the same front, byte for byte.
        settings: every choice that the paper leaves open.
        progress: called with (generations done, generations in all) of stage 1; False stops the search early.
        ready_s: when each GPU begins with these tasks, s from now, shape (k,); at once unless given.
        seeds: schemes that stage 1 begins with, shape (m, n), such as the last plan's.

    Returns:
        The final Pareto front, with `.trade_off`, `.en_opt` and `.jct_opt`.

    Raises:
        InputError: there is no task, or one fits no GPU.
    """
    before = predictor.calls
    world = instance(tasks, cluster, predictor, ready_s)
    schemes = search(world, settings, rng, progress, seeds=seeds)
    plans, objectives = configure(schemes, world, predictor, settings)
    return Front(plans, objectives, predictor.calls - before)


def sched_only(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    settings: Settings = DEFAULTS,
    progress: Progress | None = None,
) -> Plan:
    """Sched-only: stage 1's knee, in memory-fitting batches in SPT order at 100 % and the card's own clock.

    Raises:
        InputError: there is no task, or one fits no GPU.
    """
    world = instance(tasks, cluster, predictor)
    schemes = search(world, settings, rng, progress)
    return unconfigured(schemes.gpus[knee(schemes.objectives)], world, predictor, settings)


def random_scheme(tasks: Sequence[Task], cluster: Cluster, rng: np.random.Generator) -> IntArray:
    """A GPU for each task, drawn uniformly from those whose memory it fits, shape (n,).

    Raises:
        InputError: there is no task, or one fits no GPU.
    """
    scheme: IntArray = anywhere(fit_mask(tasks, cluster), 1, rng)[0]
    return scheme


def unconfigured(scheme: IntArray, world: Instance, predictor: Predictor, settings: Settings = DEFAULTS) -> Plan:
    """The plan of a scheme, shape (n,), without resource configuration: memory-fitting SPT batches at 100 %."""
    sharing = Sharing(world, predictor)
    lines, which = distinct_lines(scheme[None], world)
    split = split_for_memory(lines, world)
    run = sharing.execute(split.batches, piecewise=settings.piecewise)
    gpus = which[0][which[0] != NOBODY]
    times = np.bincount(split.line, run.jct_s(split.behind), len(lines.kind))[gpus]
    energies = np.bincount(split.line, run.energy_j, len(lines.kind))[gpus]
    clocks = np.full(world.k, DEFAULT_CLOCK)
    return _plan(which[0], clocks, split, split.batches.mps_pct, world, (energies.sum(), times.sum() / world.n))


def configure(
    schemes: Schemes, world: Instance, predictor: Predictor, settings: Settings = DEFAULTS
) -> tuple[tuple[Plan, ...], FloatArray]:
    """Algorithm 1: batches, MPS percentages and clocks for Pareto schemes.

    All schemes are configured at once, so that the predictor gets few, large questions; queues that several schemes
    have in common are configured once.

    Returns:
        The plans of the final front in order of energy, and their [energy in J, average JCT in s], shape (m, 2).
    """
    chosen = thin(schemes.objectives, settings.solutions)
    lines, which = distinct_lines(schemes.gpus[chosen], world)
    sharing = Sharing(world, predictor)
    split = _split(lines, sharing, settings)
    pct = mps_percentages(split, sharing, settings)
    clocks_mhz = clock_candidates(world, settings)
    curves = clock_curves(split, pct, clocks_mhz, sharing, settings)
    merged = [combine(row, curves, settings) for row in which]
    owner = np.repeat(np.arange(len(chosen)), [len(points) for points, _ in merged])
    configured = np.concatenate([points for points, _ in merged]) / np.array([1.0, world.n])
    steps = np.concatenate([step for _, step in merged])
    # Whatever batches a queue is cut into, all of its tasks wait until their GPU begins.
    configured[:, 1] += (world.begin_s[schemes.gpus[chosen]].sum(axis=1) / world.n)[owner]
    everything = np.concatenate((configured, schemes.objectives[chosen]))
    front = np.flatnonzero(non_dominated(everything))
    front = front[thin(everything[front], settings.front)]
    sequential = split_all(lines)
    plans = []
    for index in front:
        value = (everything[index, 0], everything[index, 1])
        if index < len(owner):
            row = which[owner[index]]
            clock = clocks_mhz[world.kind_of, steps[index]]
            plans.append(_plan(row, clock, split, pct, world, value))
        else:
            clock = np.full(world.k, DEFAULT_CLOCK)
            row = which[index - len(owner)]
            plans.append(_plan(row, clock, sequential, sequential.batches.mps_pct, world, value))
    return tuple(plans), everything[front]


def _split(lines: Lines, sharing: Sharing, settings: Settings) -> Split:
    if settings.batching == "jct":
        return split_for_jct(lines, sharing)
    return split_for_memory(lines, sharing.world) if settings.batching == "memory" else split_all(lines)


def _plan(
    which: IntArray,
    clocks_mhz: IntArray,
    split: Split,
    pct: IntArray,
    world: Instance,
    value: tuple[float, float],
) -> Plan:
    """A `Plan` from the queue of each GPU, shape (k,), its clock, MHz, shape (k,), and the batches of all queues."""
    queues = []
    for line, clock in zip(which.tolist(), clocks_mhz.tolist(), strict=True):
        rows = np.flatnonzero(split.line == line) if line != NOBODY else np.zeros(0, dtype=np.int64)
        queues.append(tuple(_batch(split.batches.tasks[row], pct[row], clock, world) for row in rows))
    return Plan(world.cluster, world.tasks, tuple(queues), float(value[0]), float(value[1]))


def _batch(tasks: IntArray, pct: IntArray, clock_mhz: int, world: Instance) -> Batch:
    present = tasks != NOBODY
    ids = tuple(world.tasks[index].id for index in tasks[present].tolist())
    return Batch(ids, tuple(pct[present].tolist()), clock_mhz or None)
