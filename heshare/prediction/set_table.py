"""Predictions for training, time slices and MIG: each workload alone as recorded, and a table of sets with errors.

The profiles hold inference under MPS only, and the schedulers' model is trained on nothing else. For a workload alone
the prediction is its record, as a reference row is for inference. For several together it comes from a table with
errors: the device model's estimate, with each time and each power off by a factor of stated spread that the GPU, the
clock and the set determine (never the order of the calls). So every system gets the same predictions, whichever
predictor it uses.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from heshare.devices.device_model import co_run_rates
from heshare.devices.noise import NoiseModel
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

TIME_CV, POWER_CV = 0.05, 0.03
"""Spread of the table's errors, of a time over the time and of a power over the power; assumed."""
_Set = tuple[Gpu, int, tuple[Resident, ...]]
_Prediction = tuple[dict[Resident, float], float]


@dataclass
class SetTable:
    """The table, which is computed as it is asked for.

    Attributes:
        rows: how many residents were predicted so far.
    """

    rows: int = 0
    _known: dict[_Set, _Prediction] = field(default_factory=dict)

    def predict(self, gpu: Gpu, residents: tuple[Resident, ...], sm_mhz: int | None) -> tuple[list[float], float]:
        """Return seconds per iteration of each resident and the GPU's power, W, at a clock, MHz (None: the top one)."""
        # Sorted, so that the order of a set changes no bit.
        ordered = tuple(sorted(residents))
        mhz = gpu.max_mhz if sm_mhz is None else sm_mhz
        if (gpu, mhz, ordered) not in self._known:
            self._known[gpu, mhz, ordered] = _computed(gpu, ordered, mhz)
            self.rows += len(ordered)

        times, power_w = self._known[gpu, mhz, ordered]
        return [times[resident] for resident in residents], power_w


def _computed(gpu: Gpu, residents: tuple[Resident, ...], mhz: int) -> _Prediction:
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
    seeds = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4").tolist()
    return NoiseModel(np.random.default_rng(seeds))
