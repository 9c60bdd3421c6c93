"""Predictions for training, time slices and MIG: each workload alone as recorded, and a table of sets with errors.

The profiles hold inference under MPS only, and the forest is trained on nothing else. For a workload alone the
prediction is its record, as a reference row is for inference. For several together it comes from a table with errors:
the device model's estimate, with each time and each power off by a factor of stated spread that the GPU, the clock and
the set determine (never the order of the calls). So every system gets the same predictions, whichever predictor it
uses.
"""

import hashlib

import numpy as np

from heshare.devices.device_model import co_run_rates
from heshare.devices.noise import NoiseModel
from heshare.prediction.record_predictor import register_set_predictor
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

TIME_CV, POWER_CV = 0.05, 0.03
"""Spread of the table's errors, of a time over the time and of a power over the power; assumed."""


class SetTable:
    def __init__(self) -> None:
        self._cache: dict[tuple[Gpu, int, tuple[Resident, ...]], tuple[dict[Resident, float], float]] = {}

    def predict_set(
        self, gpu: Gpu, residents: tuple[Resident, ...], sm_mhz: int | None
    ) -> tuple[list[float], float, int]:
        """Return seconds per iteration of each resident, the GPU's power (W), and how many rows were computed."""
        ordered = tuple(sorted(residents))
        mhz = gpu.max_mhz if sm_mhz is None else sm_mhz
        rows = 0
        if (gpu, mhz, ordered) not in self._cache:
            self._cache[gpu, mhz, ordered] = self._compute(gpu, ordered, mhz)
            rows = len(ordered)
        times, power_w = self._cache[gpu, mhz, ordered]
        return [times[resident] for resident in residents], power_w, rows

    def _compute(self, gpu: Gpu, residents: tuple[Resident, ...], mhz: int) -> tuple[dict[Resident, float], float]:
        rates = co_run_rates(gpu, residents, mhz)
        if len(residents) == 1:
            return {residents[0]: rates.times_s[0]}, rates.power_w
        errors = _errors(f"{gpu.name} {mhz} {' '.join(map(str, residents))}")
        times = {
            resident: time_s * errors.of(str(resident)).factor(TIME_CV)
            for resident, time_s in zip(residents, rates.times_s, strict=True)
        }
        return times, rates.power_w * errors.of("power").factor(POWER_CV)


def _errors(text: str) -> NoiseModel:
    words = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4").tolist()
    return NoiseModel(np.random.default_rng(words))


register_set_predictor(SetTable)
