"""What a device can enforce: without MPS, tasks take turns on the whole GPU, and no smaller share can be measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from heshare.devices.device import Device
from heshare.profiles.design import Point
from heshare.profiles.visit import Setup
from heshare.world.workload import Resident


def takes_turns(device: Device) -> bool:
    """Whether tasks share the device by time-slicing; a device that does not say has MPS."""
    return getattr(device, "sharing", "mps") == "time-slice"


def steps(device: Device, planned: Iterable[tuple[Setup, int]]) -> Iterator[tuple[Setup, int]]:
    """The planned visits, each task at 100 % where nothing would enforce its share; visits are numbered anew then."""
    if not takes_turns(device):
        yield from planned
        return
    visits: Counter[Setup] = Counter()
    for setup, _ in planned:
        whole = Setup(tuple(map(_whole, setup.residents)), setup.sm_mhz)
        visits[whole] += 1
        yield whole, visits[whole]


def points(device: Device, planned: Iterable[Point]) -> list[Point]:
    """The planned points, each task at 100 % where nothing would enforce its share; each point once."""
    if not takes_turns(device):
        return list(planned)
    whole = (Point(_whole(one.target), tuple(map(_whole, one.co_runners)), one.sm_mhz) for one in planned)
    return list(dict.fromkeys(whole))


def _whole(resident: Resident) -> Resident:
    return Resident(resident.workload, 100)
