"""The emulated GPU: the calibrated model in virtual time, behind the `Device` protocol."""

from __future__ import annotations

from dataclasses import replace

from heshare.devices.constants import Constants, default
from heshare.devices.model import Estimate, co_run
from heshare.devices.noise import NoiseModel
from heshare.devices.virtual import VirtualDevice
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

__all__ = ["EmulatedDevice", "NoiseModel"]


class EmulatedDevice(VirtualDevice):
    """A GPU of the catalogue whose behaviour is `heshare.devices.model.co_run`, in virtual time.

    Args:
        gpu: which GPU.
        power_cap_w: its power limit, W; None is the card's own.
        sleep_w: power while nothing runs, W, of a GPU that then goes to a low-power state; None if it does not.
        noise: repeat noise on what `read` reports; None is none. Progress and energy are never noisy.
        constants: other constants than the calibrated ones.
        twin: another device with the same GPU, cap, sleep and constants: what the model has said is remembered for
            both.

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
        twin: EmulatedDevice | None = None,
    ) -> None:
        super().__init__(gpu, provenance=self.provenance, noise=noise)
        self._cap_w = power_cap_w
        self._sleep_w = sleep_w
        self._constants = constants or default()
        self._known: dict[tuple[int | None, tuple[Resident, ...]], Estimate] = {} if twin is None else twin._known
        self._estimate(None, ())

    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        key = (sm_mhz, residents)
        if key not in self._known:
            found = co_run(self._gpu, residents, sm_mhz, power_cap_w=self._cap_w, constants=self._constants)
            if not residents and self._sleep_w is not None:
                found = replace(found, power_w=self._sleep_w)
            self._known[key] = found
        return self._known[key]

    def same_as(self, other: object, /) -> bool:
        """Whether both are idle, and would do exactly the same with the same task: twins at the same clock."""
        return (
            isinstance(other, EmulatedDevice)
            and self._known is other._known
            and self._clock == other._clock
            and not self._running
            and not other._running
            and self._noise is None
            and other._noise is None
        )

    def follow(self, from_s: float, to_s: float, power_w: float) -> None:
        """Account for being idle until `from_s`, then for `power_w` until `to_s`, s, when it is idle again."""
        self._energy_j += (self._settled or self._settle()).power_w * (from_s - self._now_s) + power_w * (to_s - from_s)
        self._now_s = to_s
