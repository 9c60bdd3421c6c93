"""The local search over weights on time for one cluster, which the improved scheduler is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from heshare.scheduling.assembly import Archive
from heshare.scheduling.costs import BatchCosts
from heshare.scheduling.departing import NOBODY, FloatArray, IntArray
from heshare.scheduling.effort import Effort
from heshare.scheduling.improving import assign, construct, descend, disturb
from heshare.scheduling.menus import Menus, menus, refill
from heshare.scheduling.plan import Plan
from heshare.scheduling.queueing import empty_queues

Progress = Callable[[int, FloatArray], object]
"""Told (rounds done, objectives of the front so far, shape (m, 2)); False stops the search."""


class Search:
    """The local search over weights, with its archive of all that it found.

    Args:
        costs: what batches cost.
        effort: how hard to search.
        rng: the only source of chance.
        seeds: assignments to begin with besides, GPU of each task, shape (n,), such as the last plan's.

    Attributes:
        archive: the assignments found and their fronts.
    """

    def __init__(
        self, costs: BatchCosts, effort: Effort, rng: np.random.Generator, seeds: Sequence[IntArray] = ()
    ) -> None:
        self._costs, self._effort, self._rng, self._seeds = costs, effort, rng, list(seeds)
        world = costs.world
        self.archive = Archive(costs, effort)
        self._held: Menus | None = None
        self._longest: IntArray = np.argsort(-costs.time_s.min(axis=1), kind="stable")
        kinds = range(len(world.kinds))
        members = [np.flatnonzero(world.kind_of == kind) for kind in kinds]
        self._groups = np.full((len(members), max(map(len, members))), NOBODY)
        for kind, gpus in enumerate(members):
            self._groups[kind, : len(gpus)] = gpus
        self._whole = world.k <= effort.all_gpus
        self._swaps = world.n <= effort.swaps and world.k <= effort.all_gpus
        self._weights = np.zeros(0)
        self._schemes: list[IntArray] = []
        self._costs_now: list[float] = []

    def run(self, until_s: float | None = None, progress: Progress | None = None) -> None:
        """Search round by round, until the rounds are done or the time is up.

        Args:
            until_s: stop at this moment of `perf_counter`, s; None to do `effort.rounds` rounds.
            progress: as in `optimise`.
        """
        self.advance(0, until_s)
        done = 1
        while progress is None or progress(done, self.archive.objectives()) is not False:
            if done >= self._effort.rounds if until_s is None else perf_counter() >= until_s:
                break
            self.advance(done, until_s)
            done += 1

    def advance(self, number: int, until_s: float | None = None) -> None:
        """Do one round, the coarse one if its number is 0; it is cut short after `until_s`, except the coarse one."""
        if number:
            self._round(number, until_s)
        else:
            self._first_round()

    def rest(self) -> None:
        """Give the memory of the menus back; they are worked out again if the search goes on."""
        self._held = None

    def plans(self) -> tuple[tuple[Plan, ...], FloatArray]:
        """The plans of the front and their objectives, shape (m, 2), by energy."""
        return self.archive.plans()

    @property
    def _menus(self) -> Menus:
        if self._held is None:
            self._held = menus(self._costs)
        return self._held

    def _first_round(self) -> None:
        """A coarse look at the whole range of weights, from which the range that matters is read."""
        middle = self._middle()
        coarse = middle * 10.0 ** np.linspace(-3, 3, self._effort.coarse)
        found = [self._local_optimum(self._constructed(weight), weight)[0] for weight in coarse]
        self.archive.add(found)
        low, high = self.archive.weights()
        self._weights = np.geomspace(low / 2, high * 2, self._effort.weights)
        nearest = np.abs(np.log(coarse)[None] - np.log(self._weights)[:, None]).argmin(axis=1)
        self._schemes = [found[at] for at in nearest]
        self._costs_now = [np.inf] * len(self._weights)

    def _middle(self) -> float:
        """A weight at which energy and the sum of JCTs count about the same."""
        costs = self._costs
        energy_j = float(np.where(costs.fits, costs.energy_j, np.inf).min(axis=1).sum())
        alone_s = float(np.where(costs.fits, costs.time_s, np.inf).min(axis=1).sum())
        return energy_j / (alone_s * (1 + costs.world.n / costs.world.k) / 2)

    def _round(self, number: int, until_s: float | None) -> None:
        """One way along the weights, each starting from its own and its neighbour's best, then with kicks."""
        count = len(self._weights)
        path = range(count) if number % 2 else range(count - 1, -1, -1)
        neighbour = None
        for at in path:
            weight = float(self._weights[at])
            starts = [self._constructed(weight), *self._seeds] if number == 1 else []
            starts += [self._schemes[at]] if not np.isfinite(self._costs_now[at]) else []
            starts += [self._schemes[neighbour]] if neighbour is not None else []
            for start in starts:
                self._take(at, self._local_optimum(start, weight))
            for _ in range(self._effort.kicks if number > 1 else 0):
                self._take(at, self._local_optimum(self._schemes[at], weight, kick=True))
            neighbour = at
            if until_s is not None and perf_counter() >= until_s:
                break
        self.archive.add(self._schemes)

    def _take(self, at: int, found: tuple[IntArray, float]) -> None:
        if found[1] < self._costs_now[at]:
            self._schemes[at], self._costs_now[at] = found

    def _constructed(self, weight: float) -> IntArray:
        costs = self._costs
        while True:
            queues = empty_queues(costs.world.kind_of, costs.world.n, costs.freedom.width, costs.world.begin_s)
            construct(self._menus, queues, self._longest, costs.fits, self._groups, weight)
            if not self._refilled():
                return queues.gpu

    def _refilled(self) -> bool:
        """Ask for what the tables miss; whether anything was missing."""
        before = self._menus
        self._held = refill(self._costs, before)
        return self._held is not before

    def _local_optimum(self, scheme: IntArray, weight: float, *, kick: bool = False) -> tuple[IntArray, float]:
        """Improve a scheme until no move does; returns it and what it costs."""
        costs, effort, rng = self._costs, self._effort, self._rng
        n, k = costs.world.n, costs.world.k
        queues = empty_queues(costs.world.kind_of, n, costs.freedom.width, costs.world.begin_s)
        assign(self._menus, queues, scheme, weight)
        if kick:
            some = rng.permutation(n)[: effort.kick]
            disturb(self._menus, queues, some, rng.integers(k, size=len(some)), costs.fits, weight)
        total, passes = np.inf, n * n if self._whole else effort.passes
        for _ in range(1 if self._whole else effort.sweeps):
            order = rng.permutation(n)
            targets = np.broadcast_to(np.arange(k), (n, k)) if self._whole else self._sampled(n)
            wide = np.ascontiguousarray(targets)
            total = descend(self._menus, queues, order, wide, costs.fits, self._swaps, passes, weight)
        if self._refilled():
            return self._local_optimum(queues.gpu, weight)
        return queues.gpu, total

    def _sampled(self, n: int) -> IntArray:
        """Some GPUs of every type for each task, shape (n, s)."""
        each = -(-self._effort.targets // len(self._groups))
        columns = []
        for gpus in self._groups:
            gpus = gpus[gpus != NOBODY]
            columns.append(gpus[self._rng.integers(len(gpus), size=(n, each))])
        return np.concatenate(columns, axis=1)
