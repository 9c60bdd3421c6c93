"""Plans with MPS percentages that a device can enforce: without MPS tasks are time-sliced, each with the whole GPU."""

from collections import Counter
from collections.abc import Iterable, Iterator

from heshare.devices.device import Device
from heshare.profiles.design import Point
from heshare.profiles.recorder import Step
from heshare.profiles.visit import Setup
from heshare.world.workload import Resident


def is_time_sliced(device: Device) -> bool:
    """Return whether tasks share the device by time-slicing; a device that does not report it has MPS."""
    return getattr(device, "sharing", "mps") == "time-slice"


def enforceable_steps(device: Device, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the planned visits; on a time-sliced device each task at 100 %, with the visits numbered again."""
    if not is_time_sliced(device):
        yield from steps
        return
    visits: Counter[Setup] = Counter()
    for setup, _ in steps:
        enforced = Setup(tuple(map(_at_100_pct, setup.residents)), setup.sm_mhz)
        visits[enforced] += 1
        yield enforced, visits[enforced]


def enforceable_points(device: Device, points: Iterable[Point]) -> list[Point]:
    """Return the planned points; on a time-sliced device each task at 100 %, equal points once."""
    if not is_time_sliced(device):
        return list(points)
    shared = (
        Point(_at_100_pct(point.target), tuple(map(_at_100_pct, point.co_runners)), point.sm_mhz) for point in points
    )
    return list(dict.fromkeys(shared))


def _at_100_pct(resident: Resident) -> Resident:
    return Resident(resident.workload, 100)
