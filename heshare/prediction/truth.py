"""A predictor that is never wrong: the device model itself, for ablation (what does wrong prediction cost?)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from heshare.devices.model import co_run as device_model
from heshare.prediction.predictor import CoRuns
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


class _Task(Protocol):
    @property
    def time_s(self) -> float: ...


class _Estimate(Protocol):
    @property
    def power_w(self) -> float: ...
    @property
    def tasks(self) -> Sequence[_Task]: ...


Model = Callable[[Gpu, Sequence[Resident], int | None], _Estimate]
"""What answers for a device: GPU, residents and requested clock (MHz) to times and power."""


_Answer = tuple[dict[Resident, float], float]


class DevicePredictor:
    """Answers with a device model: what is believed is what will happen.

    Args:
        model: the device model; by default the calibrated one, `heshare.devices.model.co_run`.
    """

    def __init__(self, model: Model = device_model) -> None:
        self._model = model
        self._known: dict[Gpu, dict[tuple[int | None, tuple[Resident, ...]], _Answer]] = {}
        self._calls = 0

    @property
    def calls(self) -> int:
        """Tasks that the model has been asked about so far; answers from memory are not counted."""
        return self._calls

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Each of m workloads alone on `gpu` at 100 %; `time_s` has shape (m, 1).

        Raises:
            InputError: the clock is off the grid.
        """
        return self.co_run([(Resident(workload),) for workload in workloads], gpu, [sm_mhz] * len(workloads))

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Ask for m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: card default).

        Raises:
            InputError: a clock is off the grid.
        """
        known = self._known.setdefault(gpu, {})
        time_s = np.full((len(sets), max(map(len, sets), default=0)), np.nan)
        power_w = np.empty(len(sets))
        for row, (residents, clock) in enumerate(zip(sets, sm_mhz, strict=True)):
            # Asked in one order, so that permuting a set changes no bit.
            key = (clock, tuple(sorted(residents)))
            if key not in known:
                known[key] = self._ask(gpu, *key)
            times, power_w[row] = known[key]
            time_s[row, : len(residents)] = [times[one] for one in residents]
        return CoRuns(time_s, power_w)

    def _ask(self, gpu: Gpu, sm_mhz: int | None, residents: tuple[Resident, ...]) -> _Answer:
        if sm_mhz is not None:
            gpu.check_clock(sm_mhz)
        answer = self._model(gpu, residents, sm_mhz)
        self._calls += len(residents)
        return {one: task.time_s for one, task in zip(residents, answer.tasks, strict=True)}, answer.power_w
