"""Quality indicators of fronts: hypervolume and IGD+ against the union front, extent, spacing, paired tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from heshare.scheduling.objectives import Instance, sum_segments
from heshare.scheduling.operators import GeneticOperators, random_schemes
from heshare.scheduling.pareto import ideal, non_dominated
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray

RANDOM_PLANS = 1000


def random_plan_mean(instance: Instance, rng: np.random.Generator, count: int = RANDOM_PLANS) -> FloatArray:
    """Return the mean [energy in J, average JCT in s] of random plans, shape (2,).

    A random plan puts each task on a GPU drawn uniformly from those that it fits; a GPU runs its tasks one after the
    other in SPT order at its default clock.
    """
    schemes = random_schemes(instance.fits, count, rng)
    mean: FloatArray = sum_segments(GeneticOperators(instance, Settings()).segments(schemes), instance.n).mean(axis=0)
    return mean


@dataclass(frozen=True, slots=True)
class FrontIndicators:
    """Normalised hypervolume and IGD+ of the fronts of one task set.

    Attributes:
        union: the front of all fronts together, normalised, by energy, shape (m, 2).
        best: ideal point of the union, which becomes (0, 0): [J, s], shape (2,).
        reference: the mean of random plans, which becomes (1, 1): [J, s], shape (2,).
    """

    union: FloatArray
    best: FloatArray
    reference: FloatArray

    @classmethod
    def of(cls, fronts: Sequence[FloatArray], reference: FloatArray) -> Self:
        """Return the indicators of some fronts, each of shape (m, 2), and the mean of random plans, shape (2,)."""
        together = np.concatenate(fronts)
        union = together[non_dominated(together)]
        best = ideal(union)
        scaled = (union - best) / (reference - best)
        return cls(scaled[np.argsort(scaled[:, 0], kind="stable")], best, reference)

    def normalised(self, front: FloatArray) -> FloatArray:
        """Return a front scaled to the union's ideal point (0, 0) and the mean of random plans (1, 1), shape (m, 2)."""
        return (front - self.best) / (self.reference - self.best)

    def hypervolume(self, front: FloatArray) -> float:
        """Return the hypervolume up to the mean of random plans over that of the union front; 1 is the union front."""
        import moocore

        areas = [float(moocore.hypervolume(each, ref=np.ones(2))) for each in (self.normalised(front), self.union)]
        return areas[0] / areas[1]

    def igd_plus(self, front: FloatArray) -> float:
        """Return IGD+, the mean distance by which the front falls short of the union, normalised; 0 is best."""
        import moocore

        return float(moocore.igd_plus(self.normalised(front), ref=self.union))


def wilcoxon(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the p-value of the two-sided Wilcoxon signed-rank test of paired values, 1 if all pairs tie."""
    from scipy.stats import wilcoxon as signed_rank

    difference = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    return 1.0 if not difference.any() else float(signed_rank(difference).pvalue)


def unit_square(fronts: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return fronts, each of shape (m, 2), scaled so that the union front goes from (0, 1) to (1, 0)."""
    together = np.concatenate(list(fronts.values()))
    union = together[non_dominated(together)]
    least, most = ideal(union), union.max(axis=0)
    size = np.where(most > least, most - least, 1.0)
    return {title: (front - least) / size for title, front in fronts.items()}


def extent(front: FloatArray) -> float:
    """Return the diagonal of the box around a front, shape (m, 2); more is a wider choice of plans."""
    return float(np.hypot(*np.ptp(front, axis=0)))


def spacing(front: FloatArray) -> float:
    """Return the standard deviation of the gaps between neighbours on a front over their mean; 0 is uniform.

    Fewer than three points, shape (m, 2), have no two gaps to compare: 0.
    """
    points = np.unique(front, axis=0)
    gaps = np.hypot(*np.diff(points, axis=0).T)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 else 0.0
