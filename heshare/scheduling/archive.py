"""The external archive that every search keeps: what no other scheme dominates, thinned along the front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from heshare.scheduling.objectives import BoolArray, FloatArray, IntArray
from heshare.scheduling.pareto import dominance, significant, thin


@dataclass(frozen=True, slots=True)
class Archive:
    """Schemes of which none is better in both objectives, in order of energy.

    Attributes:
        gpus: the schemes, shape (m, n).
        objectives: [energy in J, average JCT in s] of each, shape (m, 2).
        rounded: the objectives as `pareto.significant` has them, shape (m, 2).
    """

    gpus: IntArray
    objectives: FloatArray
    rounded: FloatArray

    @classmethod
    def empty(cls, n: int) -> Self:
        """Nothing yet, for schemes of n tasks."""
        return cls(np.zeros((0, n), dtype=np.int64), np.zeros((0, 2)), np.zeros((0, 2)))

    def with_new(
        self,
        gpus: IntArray,
        objectives: FloatArray,
        rounded: FloatArray | None = None,
        *,
        limit: int,
        non_dominated: Callable[[FloatArray], BoolArray] = dominance,
    ) -> Archive:
        """The archive with the new schemes, shape (p, n), that no other dominates, thinned to `limit`.

        Args:
            gpus: the new schemes.
            objectives: theirs, shape (p, 2).
            rounded: these as `pareto.significant` has them, if they are at hand.
            limit: the largest size.
            non_dominated: which form of `pareto.dominance` filters.
        """
        rounded = significant(objectives) if rounded is None else rounded
        together = np.concatenate((self.rounded, rounded))
        kept = np.flatnonzero(non_dominated(together))
        if len(kept) and kept[-1] < len(self.gpus):
            return self  # what is there is in order and within the limit already
        everything = np.concatenate((self.objectives, objectives))
        kept = kept[thin(everything[kept], limit)]
        return Archive(np.concatenate((self.gpus, gpus))[kept], everything[kept], together[kept])
