"""Emulated GPU: the device model in virtual time as a `Device`."""

from dataclasses import replace
from functools import lru_cache

from heshare.devices.constants import Constants, default
from heshare.devices.device_model import Estimate, co_run
from heshare.devices.noise import NoiseModel
from heshare.devices.virtual_device import VirtualDevice
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

_Estimates = dict[tuple[int | None, tuple[Resident, ...]], Estimate]
_CACHE_SIZE = 20_000
"""Estimates kept for each kind of device; beyond them, the cache starts anew."""


@lru_cache(maxsize=64)
def _estimates_of(gpu: Gpu, power_cap_w: float | None, sleep_w: float | None, constants: Constants) -> _Estimates:
    """Return the estimates that all devices share that behave alike; at first none."""
    return {}


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
        self._cap_w = power_cap_w
        self._sleep_w = sleep_w
        self._constants = constants or default()
        self._estimates = _estimates_of(gpu, power_cap_w, sleep_w, self._constants)

        # A GPU without constants, or a cap that it cannot keep, is refused here and not when the first task starts.
        self._estimate(None, ())

    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        cached = self._estimates.get((sm_mhz, residents))
        if cached is not None:
            return cached

        estimate = co_run(self.gpu, residents, sm_mhz, power_cap_w=self._cap_w, constants=self._constants)
        if not residents and sm_mhz is None and self._sleep_w is not None:
            estimate = replace(estimate, power_w=self._sleep_w)

        if len(self._estimates) >= _CACHE_SIZE:
            self._estimates.clear()
        self._estimates[sm_mhz, residents] = estimate
        return estimate
