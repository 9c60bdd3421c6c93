"""Emulated GPU: the device model in virtual time behind the `Device` protocol."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from heshare.devices.constants import Constants, default
from heshare.devices.device import Alone, AloneState
from heshare.devices.device_model import Estimate, co_run
from heshare.devices.virtual_device import NEGLIGIBLE, VirtualDevice, mps_resident
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

if TYPE_CHECKING:
    from heshare.devices.noise import NoiseModel

_Estimates = dict[tuple[int | None, tuple[Resident, ...]], Estimate]
StatesAlone = dict[tuple[Workload, int], AloneState]
_KEPT = 20_000
"""Estimates kept for each kind of device; beyond them, the cache starts anew."""


@lru_cache(maxsize=64)
def _known_of(
    gpu: Gpu, power_cap_w: float | None, sleep_w: float | None, constants: Constants
) -> tuple[_Estimates, defaultdict[int | None, StatesAlone]]:
    return {}, defaultdict(dict)


def due_alone_s(now_s: float, iterations: float, time_s: float) -> float:
    """Return when a task that starts alone now is done, s; `inf` if a device would not end it then."""
    due_s = now_s + iterations * time_s
    # As the device itself: rounding can leave a rest at that time.
    left_s = (iterations - min(iterations, (due_s - now_s) / time_s)) * time_s
    return due_s if left_s <= NEGLIGIBLE * time_s or due_s + left_s <= due_s else math.inf


class EmulatedDevice(VirtualDevice):
    """A GPU of the catalogue that behaves as `heshare.devices.device_model.co_run` predicts, in virtual time.

    Args:
        gpu: the GPU.
        power_cap_w: its power limit, W; None is the card's own.
        sleep_w: power while nothing runs and no clock is held, W, of a GPU that then has no context; None if its
            context stays.
        noise: repeat noise on readings; None is none. Progress and energy are never noisy.
        constants: other constants than the calibrated ones.

    Raises:
        InputError: a GPU without constants, or a cap at or below its idle power.
    """

    provenance = "emulated"

    def __init__(
        self,
        gpu: Gpu,
        *,
        power_cap_w: float | None = None,
        sleep_w: float | None = None,
        noise: NoiseModel | None = None,
        constants: Constants | None = None,
    ) -> None:
        super().__init__(gpu, provenance=self.provenance, noise=noise)
        self._cap_w, self._sleep_w = power_cap_w, sleep_w
        self._constants = constants or default()
        self._estimates, self._states_alone = _known_of(gpu, power_cap_w, sleep_w, self._constants)
        self._estimate(None, ())

    @property
    def alike(self) -> StatesAlone | None:
        """States with one task: a table of all devices that do the same; None if a subclass or noise may differ."""
        plain = self._noise is None and type(self) is EmulatedDevice
        return self._states_alone[self._clock] if plain else None

    def state_alone(self, workload: Workload, mps_pct: int) -> AloneState:
        """Return the state with this task alone, and keep it in `alike`."""
        state = self._estimate(self._clock, (mps_resident(workload, mps_pct)[0],))
        found = AloneState(self._clock, state.sm_mhz, state.power_w, state.tasks[0].time_s)
        self._states_alone[self._clock][workload, mps_pct] = found
        return found

    def catch_up(self, ended: Iterable[Alone], index: int) -> None:
        """Account for the energy of tasks that had this device, whose index is given, one after the other."""
        idle_w, now_s, energy_j = self._update().power_w, self._now_s, self._energy_j
        for _, gpus, start_s, end_s, _, _, _, _, due_s, _, _, power_w, _ in ended:
            # Its first GPU ends a task when it is due, the others when the event is processed.
            left_s = due_s if gpus[0] == index else end_s
            energy_j += idle_w * (start_s - now_s)
            energy_j += power_w * (left_s - start_s)
            if end_s > left_s:
                energy_j += idle_w * (end_s - left_s)
            now_s = end_s
        self._now_s, self._energy_j = now_s, energy_j

    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        key = (sm_mhz, residents)
        estimate = self._estimates.get(key)
        if estimate is None:
            if len(self._estimates) >= _KEPT:
                self._estimates.clear()
            estimate = co_run(self._gpu, residents, sm_mhz, power_cap_w=self._cap_w, constants=self._constants)
            if not residents and sm_mhz is None and self._sleep_w is not None:
                estimate = replace(estimate, power_w=self._sleep_w)
            self._estimates[key] = estimate
        return estimate
