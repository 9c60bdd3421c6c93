"""From assignments to a front of plans: fronts of queues, their sums, and the plans of the points that stay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from heshare.scheduling.costs import BatchCosts, Options
from heshare.scheduling.departing import NOBODY, FloatArray, IntArray
from heshare.scheduling.effort import Effort
from heshare.scheduling.merging import QueueFront, kept_of, merge, queue_front
from heshare.scheduling.pareto import non_dominated, thin
from heshare.scheduling.plan import Batch, Plan

Queue = tuple[int, tuple[int, ...]]
"""A type of GPU and its tasks in SPT order."""
Shared = dict[tuple[Queue, int], tuple[Batch, ...]]
"""The batches of points of queues that were written out before."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The front of a queue, with the options that its labels name."""

    front: QueueFront
    options: Options


class Archive:
    """Assignments and their fronts; queues that were met before are not worked out again.

    Args:
        costs: what batches cost.
        effort: the limits of labels, merges and the front.
    """

    def __init__(self, costs: BatchCosts, effort: Effort) -> None:
        self._costs, self._effort = costs, effort
        self._labels, self._most = effort.limits(costs.world.k)
        self._known: dict[Queue, _Known] = {}
        self._seen: set[tuple[Queue, ...]] = set()
        self._points = np.zeros((0, 2))
        self._choices: list[tuple[tuple[Queue, ...], IntArray]] = []

    def add(self, schemes: Iterable[IntArray]) -> None:
        """Work out the fronts of schemes, GPU of each task, shape (n,), and keep what is not dominated."""
        fresh = []
        for scheme in schemes:
            queues = self._queues(scheme)
            # GPUs of a type are alike unless they begin at different times.
            alike = queues if self._costs.world.begin_s.any() else tuple(sorted(queues))
            if alike not in self._seen:
                self._seen.add(alike)
                fresh.append(queues)
        self._learn(sorted({queue for queues in fresh for queue in queues if queue[1]} - self._known.keys()))
        for queues in fresh:
            self._merge(queues)

    def objectives(self) -> FloatArray:
        """[energy in J, average JCT in s] of the front so far, by energy, shape (m, 2)."""
        return np.asarray(self._points / np.array([1.0, self._costs.world.n]))

    def weights(self) -> tuple[float, float]:
        """The smallest and the largest weight on the sum of JCTs, J / s, between points of the front."""
        points = self._points
        if len(points) < 2:
            return 1.0, 1.0
        chosen = thin(points, 12)
        steps = -np.diff(points[chosen, 0]) / np.diff(points[chosen, 1])
        return float(steps.min()), float(steps.max())

    def plans(self) -> tuple[tuple[Plan, ...], FloatArray]:
        """The plans of the front in order of energy, at most `effort.front`, and their objectives, shape (m, 2)."""
        value = self.objectives()
        kept = np.flatnonzero(non_dominated(value))
        kept = kept[thin(value[kept], self._effort.front)]
        shared: Shared = {}
        plans, world = [], self._costs.world
        for at in kept.tolist():
            ways = self.queues(at, shared)
            plans.append(Plan(world.cluster, world.tasks, ways, float(value[at, 0]), float(value[at, 1])))
        return tuple(plans), value[kept]

    def totals(self) -> tuple[FloatArray, FloatArray]:
        """Energy in J and sum of JCTs in s of the points so far, by energy, each of shape (m,)."""
        return self._points[:, 0].copy(), self._points[:, 1].copy()

    def queues(self, at: int, shared: Shared) -> tuple[tuple[Batch, ...], ...]:
        """The batches of each GPU at one point; queues in `shared` are taken from there, new ones put there."""
        queues, points = self._choices[at]
        return tuple(self._way(queue, int(point), shared) for queue, point in zip(queues, points, strict=True))

    def _queues(self, scheme: IntArray) -> tuple[Queue, ...]:
        """The queue of each GPU."""
        costs = self._costs
        kind = costs.world.kind_of
        order = np.lexsort((costs.rank[kind[scheme], np.arange(len(scheme))], scheme))
        parts = np.split(order, np.searchsorted(scheme[order], np.arange(1, len(kind))))
        return tuple((one, tuple(part.tolist())) for one, part in zip(kind.tolist(), parts, strict=True))

    def _learn(self, queues: list[Queue]) -> None:
        """Work out the fronts of queues, type by type."""
        width = self._costs.freedom.width
        for kind in sorted({kind for kind, _ in queues}):
            mine = [queue for queue in queues if queue[0] == kind]
            options = self._costs.options(kind, np.concatenate([_intervals(tasks, width) for _, tasks in mine]))
            row = 0
            for queue in mine:
                here = _part(options, row, row + len(queue[1]) * width)
                row += len(queue[1]) * width
                front = queue_front(
                    len(queue[1]), width, here.begin, here.energy_j, here.spent_s, here.end_s, self._labels
                )
                self._known[queue] = _Known(front, here)

    def _merge(self, queues: tuple[Queue, ...]) -> None:
        used = [gpu for gpu, queue in enumerate(queues) if queue[1]]
        fronts = [self._known[queues[gpu]].front for gpu in used]
        energy_j, jct_s, chosen = merge([(front.energy_j, front.jct_s) for front in fronts], self._most)
        jct_s = jct_s + sum(float(self._costs.world.begin_s[gpu]) * len(queues[gpu][1]) for gpu in used)
        points = np.full((len(energy_j), len(queues)), NOBODY)
        points[:, used] = chosen
        joined = np.concatenate((self._points, np.stack((energy_j, jct_s), axis=1)))
        kept = kept_of(joined[:, 0].copy(), joined[:, 1].copy(), len(joined))
        before = len(self._points)
        self._choices = [self._choices[at] if at < before else (queues, points[at - before]) for at in kept.tolist()]
        self._points = joined[kept]

    def _way(self, queue: Queue, point: int, shared: Shared) -> tuple[Batch, ...]:
        """The batches of one point of a queue's front."""
        if point == NOBODY:
            return ()
        if (queue, point) not in shared:
            known, at, batches = self._known[queue], 0, []
            for size, option in known.front.batches(point):
                ids = tuple(self._costs.world.tasks[task].id for task in queue[1][at : at + size])
                pct = tuple(known.options.mps_pct[option, :size].tolist())
                batches.append(Batch(ids, pct, int(known.options.sm_mhz[option])))
                at += size
            shared[queue, point] = tuple(batches)
        return shared[queue, point]


def _intervals(tasks: tuple[int, ...], width: int) -> IntArray:
    """From every position of a queue the sets of 1, 2 .. width tasks, shape (m * width, width).

    A set that would reach beyond the end is given as one that is too short, and never asked for.
    """
    padded = np.array([*tasks, *[NOBODY] * width])
    at = np.arange(len(tasks))[:, None] + np.arange(width)
    rows: IntArray = np.where(
        np.arange(width)[None, None] <= np.arange(width)[None, :, None], padded[at][:, None], NOBODY
    )
    return rows.reshape(-1, width)


def _part(options: Options, start: int, stop: int) -> Options:
    """The menus of some sets in a row."""
    begin = options.begin[start : stop + 1]
    here = slice(begin[0], begin[-1])
    return Options(
        begin - begin[0],
        options.energy_j[here],
        options.spent_s[here],
        options.end_s[here],
        options.sm_mhz[here],
        options.mps_pct[here],
    )
