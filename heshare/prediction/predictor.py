"""What a scheduler believes: the `Predictor` protocol that every planning policy uses (Section III-A)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CoRuns:
    """Predictions for m sets of tasks that share one GPU.

    Attributes:
        time_s: seconds per iteration of each resident, shape (m, largest set), NaN beyond a set's size.
        power_w: the GPU's power while the whole set runs, W, shape (m,).
    """

    time_s: FloatArray
    power_w: FloatArray


class Predictor(Protocol):
    """Predicts time under sharing and the GPU's power. Every policy that predicts uses the same one."""

    @property
    def calls(self) -> int:
        """Rows predicted so far (reported beside every result)."""
        ...

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Each of m workloads alone on `gpu` at 100 %; `time_s` has shape (m, 1). `sm_mhz=None`: card default."""
        ...

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: card default)."""
        ...
