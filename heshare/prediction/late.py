"""A predictor that is made when it is first asked: training takes seconds, and not every policy asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heshare.prediction.predictor import CoRuns, Predictor
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


class LatePredictor:
    """Answers as the predictor that `make` makes.

    Args:
        make: called once, at the first question.
    """

    def __init__(self, make: Callable[[], Predictor]) -> None:
        self._make = make
        self._made: Predictor | None = None

    @property
    def calls(self) -> int:
        """Rows predicted so far."""
        return 0 if self._made is None else self._made.calls

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Each workload alone."""
        return self._predictor().solo(workloads, gpu, sm_mhz)

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Sets of residents at a clock each."""
        return self._predictor().co_run(sets, gpu, sm_mhz)

    def _predictor(self) -> Predictor:
        if self._made is None:
            self._made = self._make()
        return self._made
