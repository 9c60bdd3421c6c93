"""The resource configuration algorithm (Section III-C 2, Algorithm 1, lines 6-21): MPS percentages and clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heshare.scheduling.batching import Split
from heshare.scheduling.objectives import FloatArray, Instance, IntArray
from heshare.scheduling.pareto import non_dominated, thin
from heshare.scheduling.settings import Settings
from heshare.scheduling.sharing import DEFAULT_CLOCK, NOBODY, Batches, Executions, Sharing, distinct_rows


def mps_percentages(split: Split, sharing: Sharing, settings: Settings) -> IntArray:
    """The MPS percentage of every task of every batch (lines 6-10), shape (b, w).

    Coordinate descent: from 100 % each, the tasks of a batch choose in SPT order, once each, the percentage that
    serves `settings.mps_goal` best; of equal ones the largest. A task alone keeps 100 %: a limit can only slow it.
    """
    asked, behind = split.batches, split.behind
    if settings.mps_goal == "none":
        return asked.mps_pct.copy()
    table = np.concatenate((asked.kind[:, None], asked.tasks), axis=1)
    if settings.mps_goal == "queue":
        table = np.concatenate((behind[:, None], table), axis=1)
    first, inverse = distinct_rows(table)
    asked, behind = asked.take(first), behind[first]
    pct = asked.mps_pct.copy()
    shares = np.array(settings.mps_pcts[::-1])
    size = asked.members.sum(axis=1)
    for position in range(asked.tasks.shape[1]):
        rows = np.flatnonzero(size > max(position, 1))
        tried = Batches(asked.kind, asked.tasks, pct, asked.sm_mhz).take(np.repeat(rows, len(shares)))
        tried.mps_pct[:, position] = np.tile(shares, len(rows))
        score = _score(sharing.execute(tried), position, np.repeat(behind[rows], len(shares)), settings)
        pct[rows, position] = shares[_first_least(score.reshape(len(rows), len(shares)))]
    return pct[inverse]


def _score(run: Executions, position: int, behind: IntArray, settings: Settings) -> FloatArray:
    """What the percentage of the task at `position` is chosen by, less is better, shape (b,)."""
    if settings.mps_goal == "own":
        return run.time_s[:, position]
    return run.jct_s(behind if settings.mps_goal == "queue" else np.zeros_like(behind))


def _first_least(score: FloatArray) -> IntArray:
    """In each row the first value that is within 1e-9 of the least, shape (r, c) -> (r,)."""
    least = score.min(axis=1, keepdims=True) if score.size else np.zeros((len(score), 1))
    best: IntArray = (score <= least * (1 + 1e-9)).argmax(axis=1)
    return best


def clock_candidates(world: Instance, settings: Settings) -> IntArray:
    """SM clocks to try on each type of GPU, MHz, ascending, evenly spaced over its grid, shape (kinds, c).

    A grid with fewer clocks repeats some of them. Without a choice, the one candidate is the card's own clock.
    """
    if settings.clock_scope == "none":
        return np.full((len(world.kinds), 1), DEFAULT_CLOCK)
    rows = []
    for gpu in world.kinds:
        last = len(gpu.clocks_mhz) - 1
        at = np.linspace(0, last, settings.clocks) if settings.clocks > 1 else np.array([last])
        rows.append(np.array(gpu.clocks_mhz)[np.round(at).astype(np.int64)])
    return np.array(rows)


@dataclass(frozen=True, slots=True)
class Curves:
    """What each queue costs at each clock.

    Attributes:
        energy_j: energy of the queue's batches (Eq. 14), J, shape (q, c).
        jct_s: sum of its tasks' JCTs, s, shape (q, c).
    """

    energy_j: FloatArray
    jct_s: FloatArray


def clock_curves(split: Split, pct: IntArray, clocks_mhz: IntArray, sharing: Sharing, settings: Settings) -> Curves:
    """Run every batch at every candidate clock (lines 12-13).

    Args:
        split: the queues cut into batches.
        pct: their MPS percentages, shape (b, w).
        clocks_mhz: candidates for each type of GPU, shape (kinds, c).
        sharing: what is believed.
        settings: whether it counts that tasks speed up when others end.
    """
    asked, count, lines = split.batches, clocks_mhz.shape[1], int(split.line[-1]) + 1
    rows = np.repeat(np.arange(len(asked)), count)
    tried = Batches(asked.kind[rows], asked.tasks[rows], pct[rows], clocks_mhz[asked.kind].ravel())
    run = sharing.execute(tried, piecewise=settings.piecewise)
    place = (split.line[:, None] * count + np.arange(count)).ravel()
    jct_s = run.jct_s(np.repeat(split.behind, count))
    energy_j: FloatArray = np.bincount(place, run.energy_j, lines * count).astype(np.float64)
    total_s: FloatArray = np.bincount(place, jct_s, lines * count).astype(np.float64)
    return Curves(energy_j.reshape(lines, count), total_s.reshape(lines, count))


def combine(which: IntArray, curves: Curves, settings: Settings) -> tuple[FloatArray, IntArray]:
    """The Pareto front of one scheme over the clocks of its GPUs (lines 12-21).

    Energy and the sum of JCTs add up over GPUs, so the front of k GPUs is the non-dominated part of all sums of a
    point of the first k - 1 and a point of the last. With `clock_scope="plan"` all GPUs take the same step.

    Args:
        which: the queue of each GPU, `NOBODY` for none, shape (k,).
        curves: what each queue costs at each clock.
        settings: scope and the number of partial plans kept.

    Returns:
        [energy in J, sum of JCTs in s] of m plans, shape (m, 2), and the index of each GPU's clock, shape (m, k).
    """
    count = curves.energy_j.shape[1]
    used = np.flatnonzero(which != NOBODY)
    options = np.stack((curves.energy_j[which[used]], curves.jct_s[which[used]]), axis=2)
    if settings.clock_scope == "plan":
        points = options.sum(axis=0)
        kept = np.flatnonzero(non_dominated(points))
        return points[kept], np.repeat(kept[:, None], len(which), axis=1)
    points, steps = np.zeros((1, 2)), np.full((1, len(which)), count - 1)
    for gpu, choice in zip(used, options, strict=True):
        kept = np.flatnonzero(non_dominated(choice))
        points = (points[:, None] + choice[kept][None]).reshape(-1, 2)
        steps = np.repeat(steps, len(kept), axis=0)
        steps[:, gpu] = np.tile(kept, len(steps) // len(kept))
        front = np.flatnonzero(non_dominated(points))
        front = front[thin(points[front], settings.merge)]
        points, steps = points[front], steps[front]
    return points, steps
