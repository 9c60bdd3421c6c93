"""GPUs in virtual time that answer recorded settings as recorded, others by the device model fitted to the record."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from heshare.devices.constants import Constants
from heshare.devices.device_model import Estimate, Rates, co_run
from heshare.devices.virtual_device import VirtualDevice
from heshare.profiles.replay_device import ReplayDevice
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident


class Record(ReplayDevice):
    """The recorded settings of one GPU."""

    def answer(self, residents: tuple[Resident, ...], sm_mhz: int) -> Estimate:
        """Return times and power as recorded, or an `UnansweredError`."""
        return self._estimate(sm_mhz, residents)


@dataclass(frozen=True)
class RecordedCard:
    """One type of GPU of a source.

    Attributes:
        gpu: the GPU; of a recorded one only with the clocks that were recorded.
        constants: of the device model, fitted to the record.
        record: the recorded settings; None for a GPU that is emulated only.
    """

    gpu: Gpu
    constants: Constants
    record: Record | None = None
    _known: dict[tuple[int | None, tuple[Resident, ...]], Estimate] = field(default_factory=dict)

    def is_recorded(self, residents: Sequence[Resident], sm_mhz: int | None = None) -> bool:
        """Return whether these residents were recorded together, at this clock (MHz; None: the top clock)."""
        return self.record is not None and (not residents or self.record.is_recorded(residents, self._clock(sm_mhz)))

    def estimate(self, residents: Sequence[Resident], sm_mhz: int | None = None) -> Estimate:
        """Return times and power of residents: as recorded, or else of the device model."""
        key = (sm_mhz, tuple(residents))
        if key not in self._known:
            self._known[key] = self._estimate(key[1], self._clock(sm_mhz))
        return self._known[key]

    def _clock(self, sm_mhz: int | None) -> int:
        return self.gpu.max_mhz if sm_mhz is None else self.gpu.check_clock(sm_mhz)

    def _estimate(self, residents: tuple[Resident, ...], sm_mhz: int) -> Estimate:
        if self.record is not None and self.is_recorded(residents, sm_mhz):
            return self.record.answer(residents, sm_mhz)
        # The model's clocks are those of the card: a power limit may leave a clock that was not recorded.
        return co_run(catalogue.gpu(self.gpu.name), residents, sm_mhz, constants=self.constants)

    def rates(self, residents: Sequence[Resident], sm_mhz: int | None) -> Rates:
        """Return clock, power and times of residents."""
        found = self.estimate(residents, sm_mhz)
        return Rates(found.sm_mhz, found.power_w, [task.time_s for task in found.tasks])


class RecordedDevice(VirtualDevice):
    """A GPU of a source in virtual time."""

    def __init__(self, card: RecordedCard, *, provenance: str) -> None:
        super().__init__(card.gpu, provenance=provenance)
        self._card = card

    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        return self._card.estimate(residents, sm_mhz)
