"""The `Device` protocol: everything that the recorder and the event loop ask of a GPU.

One protocol, three kinds: emulated (virtual time), replay (recorded points), NVML (a real GPU, wall time). The
recorder, the simulator and the executor are the same code over a different device. A device keeps its own account of
energy; whoever runs tasks on it computes energy from the timeline as well, and the two must agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a resident task is.

    Attributes:
        task_id: the id it was started with.
        resident: its workload and MPS percentage.
        done: iterations completed since it was started here.
        time_s: seconds per iteration at present.
    """

    task_id: int
    resident: Resident
    done: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What a device says of itself at one moment.

    Attributes:
        time_s: the device's time, s.
        requested_mhz: the clock that was asked for, MHz, or None when the card is left to itself.
        sm_mhz: the SM clock really reached, MHz (a power or thermal limit can hold it below the request).
        power_w: board power, W.
        energy_j: energy since the device was opened, J.
        residents: progress by task id.
        throttled: whether a limit holds the clock below the request.
        sm_util_pct: SM utilisation of the whole GPU, %, NaN where the device cannot tell.
        dram_util_pct: memory bandwidth utilisation of the whole GPU, %, NaN where the device cannot tell.
        l2_util_pct: L2 cache utilisation of the whole GPU, %, NaN where the device cannot tell.
        temperature_c: of the GPU, degrees Celsius, NaN where there is none.
    """

    time_s: float
    requested_mhz: int | None
    sm_mhz: float
    power_w: float
    energy_j: float
    residents: dict[int, Progress] = field(default_factory=dict)
    throttled: bool = False
    sm_util_pct: float = math.nan
    dram_util_pct: float = math.nan
    l2_util_pct: float = math.nan
    temperature_c: float = math.nan


class Glance(NamedTuple):
    """What a timeline keeps of a device, and when to look at it again.

    Attributes:
        requested_mhz: as in `Reading`.
        sm_mhz: as in `Reading`.
        power_w: as in `Reading`.
        residents: (task id, MPS percentage, seconds per iteration) of each task that runs.
        next_s: the device's next event, s.
    """

    requested_mhz: int | None
    sm_mhz: float
    power_w: float
    residents: tuple[tuple[int, int, float], ...]
    next_s: float

    @classmethod
    def of(cls, reading: Reading, next_s: float) -> Glance:
        """That part of a reading."""
        residents = tuple([(one.task_id, one.resident.mps_pct, one.time_s) for one in reading.residents.values()])
        return cls(reading.requested_mhz, reading.sm_mhz, reading.power_w, residents, next_s)


class Device(Protocol):
    """A GPU that can be observed, clocked, and given tasks.

    Times are seconds on the clock that the device shares with its cluster (virtual or wall).
    """

    @property
    def gpu(self) -> Gpu:
        """What it is."""
        ...

    @property
    def provenance(self) -> str:
        """`emulated` or `measured`: goes into every row and every caption made with this device."""
        ...

    def set_clock(self, sm_mhz: int | None) -> None:
        """Ask for an SM clock of the card's grid, MHz; None leaves the card to itself.

        Raises:
            InputError: the clock is not on the grid.
            DeviceError: the device cannot set clocks.
        """
        ...

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task under an MPS limit; with `iterations=None` it runs until stopped.

        Raises:
            DeviceError: the id runs already, the memory does not fit, or there are too many clients.
        """
        ...

    def stop(self, task_id: int) -> float:
        """Stop a task, finished or not; returns the iterations that it completed here.

        Raises:
            DeviceError: no such task runs here.
        """
        ...

    def read(self) -> Reading:
        """What it does at this moment."""
        ...

    def next_event_s(self) -> float:
        """When to look again: the next completion (emulated) or the next poll (live); `inf` if nothing runs."""
        ...

    def advance(self, to_s: float) -> list[int]:
        """Go on to time `to_s`; returns the ids of tasks that completed by then, in order of completion.

        A completed task has left the device: it holds no memory and draws no power.
        """
        ...


@runtime_checkable
class Restartable(Protocol):
    """A device in virtual time that can begin a measurement as if nothing had been measured before."""

    def restart(self, label: str) -> None:
        """Set time, energy and progress to 0; what runs goes on, and repeat noise depends on `label` alone."""
        ...


@runtime_checkable
class StartsTogether(Protocol):
    """A device that starts several tasks in the time of one: on a real one, each takes seconds to load."""

    def start_together(self, tasks: Mapping[int, Resident]) -> None:
        """Start tasks, by id, that run until stopped: all of them or none.

        Raises:
            DeviceError: as `Device.start`.
        """
        ...


@runtime_checkable
class Described(Protocol):
    """A device with more to say of itself than its `Gpu`: what a manifest keeps beside a recorded table."""

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """Driver, versions, UUID, what its power readings are, how tasks share it, and so on."""
        ...


@runtime_checkable
class Shares(Protocol):
    """A device that knows more ways of sharing than MPS, and gangs: tasks that run on several devices in step."""

    def start_as(self, task_id: int, resident: Resident, iterations: float | None = None) -> None:
        """Start a task that shares the GPU in the resident's own way; otherwise as `Device.start`.

        Raises:
            DeviceError: as `Device.start`; or the GPU cannot share in this way, or not beside those that run.
        """
        ...

    def hold(self, task_id: int, time_s: float) -> None:
        """Let a task that runs here take at least `time_s` per iteration: it waits for its gang at every step.

        It holds until the next `hold`; 0 lets it run freely. Power is that of the task unheld, since the gang waits
        busily for the slowest.

        Raises:
            DeviceError: no such task runs here.
        """
        ...


@runtime_checkable
class Follows(Protocol):
    """A device in virtual time that need not be told what it does while another one does exactly the same."""

    def glance(self) -> Glance | None:
        """What `read` and `next_event_s` would say, in short; None where a reading is needed since it has noise."""
        ...

    def same_as(self, other: object, /) -> bool:
        """Whether both are idle, and would do exactly the same with the same task."""
        ...

    def follow(self, from_s: float, to_s: float, power_w: float) -> None:
        """Account for being idle until `from_s`, then for `power_w` until `to_s`, s, when it is idle again."""
        ...
