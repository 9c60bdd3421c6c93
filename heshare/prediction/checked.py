"""Wrapper that checks every answer of a user's predictor before a search or a policy uses it."""

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from heshare.prediction.predictor import CoRuns, Predictor
from heshare.shared.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident


class CheckedPredictor(Predictor):
    """Predictor that refuses answers of another shape, or that are not finite and above zero."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self.calls = self._counted()

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict sets of residents, each at its clock.

        Raises:
            InputError: a time or power that is missing, or not finite and above zero.
        """
        answer = self.predictor.co_run(sets, gpu, sm_mhz)
        self.calls = self._counted()
        sizes = np.array([len(residents) for residents in sets], dtype=np.int64)
        widest = int(sizes.max(initial=0))
        shapes = [np.shape(np.asarray(getattr(answer, name, None))) for name in ("time_s", "power_w")]
        good = len(shapes[0]) == 2 and shapes[0][0] == len(sets) and shapes[0][1] >= widest
        if not good or shapes[1] != (len(sets),):
            expected = f"CoRuns with time_s of shape ({len(sets)}, {widest}) and power_w of shape ({len(sets)},)"
            raise self._error(f"shapes {shapes[0]} and {shapes[1]} for {len(sets)} sets on {gpu.name}", expected)
        members = np.arange(shapes[0][1]) < sizes[:, None]
        for name, values in (("time_s", np.asarray(answer.time_s)[members]), ("power_w", np.asarray(answer.power_w))):
            wrong = ~(np.isfinite(values) & (values > 0))
            if wrong.any():
                raise self._error(f"{name} of {values[wrong][0]:g} on {gpu.name}", "finite values above zero")
        return CoRuns(np.asarray(answer.time_s, dtype=np.float64), np.asarray(answer.power_w, dtype=np.float64))

    def is_trained_on(self, gpu: Gpu) -> bool:
        """Return what the wrapped predictor returns."""
        return self.predictor.is_trained_on(gpu)

    def _counted(self) -> int:
        calls: object = self.predictor.calls
        if not isinstance(calls, Integral):
            raise self._error(f"calls of {calls}", "the number of rows predicted so far")
        return int(calls)

    def _error(self, found: str, expected: str) -> InputError:
        return InputError(
            f"{found} from {type(self.predictor).__name__}", expected, "Correct the predictor.", column="predictor"
        )


def checked(predictor: Predictor) -> Predictor:
    """Return a predictor whose answers are checked; this package's own are tested, and returned as they are."""
    return predictor if type(predictor).__module__.startswith("heshare.") else CheckedPredictor(predictor)
