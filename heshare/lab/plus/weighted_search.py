"""Iterated local search over weights on time for one cluster: the weighted-sum part of the improved scheduler.

Energy E and sum of JCTs T are to be minimised together. The weighted-sum scalarisation minimises, for weights w > 0,

    f_w = E + w T,    w in J / s

Each minimiser is a Pareto optimal plan, since a plan that dominated it would have a smaller f_w. The points found so,
over all w, are the supported ones: those on the lower convex hull of the front. A point in a dent of the front is the
minimum of f_w for no weight (Ehrgott 2005, Chapters 3 and 8). Such points come from `heshare.lab.plus.fronts`, which
lists the whole front of every assignment that this search finds.

Two supported neighbours (E_1, T_1) and (E_2, T_2) cost the same at w = (E_1 - E_2) / (T_2 - T_1), and at weights on
either side one of them is better. So the slopes of the front are the range of weights that matters. The first round
reads it from a few weights over six decades around w_0 = E / T. The next rounds go along W weights spaced evenly in log
w, forth and back. Optima of neighbouring weights are alike, so each weight starts from its own best assignment and its
neighbour's, then from perturbations of its own; the better of old and new is kept (iterated local search).

Example: of three points the one in the middle lies above the line between the others, and no weight finds it.

>>> front = np.array([[0.0, 10.0], [6.0, 6.0], [10.0, 0.0]])
>>> weights = np.geomspace(0.01, 100.0, 201)
>>> sorted({int((front @ [1.0, weight]).argmin()) for weight in weights})
[0, 2]

Sources: weighted sums and supported points: Ehrgott 2005, Multicriteria Optimization, doi:10.1007/3-540-27659-9.
Iterated local search: Lourenco, Martin and Stuetzle 2003, doi:10.1007/0-306-48056-5_11.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from time import perf_counter

import numpy as np

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.fronts import FrontArchive
from heshare.lab.plus.local_search import NO_GPU, assign, construct, descend, empty_assignment, perturb
from heshare.lab.plus.option_tables import OptionTable, option_table, with_missing
from heshare.lab.plus.search_settings import SearchSettings
from heshare.scheduling.front import Front
from heshare.shared.arrays import FloatArray, IntArray

FEW_SETS = 5000
"""Sets of workloads on a type of GPU up to which all are predicted before the search."""
Progress = Callable[[int, FloatArray], object]
"""Called with the rounds done and the objectives of the front so far, shape (m, 2); False stops the search."""


class WeightedSearch:
    """The iterated local search over weights, with the archive of all assignments that it finds.

    `seeds` are assignments to begin with in addition, GPU of each task, shape (n,), such as the last plan's.

    Attributes:
        archive: the assignments found and their fronts.
    """

    def __init__(
        self, costs: BatchCosts, settings: SearchSettings, rng: np.random.Generator, seeds: Sequence[IntArray] = ()
    ) -> None:
        self._costs, self._settings, self._rng, self._seeds = costs, settings, rng, list(seeds)
        world = costs.world
        self.archive = FrontArchive(costs, settings)
        self._longest: IntArray = np.argsort(-costs.time_s.min(axis=1), kind="stable")
        members = [np.flatnonzero(world.kind_of == kind) for kind in range(len(world.kinds))]
        self._groups = np.full((len(members), max(map(len, members))), NO_GPU)
        for kind, gpus in enumerate(members):
            self._groups[kind, : len(gpus)] = gpus
        self._exhaustive = world.k <= settings.exhaustive_gpus
        self._swaps = world.n <= settings.swap_tasks and self._exhaustive
        self._weights = np.zeros(0)
        self._best: list[IntArray] = []
        self._best_costs: list[float] = []

    def run(self, until_s: float | None = None, progress: Progress | None = None) -> None:
        """Search round by round, until the rounds are done or the time is over; the first round is always finished.

        `until_s` is a moment of `perf_counter`, s, None for `settings.rounds` rounds; `progress` is called after every
        round, and False stops the search.
        """
        self._costs.fill_tables(FEW_SETS)
        self._find_weights()
        end_s, done = inf if until_s is None else until_s, 1
        while progress is None or progress(done, self.objectives()) is not False:
            if perf_counter() >= end_s or (until_s is None and done >= self._settings.rounds):
                break
            self._refine(done, end_s)
            done += 1

    def objectives(self) -> FloatArray:
        """Return [energy in J, average JCT in s] of the front so far, by energy, shape (m, 2)."""
        return self.archive.objectives()

    def front(self) -> Front:
        """Return the front, thinned to at most `settings.front_plans` plans."""
        return self.archive.front()

    @cached_property
    def _options(self) -> OptionTable:
        return option_table(self._costs)

    def _find_weights(self) -> None:
        """Search at coarse weights over the whole range; set the weights of the next rounds from the front's slopes."""
        settings = self._settings
        coarse = self._costs.balanced_weight() * 10.0 ** np.linspace(-3, 3, settings.coarse_weights)
        schemes = [self._local_optimum(self._constructed(weight), weight)[0] for weight in coarse]
        self.archive.add(schemes)
        low, high = self.archive.weight_range()
        self._weights = np.geomspace(low / 2, high * 2, settings.weights)
        nearest = np.abs(np.log(coarse)[None] - np.log(self._weights)[:, None]).argmin(axis=1)
        self._best = [schemes[index] for index in nearest]
        self._best_costs = [np.inf] * len(self._weights)

    def _refine(self, number: int, end_s: float) -> None:
        """Go once along the weights, each one from its own and its neighbour's best, then from perturbations."""
        neighbour = None
        for index in range(len(self._weights))[:: 1 if number % 2 else -1]:
            weight = float(self._weights[index])
            starts = [self._constructed(weight), *self._seeds] if number == 1 else []
            # The coarse round's assignments were optimal for other weights: their cost at this one is not computed yet.
            starts += [self._best[index]] if not np.isfinite(self._best_costs[index]) else []
            starts += [self._best[neighbour]] if neighbour is not None else []
            for start in starts:
                if perf_counter() >= end_s:
                    break
                self._accept(index, *self._local_optimum(start, weight))
            for _ in range(self._settings.perturbations if number > 1 else 0):
                if perf_counter() >= end_s:
                    break
                self._accept(index, *self._local_optimum(self._best[index], weight, perturbed=True))
            neighbour = index
            if perf_counter() >= end_s:
                break
        self.archive.add(self._best)

    def _accept(self, index: int, scheme: IntArray, cost: float) -> None:
        if cost < self._best_costs[index]:
            self._best[index], self._best_costs[index] = scheme, cost

    def _constructed(self, weight: float) -> IntArray:
        while True:
            queues = empty_assignment(self._costs)
            construct(self._options, queues, self._longest, self._costs.fits, self._groups, weight)
            if not self._fill_missing():
                return queues.gpu_of

    def _fill_missing(self) -> bool:
        before = self._options
        self._options = with_missing(self._costs, before)
        return self._options is not before

    def _local_optimum(self, scheme: IntArray, weight: float, *, perturbed: bool = False) -> tuple[IntArray, float]:
        """Return a scheme improved until no move improves it, and what it costs.

        A descent that misses predictions is made again from the same start: the result does not depend on what was
        predicted before.
        """
        costs, settings, rng = self._costs, self._settings, self._rng
        n, k = costs.world.n, costs.world.k
        moved = rng.permutation(n)[: settings.perturbation_size if perturbed else 0]
        moved_to = rng.integers(k, size=len(moved))
        order = rng.permutation(n)
        targets = np.tile(np.arange(k), (n, 1)) if self._exhaustive else self._sampled_gpus(n)
        # With all GPUs as targets, a descent ends by itself; n * n passes are no limit.
        passes = n * n if self._exhaustive else settings.passes
        while True:
            queues = empty_assignment(costs)
            assign(self._options, queues, scheme, weight)
            perturb(self._options, queues, moved, moved_to, costs.fits, weight)
            total = descend(self._options, queues, order, targets, costs.fits, self._swaps, passes, weight)
            if not self._fill_missing():
                return queues.gpu_of, total

    def _sampled_gpus(self, n: int) -> IntArray:
        per_kind = -(-self._settings.sampled_gpus // len(self._groups))
        used = [group[group != NO_GPU] for group in self._groups]
        return np.concatenate([gpus[self._rng.integers(len(gpus), size=(n, per_kind))] for gpus in used], axis=1)
