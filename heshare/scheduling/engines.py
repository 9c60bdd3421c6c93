"""The steps of a generation, in two forms that give the same bytes: numpy to read, compiled to run."""

from __future__ import annotations

import numpy as np

from heshare.compiling import compiling
from heshare.scheduling import kernels, operators, selection
from heshare.scheduling.objectives import BoolArray, FloatArray, Instance, IntArray, segments
from heshare.scheduling.pareto import dominance
from heshare.scheduling.settings import Settings


class Readable:
    """The operators of stage 1 as `operators` has them, over whole populations.

    Args:
        world: the task set on its cluster.
        settings: the reading of the operators, and which of them are used at all.
    """

    def __init__(self, world: Instance, settings: Settings) -> None:
        self.world, self.settings = world, settings
        self.use = operators.resource_use(world)

    def segments(self, schemes: IntArray) -> FloatArray:
        """[energy in J, sum of JCTs in s] of each GPU's subset, shape (p, k, 2)."""
        return segments(schemes, self.world)

    def select(self, objectives: FloatArray, rounded: FloatArray, count: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Environmental selection of `count` of m points, (m, 2); `rounded`: as `significant` has them."""
        return operators.environmental_selection(objectives, count)

    def non_dominated(self, rounded: FloatArray) -> BoolArray:
        """Which of m points, as `significant` has them, no other dominates, shape (m,)."""
        return dominance(rounded)

    def cross(self, schemes: IntArray, parts: FloatArray, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        """One child of each pair of parents, `pairs` of shape (2, c), shape (c, n)."""
        one, other = pairs
        if self.settings.crossover == "uniform":
            return operators.uniform_crossover((schemes[one], schemes[other]), rng)
        return self._elitism(schemes, parts, pairs, rng)

    def mutate(self, children: IntArray, rng: np.random.Generator) -> IntArray:
        """Two offspring of each of c children, shape (2c, n)."""
        if self.settings.mutation == "reset":
            both = np.concatenate((children, children))
            return operators.random_reset(both, self.world, self.settings.mutation_rate, rng)
        return self._migrate(children, rng)

    def _elitism(self, schemes: IntArray, parts: FloatArray, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        scores = operators.segment_scores(schemes, parts, self.world, self.settings)
        one, other = pairs
        return operators.elitism_selection(
            (schemes[one], schemes[other]), (scores[one], scores[other]), self.world, rng
        )

    def _migrate(self, children: IntArray, rng: np.random.Generator) -> IntArray:
        return operators.priority_mutation(children, self.use, self.world, self.settings, rng)


class Compiled(Readable):
    """The same, compiled: nothing in a generation grows faster than tasks times kinds, plus moved tasks times GPUs."""

    def __init__(self, world: Instance, settings: Settings) -> None:
        super().__init__(world, settings)
        first = world.first_of_kind
        time_s, energy_j = world.time_s[:, first].copy(), world.energy_j[:, first].copy()
        self._costs: kernels.Costs = (time_s, energy_j, world.order_of_kind, world.kind_of, world.begin_s)
        self._best = np.stack((world.best_j, world.best_s))
        self._by_kind = np.argsort(world.kind_of, kind="stable")
        self._alone = np.stack((world.energy_j.argmin(axis=1), world.time_s.argmin(axis=1)))

    def segments(self, schemes: IntArray) -> FloatArray:
        """[energy in J, sum of JCTs in s] of each GPU's subset, shape (p, k, 2)."""
        return kernels.segments(schemes, self._costs)

    def select(self, objectives: FloatArray, rounded: FloatArray, count: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Environmental selection of `count` of m points, (m, 2); `rounded`: as `significant` has them."""
        return selection.select(objectives, rounded, count)

    def non_dominated(self, rounded: FloatArray) -> BoolArray:
        """Which of m points, as `significant` has them, no other dominates, shape (m,)."""
        return selection.non_dominated(rounded)

    def _elitism(self, schemes: IntArray, parts: FloatArray, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        weights = rng.random((pairs.shape[1],))
        scores = parts
        if self.settings.segments == "normalised":
            scores = kernels.segment_scores(schemes, parts, self._best)
        return kernels.elitism_selection(schemes, pairs, scores, weights, self._costs, self._best)

    def _migrate(self, children: IntArray, rng: np.random.Generator) -> IntArray:
        moved = rng.random(children.shape) < self.settings.mutation_rate
        if self.settings.targets == "static":
            goes = np.repeat(self._alone[:, None], len(children), axis=1)
        else:
            goes = kernels.load_aware_targets(children, moved, self._costs, self._by_kind)
        if not self.settings.recovery:
            return np.where(moved, goes, children).reshape(-1, self.world.n)
        overload = float(self.settings.overload)
        after = [kernels.recover(children, moved, goal, self.use, self._costs, overload) for goal in goes]
        return np.concatenate(after)


def engine(world: Instance, settings: Settings, compiled: bool | None = None) -> Readable:
    """The compiled form, or the numpy form where numba is told not to compile (`NUMBA_DISABLE_JIT=1`).

    Args:
        world: the task set on its cluster; GPUs of one type have equal columns.
        settings: how to search.
        compiled: one of the forms by name; both give the same bytes.
    """
    chosen = compiling() if compiled is None else compiled
    return Compiled(world, settings) if chosen else Readable(world, settings)
