"""The `Device` protocol: a GPU that runs tasks, as the recorder and the event loop use it.

One protocol, three kinds: emulated (virtual time), replay (recorded points), NVML (a real GPU, wall time). The
recorder, the simulator and the executor are the same code over a different device. A device keeps its own account of
energy; a run computes energy from its timeline as well, and the two must agree.

The further protocols are what only some devices can do.
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
    """Progress of a resident task.

    Attributes:
        task_id: the id it was started with.
        resident: its workload and MPS percentage.
        done: iterations completed since it was started here.
        time_s: seconds per iteration now.
    """

    task_id: int
    resident: Resident
    done: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """State of a device at one moment.

    Attributes:
        time_s: the device's time, s.
        requested_mhz: the requested clock, MHz, or None when the card chooses it.
        sm_mhz: the SM clock reached, MHz (a power or thermal limit can keep it below the request).
        power_w: board power, W.
        energy_j: energy since the device was opened, J.
        residents: progress by task id.
        throttled: whether a limit keeps the clock below the request.
        sm_util_pct: SM utilisation of the whole GPU, %; NaN where it is not known, as all that follow.
        dram_util_pct: memory bandwidth utilisation of the whole GPU, %.
        l2_util_pct: L2 cache utilisation of the whole GPU, %.
        temperature_c: of the GPU, degrees Celsius.
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


class BriefReading(NamedTuple):
    """The part of a reading that a timeline keeps, and the time of the next event, s.

    `residents` are (task id, MPS percentage, seconds per iteration) of each task that runs.
    """

    requested_mhz: int | None
    sm_mhz: float
    power_w: float
    residents: tuple[tuple[int, int, float], ...]
    next_s: float

    @classmethod
    def of(cls, reading: Reading, next_s: float) -> BriefReading:
        """Return that part of a reading."""
        residents = tuple([(task.task_id, task.resident.mps_pct, task.time_s) for task in reading.residents.values()])
        return cls(reading.requested_mhz, reading.sm_mhz, reading.power_w, residents, next_s)


class Device(Protocol):
    """A GPU that can be observed, clocked, and given tasks.

    Times are seconds on the clock that the device shares with its cluster (virtual or wall).
    """

    @property
    def gpu(self) -> Gpu:
        """The type of GPU that this device is."""
        ...

    @property
    def provenance(self) -> str:
        """`emulated` or `measured`; part of every row and every caption made with this device."""
        ...

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request an SM clock of the card's grid, MHz; None leaves the clock to the card.

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
        """Stop a task, finished or not, and return the iterations that it completed here.

        Raises:
            DeviceError: no such task runs here.
        """
        ...

    def read(self) -> Reading:
        """Return its state at this moment."""
        ...

    def next_event_s(self) -> float:
        """Return when to check it next: the next completion (emulated) or poll (live), s; `inf` if nothing runs."""
        ...

    def advance(self, to_s: float) -> list[int]:
        """Advance to time `to_s` and return the ids of tasks that completed by then, in order of completion.

        A completed task has left the device: it holds no memory and draws no power.
        """
        ...


@runtime_checkable
class Restartable(Protocol):
    """A device in virtual time on which measurements do not depend on those before."""

    def restart(self, label: str) -> None:
        """Set time, energy and progress to 0; tasks continue, and repeat noise depends on `label` alone."""
        ...


@runtime_checkable
class StartsTogether(Protocol):
    """A device that starts several tasks in the time of one; on a real one, each takes seconds to load."""

    def start_together(self, tasks: Mapping[int, Resident]) -> None:
        """Start tasks, by id, that run until stopped: all of them or none; errors as of `Device.start`."""
        ...


@runtime_checkable
class ReportsFacts(Protocol):
    """A device that reports facts beyond its `Gpu`, which a manifest keeps beside a recorded table."""

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """Return the driver, versions, UUID, kind of power readings, way of sharing, and so on."""
        ...


class SharesGpu(Protocol):
    """A device with more ways of sharing than MPS, and with gangs: tasks that run on several devices in lockstep."""

    def start_as(self, task_id: int, resident: Resident, iterations: float | None = None) -> None:
        """Start a task that shares the GPU in the resident's own way; otherwise as `Device.start`."""
        ...

    def hold(self, task_id: int, time_s: float) -> None:
        """Make a task take at least `time_s` per iteration until the next `hold`; 0 lets it run freely.

        A task of a gang waits for the slowest member at every step. It waits busily, so its power stays the same.
        """
        ...


class ReadsBriefly(Protocol):
    """A device in virtual time with a quick form of `read` for the timeline."""

    def read_brief(self) -> BriefReading | None:
        """Return the part of `read` that a timeline keeps, and `next_event_s`; None where readings have noise."""
        ...


class AloneState(NamedTuple):
    """State of a GPU that a task has to itself; `iteration_s` is seconds per iteration."""

    requested_mhz: int | None
    sm_mhz: float
    power_w: float
    iteration_s: float


Alone = tuple[int, tuple[int, ...], float, float, int, int, float, str, float, int | None, float, float, float]
"""A task that had its GPUs to itself: the fields of its `Interval`, with all its GPUs, of which the first ends it when
it is due; that time, s; and the fields of its `AloneState`. The garbage collector leaves such tuples out."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A failed attempt at a task.

    Attributes:
        task_id: the task.
        kind: `crash` (a bad exit), `timeout`, `memory` (too little), `output` (too much), `start` (no start); or, not
            caused by the task, `shared` (all tasks that share its GPU failed), `mps` (its MPS daemon ended), `lost`
            (the GPU is lost) or `drained` (it takes none).
        reason: one line for the operator.
        charged: whether it counts against the task's own retries.
        alone: whether the next attempt should have a GPU to itself, since the task may have made its co-runners fail,
            or found no memory beside them.
    """

    task_id: int
    kind: str
    reason: str
    charged: bool = True
    alone: bool = False


class Fallible(Protocol):
    """A device on which a task can fail while the other tasks, and the run, continue.

    It may have `drained`: why nothing new may start on it, for now or for good; empty as long as it may.
    """

    @property
    def lost(self) -> str:
        """The reason for which the GPU can no longer be used; empty as long as it can."""
        ...

    def take_failures(self) -> list[TaskFailure]:
        """Return the attempts that failed since the last call; these tasks have left the device."""
        ...
