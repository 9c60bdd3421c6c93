"""How good fronts are: hypervolume and IGD+ against the union front, attainment surfaces, paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from heshare.scheduling.engines import engine
from heshare.scheduling.objectives import FloatArray, Instance, totals
from heshare.scheduling.operators import anywhere
from heshare.scheduling.pareto import hypervolume, ideal, non_dominated
from heshare.scheduling.settings import Settings

RANDOM_PLANS = 1000


def random_level(world: Instance, rng: np.random.Generator, count: int = RANDOM_PLANS) -> FloatArray:
    """Mean [energy in J, average JCT in s] of random plans, shape (2,).

    A random plan puts every task on a GPU drawn uniformly from those it fits; a GPU runs its tasks one after the
    other, shortest first, at the card's own clock.
    """
    schemes = anywhere(world.fits, count, rng)
    mean: FloatArray = totals(engine(world, Settings()).segments(schemes), world.n).mean(axis=0)
    return mean


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What fronts of one task set are measured by.

    Attributes:
        union: the front of all fronts together, normalised, in order of energy, shape (m, 2).
        best: its ideal point, which becomes (0, 0): [J, s], shape (2,).
        reference: the level of random plans, which becomes (1, 1): [J, s], shape (2,).
    """

    union: FloatArray
    best: FloatArray
    reference: FloatArray

    @classmethod
    def of(cls, fronts: Sequence[FloatArray], reference: FloatArray) -> Self:
        """The yardstick of some fronts, each of shape (m, 2), and the level of random plans, shape (2,)."""
        together = np.concatenate(fronts)
        union = together[non_dominated(together)]
        best = ideal(union)
        scaled = (union - best) / (reference - best)
        return cls(scaled[np.argsort(scaled[:, 0], kind="stable")], best, reference)

    def normalised(self, front: FloatArray) -> FloatArray:
        """A front with the union's ideal at (0, 0) and random plans at (1, 1), shape (m, 2)."""
        return (front - self.best) / (self.reference - self.best)

    def hypervolume(self, front: FloatArray) -> float:
        """Hypervolume up to the level of random plans over the union front's own; 1 is the union front."""
        level = np.ones(2)
        return hypervolume(self.normalised(front), level) / hypervolume(self.union, level)

    def igd_plus(self, front: FloatArray) -> float:
        """IGD+: the mean distance by which the front falls short of the union front, normalised; 0 is the best."""
        import moocore

        return float(moocore.igd_plus(self.normalised(front), ref=self.union))


def attainment(fronts: Sequence[FloatArray], share: float = 0.5) -> FloatArray:
    """The attainment surface: what at least a share of the runs reaches, corners in order of energy, shape (m, 2).

    Args:
        fronts: one front a run, each of shape (m, 2), in the same units.
        share: of the runs; 0.5 is the median surface.
    """
    import moocore

    data = np.concatenate(
        [np.column_stack((front, np.full(len(front), float(run + 1)))) for run, front in enumerate(fronts)]
    )
    corners = cast(FloatArray, moocore.eaf(data[:, :2], data[:, 2].astype(np.int64), percentiles=[100 * share]))[:, :2]
    return corners[np.lexsort((corners[:, 1], corners[:, 0]))]


def wilcoxon(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided Wilcoxon signed-rank test of values that are paired by seed: its p-value, 1 where all pairs tie."""
    from scipy.stats import wilcoxon as signed_rank

    difference = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    return 1.0 if not difference.any() else float(signed_rank(difference).pvalue)
