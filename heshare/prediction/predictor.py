"""The `Predictor` protocol: times under sharing and GPU power, as every planning policy uses them (Section III-A)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from heshare.arrays import FloatArray
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


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

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: the GPU's default).

        Raises:
            InputError: a clock is off the grid, or the predictor does not know the GPU or a workload.
        """
        ...

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Predict each of m workloads alone on `gpu` at 100 %, as `co_run`; `time_s` has shape (m, 1)."""
        return self.co_run([(Resident(workload),) for workload in workloads], gpu, [sm_mhz] * len(workloads))


class LazyPredictor(Predictor):
    """A predictor that is made at its first call: not every policy predicts.

    Args:
        make: returns the predictor; called once at most.
    """

    def __init__(self, make: Callable[[], Predictor]) -> None:
        self._make = make
        self._made: Predictor | None = None

    @property
    def calls(self) -> int:
        """Number of rows predicted so far."""
        return 0 if self._made is None else self._made.calls

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict sets of residents, each at its clock."""
        if self._made is None:
            self._made = self._make()
        return self._made.co_run(sets, gpu, sm_mhz)
