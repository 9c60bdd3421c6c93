"""Quality indicators of Pareto fronts: hypervolume and IGD+ against the front of all fronts, extent, spacing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import moocore
import numpy as np

from heshare.scheduling.objectives import Instance, evaluate_schemes
from heshare.scheduling.operators import random_schemes
from heshare.scheduling.pareto import ideal, non_dominated
from heshare.shared.arrays import FloatArray

RANDOM_PLANS = 1000


def random_plan_mean(instance: Instance, rng: np.random.Generator, count: int = RANDOM_PLANS) -> FloatArray:
    """Return the mean [energy in J, average JCT in s] of random plans, shape (2,).

    A random plan assigns each task to a GPU drawn uniformly from those that it fits; a GPU runs its tasks one after the
    other in SPT order at its default clock.
    """
    schemes = random_schemes(instance.fits, count, rng)
    mean: FloatArray = evaluate_schemes(schemes, instance).mean(axis=0)
    return mean


@dataclass(frozen=True, slots=True)
class FrontIndicators:
    """Indicators of the fronts of one task set, relative to the union front, that of all fronts together.

    Attributes:
        union: the union front by energy, shape (m, 2): its ideal point is (0, 0), the mean of random plans (1, 1).
        best: the ideal point of the union, [J, s], shape (2,).
        worst: its largest values, [J, s], shape (2,).
        reference: the mean of random plans, [J, s], shape (2,).
    """

    union: FloatArray
    best: FloatArray
    worst: FloatArray
    reference: FloatArray

    @classmethod
    def of(cls, fronts: Sequence[FloatArray], reference: FloatArray) -> Self:
        """Return the indicators of some fronts, each of shape (m, 2), and the mean of random plans, shape (2,)."""
        together = np.concatenate(fronts)
        union = together[non_dominated(together)]
        best = ideal(union)
        scaled = (union - best) / (reference - best)
        by_energy = np.argsort(scaled[:, 0], kind="stable")
        return cls(scaled[by_energy], best, union.max(axis=0), reference)

    def normalised(self, front: FloatArray) -> FloatArray:
        """Return a front scaled to the union's ideal point (0, 0) and the mean of random plans (1, 1), shape (m, 2)."""
        return (front - self.best) / (self.reference - self.best)

    def hypervolume(self, front: FloatArray) -> float:
        """Return the hypervolume up to the mean of random plans over that of the union front; 1 is the union front.

        It is 1 too where no plan of the union is better than the mean of random plans in both measures, as in short
        searches. The ratio of two fronts' hypervolumes does not depend on the other fronts of the union.
        """
        area = float(moocore.hypervolume(self.normalised(front), ref=np.ones(2)))
        whole = float(moocore.hypervolume(self.union, ref=np.ones(2)))
        return area / whole if whole else 1.0

    def igd_plus(self, front: FloatArray) -> float:
        """Return IGD+, the mean distance by which the front falls short of the union, normalised; 0 is best."""
        return float(moocore.igd_plus(self.normalised(front), ref=self.union))

    def extent(self, front: FloatArray) -> float:
        """Return the diagonal of the box around a front, where the union front goes from (0, 1) to (1, 0)."""
        return float(np.hypot(*np.ptp(self._in_box(front), axis=0)))

    def spacing(self, front: FloatArray) -> float:
        """Return the standard deviation of the gaps between neighbours on a front over their mean; 0 is uniform.

        Gaps are measured where the union front goes from (0, 1) to (1, 0). Fewer than three points have no two gaps to
        compare: 0.
        """
        points = np.unique(self._in_box(front), axis=0)
        gaps = np.hypot(*np.diff(points, axis=0).T)
        return float(gaps.std() / gaps.mean()) if len(gaps) > 1 else 0.0

    def _in_box(self, front: FloatArray) -> FloatArray:
        size = np.where(self.worst > self.best, self.worst - self.best, 1.0)
        return (front - self.best) / size
