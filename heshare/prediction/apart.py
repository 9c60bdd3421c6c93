"""What schedulers believe of training, time slices and MIG: the record of each workload alone, and a table of sets.

The profiles hold inference under MPS only, and the forest knows nothing else. A workload alone is known from its
record, as the forest knows an inference workload from its reference row. What several do together is known from a table
of sets that is somewhat wrong: the device model's answer, each time and each power off by a factor of stated spread
that the GPU, the clock and the set decide (never the order of asking). So every system believes the same, whichever
predictor it is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from heshare.devices.model import co_run
from heshare.devices.noise import NoiseModel
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

TIME_CV, POWER_CV = 0.05, 0.03
"""Spread of the table's errors, of a time over the time and of a power over the power; assumed."""


def beyond(residents: Iterable[Resident]) -> bool:
    """Whether a set of residents is one that the profiles know nothing of: some train, or do not share by MPS."""
    return any(one.sharing != "mps" or one.workload.phase == "training" for one in residents)


class SetTable:
    """Answers for sets beyond the profiles; each set is worked out once.

    Args:
        time_cv: spread of the errors of times.
        power_cv: spread of the errors of power.
    """

    def __init__(self, time_cv: float = TIME_CV, power_cv: float = POWER_CV) -> None:
        self._time_cv, self._power_cv = time_cv, power_cv
        self._known: dict[tuple[Gpu, int, tuple[Resident, ...]], tuple[dict[Resident, float], float]] = {}

    def ask(self, gpu: Gpu, residents: tuple[Resident, ...], sm_mhz: int | None) -> tuple[list[float], float, int]:
        """Seconds per iteration of each resident, the GPU's power (W), and how many rows had to be worked out.

        Raises:
            InputError: the clock is off the grid, an unknown workload, or ways of sharing that do not go together.
        """
        ordered = tuple(sorted(residents))
        mhz = gpu.max_mhz if sm_mhz is None else sm_mhz
        rows = 0
        if (gpu, mhz, ordered) not in self._known:
            self._known[gpu, mhz, ordered] = self._work_out(gpu, ordered, mhz)
            rows = len(ordered)
        times, power_w = self._known[gpu, mhz, ordered]
        return [times[one] for one in residents], power_w, rows

    def _work_out(self, gpu: Gpu, residents: tuple[Resident, ...], mhz: int) -> tuple[dict[Resident, float], float]:
        answer = co_run(gpu, residents, mhz)
        if len(residents) == 1:
            return {residents[0]: answer.tasks[0].time_s}, answer.power_w
        errors = _errors(f"{gpu.name} {mhz} {' '.join(map(str, residents))}")
        times = {
            one: task.time_s * errors.of(str(one)).factor(self._time_cv)
            for one, task in zip(residents, answer.tasks, strict=True)
        }
        return times, answer.power_w * errors.of("power").factor(self._power_cv)


def _errors(text: str) -> NoiseModel:
    """A source of errors that the text alone decides."""
    words = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4").tolist()
    return NoiseModel(np.random.default_rng(words))
