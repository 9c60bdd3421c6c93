"""The oracle: a predictor without errors, the device model itself, for ablation."""

from collections.abc import Callable, Sequence

import numpy as np

from heshare.devices.device_model import Rates, co_run_rates
from heshare.prediction.predictor import CoRuns, Predictor
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

DeviceModel = Callable[[Gpu, Sequence[Resident], int | None], Rates]
"""Maps a GPU, its residents and the requested clock (MHz) to times and power."""
_SetPrediction = tuple[dict[Resident, float], float]


class DevicePredictor(Predictor):
    """Predicts with a device model, by default the calibrated one, so that what is predicted is what happens.

    Its calls are the tasks that the model has predicted so far; cached predictions are not counted.
    """

    def __init__(self, model: DeviceModel = co_run_rates) -> None:
        self._model = model
        self._cache: dict[Gpu, dict[tuple[int | None, tuple[Resident, ...]], _SetPrediction]] = {}

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: the GPU's default)."""
        cache = self._cache.setdefault(gpu, {})
        time_s = np.full((len(sets), max(map(len, sets), default=0)), np.nan)
        power_w = np.empty(len(sets))
        for row, (residents, clock) in enumerate(zip(sets, sm_mhz, strict=True)):
            # Sorted, so that the order of a set changes no bit.
            key = (clock, tuple(sorted(residents)))
            if key not in cache:
                cache[key] = self._predict_set(gpu, *key)
            times, power_w[row] = cache[key]
            time_s[row, : len(residents)] = [times[resident] for resident in residents]
        return CoRuns(time_s, power_w)

    def _predict_set(self, gpu: Gpu, sm_mhz: int | None, residents: tuple[Resident, ...]) -> _SetPrediction:
        if sm_mhz is not None:
            gpu.check_clock(sm_mhz)
        rates = self._model(gpu, residents, sm_mhz)
        self.calls += len(residents)
        return dict(zip(residents, rates.times_s, strict=True)), rates.power_w
