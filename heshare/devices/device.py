"""The base class of devices: a GPU that runs tasks, as the recorder and the event loop use it.

One class, three kinds: emulated (virtual time), replay (recorded points), NVML (a real GPU, wall time). The recorder,
the simulator and the executor are the same code over a different device. A device keeps its own account of energy; a
run computes energy from its timeline as well, and the two must agree.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from heshare.shared.errors import DeviceError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


# Readings are not frozen: one is made at every change, and a frozen one takes three times as long.
@dataclass(slots=True)
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


@dataclass(slots=True)
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


class Device(ABC):
    """A GPU that can be observed, clocked, and given tasks.

    Times are seconds on the clock that the device shares with its cluster (virtual or wall). A subclass defines the
    abstract methods; the others are what only some devices can do, with what a device does that cannot.

    Attributes:
        gpu: the type of GPU that this device is.
        provenance: `emulated` or `measured`; part of every row and every caption made with this device.
        uuid: of a real GPU.
        lost: the reason for which the GPU can no longer be used; empty as long as it can.
        drained: why nothing new may start on it, for now or for good; empty as long as it may.
    """

    gpu: Gpu
    provenance: str
    uuid: str = ""
    lost: str = ""
    drained: str = ""

    @abstractmethod
    def set_clock(self, sm_mhz: int | None) -> None:
        """Request an SM clock of the card's grid, MHz; None leaves the clock to the card.

        Raises:
            InputError: the clock is not on the grid.
            DeviceError: the device cannot set clocks.
        """

    @abstractmethod
    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task under an MPS limit; with `iterations=None` it runs until stopped.

        Raises:
            DeviceError: the id runs already, the memory does not fit, or there are too many clients.
        """

    @abstractmethod
    def stop(self, task_id: int) -> float:
        """Stop a task, finished or not, and return the iterations that it completed here.

        Raises:
            DeviceError: no such task runs here.
        """

    @abstractmethod
    def read(self) -> Reading:
        """Return its state at this moment."""

    @abstractmethod
    def next_event_s(self) -> float:
        """Return when to check it next: the next completion (emulated) or poll (live), s; `inf` if nothing runs."""

    @abstractmethod
    def advance(self, to_s: float) -> list[int]:
        """Advance to time `to_s` and return the ids of tasks that completed by then, in order of completion.

        A completed task has left the device: it holds no memory and draws no power.
        """

    # Recording.

    @property
    def sharing(self) -> str:
        """How its tasks share it: `mps`, or `time-slice` where MPS percentages are not enforced."""
        return "mps"

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """Return facts beyond its `Gpu` that a manifest keeps: driver, versions, kind of power readings, and so on."""
        return {}

    def stand_by(self) -> None:
        """Prepare for the first task, on a device where a start takes seconds."""
        return

    def restart(self, label: str) -> None:
        """Set time, energy and progress to 0; tasks continue, and repeat noise depends on `label` alone.

        A device in wall time goes on.
        """
        return

    def start_together(self, tasks: Mapping[int, Resident]) -> None:
        """Start tasks, by id, that run until stopped: all of them or none; errors as of `start`.

        By default one after the other; a real device starts several in the time of one.
        """
        started: list[int] = []
        try:
            for task_id, resident in tasks.items():
                self.start(task_id, resident.workload, resident.mps_pct)
                started.append(task_id)
        except BaseException:
            for task_id in started:
                self.stop(task_id)
            raise

    # Other ways of sharing than MPS, and gangs.

    def start_as(self, task_id: int, resident: Resident, iterations: float | None = None) -> None:
        """Start a task that shares the GPU in the resident's own way; otherwise as `start`.

        Raises:
            DeviceError: as `start`; by default for any other way of sharing than MPS.
        """
        if resident.sharing != "mps":
            raise self._impossible(f"sharing by {resident.sharing}")
        self.start(task_id, resident.workload, resident.mps_pct, iterations)

    def hold(self, task_id: int, time_s: float) -> None:
        """Make a task of a gang take at least `time_s` per iteration until the next `hold`; 0 lets it run freely.

        A gang is a task that runs on several devices in lockstep: it waits for the slowest one at every step. It waits
        busily, so its power stays the same.

        Raises:
            DeviceError: no such task runs here; by default always.
        """
        raise self._impossible("a gang")

    def _impossible(self, purpose: str) -> DeviceError:
        return DeviceError(
            f"{self.gpu.name} ({self.provenance}): {purpose} is not possible; it shares by MPS alone and runs each "
            "task on itself alone. Use a policy and tasks that need no more, or emulated GPUs."
        )

    # Failures, and the end.

    def take_failures(self) -> list[TaskFailure]:
        """Return the attempts that failed since the last call; these tasks have left the device.

        By default none: where a task cannot fail by itself, an error ends the run.
        """
        return []

    def stop_all(self) -> None:
        """Stop every task."""
        for task_id in list(self.read().residents):
            self.stop(task_id)

    def close(self) -> None:
        """Give back what the device holds of the machine. May be repeated."""
        return
