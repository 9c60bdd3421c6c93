"""The GPUs of this machine as a live comparison sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from heshare.devices.live import NvmlDevice
from heshare.devices.machine import chosen, clock_refusal
from heshare.devices.nvml import Nvml
from heshare.devices.workers import ProcessLauncher
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu


@dataclass(frozen=True)
class LiveCard:
    """One GPU.

    Attributes:
        uuid: of the GPU.
        gpu: what it is, as policies see it: with the one clock that the card takes by itself where clocks stay.
        clocks: whether its clock may and can be set.
        facts: driver, what its power readings are, persistence and so on.
    """

    uuid: str
    gpu: Gpu
    clocks: bool
    facts: Mapping[str, str | int | float | bool | None]


def present(devices: str, *, allow_clocks: bool) -> tuple[LiveCard, ...]:
    """The GPUs that `nvml`, or `nvml:0,nvml:1`, names, in that order.

    Raises:
        InputError: another form, or a card that the catalogue does not describe.
        DeviceError: no GPU, no NVML, or a card that cannot be measured; the message says what to do.
    """
    return tuple(_look(uuid, allow_clocks) for uuid in chosen(devices))


def cluster(cards: tuple[LiveCard, ...]) -> Cluster:
    """The cluster that the cards make."""
    return Cluster(tuple(card.gpu for card in cards))


def played() -> bool:
    """Whether the NVML library is the stand-in that the tests build, behind which there is no GPU."""
    with Nvml() as nvml:
        return hasattr(nvml.binding.nvmlLib, "fakenvml_reset")


def _look(uuid: str, allow_clocks: bool) -> LiveCard:
    with NvmlDevice(uuid, ProcessLauncher(), allow_clocks=allow_clocks) as card:
        clocks = allow_clocks and clock_refusal(card) == ""
        gpu = card.gpu if clocks else replace(card.gpu, clocks_mhz=(card.gpu.max_mhz,))
        return LiveCard(uuid, gpu, clocks, card.facts())
