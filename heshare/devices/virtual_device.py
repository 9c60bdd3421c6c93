"""GPU in virtual time: its residents, their progress and its energy, at rates that a subclass defines."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from heshare.devices.device import BriefReading, Progress, Reading
from heshare.devices.device_model import Estimate, sharing_model
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

if TYPE_CHECKING:
    from heshare.devices.noise import NoiseModel

NEGLIGIBLE = 1e-9
"""Part of an iteration that counts as none when a task ends, since progress is rounded."""
_BOARD = "board"


@dataclass(slots=True)
class _RunningTask:
    resident: Resident
    iterations: float
    memory_mib: float
    done: float = 0.0
    time_s: float = math.inf
    own_s: float = math.inf
    least_s: float = 0.0


class VirtualDevice(ABC):
    """A device in virtual time. A subclass estimates times and power of a set of residents.

    `provenance` is that of its readings; `noise` is repeat noise on readings, never on progress and energy.
    """

    def __init__(self, gpu: Gpu, *, provenance: str, noise: NoiseModel | None = None) -> None:
        self.provenance = provenance
        self._gpu = gpu
        self._noise = noise
        self._noise_label = ""
        self._noise_factors: dict[str, float] | None = None
        self._noise_names: list[str] | None = None
        self._clock: int | None = None
        self._now_s = self._energy_j = 0.0
        self._running: dict[int, _RunningTask] = {}
        self._state: Estimate | None = None
        self._event_s: float | None = None
        self._other_sharing = False

    @abstractmethod
    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        """Return the estimate of a set of residents; called only when it is needed."""

    @property
    def gpu(self) -> Gpu:
        """The type of GPU that this device is."""
        return self._gpu

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request an SM clock of the card's grid, MHz; None leaves the clock to the card."""
        self._clock = None if sm_mhz is None else self._gpu.check_clock(sm_mhz)
        self._state = self._event_s = None

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task under an MPS limit; with `iterations=None` it runs until stopped."""
        self._start(task_id, *mps_resident(workload, mps_pct), iterations)

    def start_as(self, task_id: int, resident: Resident, iterations: float | None = None) -> None:
        """Start a task that shares the GPU in the resident's own way; otherwise as `start`."""
        self._start(task_id, resident, memory_mib(resident.workload), iterations)

    def _start(self, task_id: int, resident: Resident, needed_mib: float, iterations: float | None) -> None:
        free_mib = self._gpu.memory_mib - sum([task.memory_mib for task in self._running.values()])
        if task_id in self._running:
            raise self._refusal(f"task {task_id} runs here already", "Stop it first.")
        if len(self._running) >= self._gpu.mps_clients:
            raise self._refusal(f"{self._gpu.mps_clients} MPS clients run already", "Wait for one to end.")
        if resident.sharing != "mps" or self._other_sharing:
            free_mib = min(free_mib, self._room_mib(resident))
        if needed_mib > free_mib:
            found = f"{resident.workload} needs {needed_mib:.0f} MiB, {free_mib:.0f} are free"
            raise self._refusal(found, "Wait, or split.")
        total = math.inf if iterations is None else float(iterations)
        self._running[task_id] = _RunningTask(resident, total, needed_mib)
        self._other_sharing = resident.sharing != "mps"
        self._state = self._event_s = self._noise_names = None

    def hold(self, task_id: int, time_s: float) -> None:
        """Make a task take at least `time_s` per iteration, until the next `hold`; 0 lets it run freely."""
        task = self._task(task_id)
        task.least_s, self._event_s = time_s, None
        task.time_s = max(task.own_s, time_s)

    def stop(self, task_id: int) -> float:
        """Stop a task, finished or not, and return the iterations that it completed here."""
        stopped = self._task(task_id)
        del self._running[task_id]
        self._other_sharing = self._other_sharing and bool(self._running)
        self._state = self._event_s = self._noise_names = None
        return stopped.done

    def restart(self, label: str) -> None:
        """Set time, energy and progress to 0; tasks continue, and repeat noise depends on `label` alone.

        Until the next restart the noise of the board's power and of each task's time is constant: it is noise from one
        recording to the next.
        """
        self._noise_label, self._noise_factors = label, {}
        self._now_s = self._energy_j = 0.0
        self._event_s = None
        for task in self._running.values():
            task.done = 0.0

    def read(self) -> Reading:
        """Return its state at this moment."""
        state, noise = self._update(), self._noise
        power_w, tasks = state.power_w, state.tasks
        times_s = [task.time_s for task in self._running.values()]
        if noise is not None:
            names = zip(self._names(), times_s, strict=True)
            times_s = [time_s * self._noise_factor(name, noise.time_cv) for name, time_s in names]
            power_w *= self._noise_factor(_BOARD, noise.power_cv)
        residents = {
            task_id: Progress(task_id, task.resident, task.done, time_s)
            for (task_id, task), time_s in zip(self._running.items(), times_s, strict=True)
        }
        return Reading(
            self._now_s,
            self._clock,
            state.sm_mhz,
            power_w,
            self._energy_j,
            residents,
            throttled=state.sm_mhz < (self._gpu.max_mhz if self._clock is None else self._clock),
            sm_util_pct=min(sum([task.sm_util_pct for task in tasks]), 100.0),
            dram_util_pct=min(sum([task.dram_util_pct for task in tasks]), 100.0),
            l2_util_pct=min(sum([task.l2_util_pct for task in tasks]), 100.0),
        )

    def read_brief(self) -> BriefReading | None:
        """Return the part of `read` that a timeline keeps, and `next_event_s`; None where readings have noise."""
        if self._noise is not None:
            return None
        state = self._state or self._update()
        running = self._running
        residents = tuple([(task_id, task.resident.mps_pct, task.time_s) for task_id, task in running.items()])
        next_s = VirtualDevice.next_event_s(self)
        return BriefReading(self._clock, state.sm_mhz, state.power_w, residents, next_s)

    def next_event_s(self) -> float:
        """Return when the next task completes if nothing changes, s; `inf` if none will."""
        if not self._running:
            return math.inf
        if self._state is None:
            self._update()
        if self._event_s is None:
            left_s = [(task.iterations - task.done) * task.time_s for task in self._running.values()]
            self._event_s = self._now_s + max(min(left_s), 0.0)
        return self._event_s

    def advance(self, to_s: float) -> list[int]:
        """Advance to time `to_s` and return the ids of tasks that completed by then, in order of completion."""
        if to_s < self._now_s:
            raise self._refusal(f"time {to_s} s requested at {self._now_s} s", "Time only goes forward.")
        running, completed = self._running, list[int]()
        left = [task.iterations - task.done for task in running.values()] if self._state is None else [0.0]
        if to_s == self._now_s and min(left, default=1) >= 1:
            return completed  # what has just started takes some time, so that no estimate is needed yet
        while running and (event_s := VirtualDevice.next_event_s(self)) <= to_s:
            self._pass(event_s)
            for task_id in self._ended():
                del running[task_id]
                completed.append(task_id)
            self._other_sharing = self._other_sharing and bool(running)
            self._state = self._event_s = self._noise_names = None
        if to_s > self._now_s:
            self._pass(to_s)
        return completed

    def _pass(self, to_s: float) -> None:
        step_s, power_w = to_s - self._now_s, (self._state or self._update()).power_w
        for task in self._running.values():
            task.done = min(task.iterations, task.done + step_s / task.time_s)
        self._energy_j += power_w * step_s
        self._now_s, self._event_s = to_s, None

    def _ended(self) -> list[int]:
        # The tasks that have no iterations left, or so few that time, rounded, would no longer advance.
        now_s, left_s = self._now_s, math.inf
        return [
            task_id
            for task_id, task in self._running.items()
            if (left_s := (task.iterations - task.done) * task.time_s) < math.inf
            and (left_s <= NEGLIGIBLE * task.time_s or now_s + left_s <= now_s)
        ]

    def _update(self) -> Estimate:
        if self._state is None:
            self._state = self._estimate(self._clock, tuple([task.resident for task in self._running.values()]))
            for task, estimate in zip(self._running.values(), self._state.tasks, strict=True):
                task.own_s = estimate.time_s
                task.time_s = estimate.time_s if estimate.time_s > task.least_s else task.least_s
        return self._state

    def _noise_factor(self, name: str, spread: float) -> float:
        # The noise of one reading: drawn each time, or constant since the restart in any order of reads.
        if self._noise is None:
            return 1.0
        if self._noise_factors is None:
            return self._noise.factor(spread)
        if name not in self._noise_factors:
            self._noise_factors[name] = self._noise.constant_factor(self._noise_label, name, spread)
        return self._noise_factors[name]

    def _names(self) -> list[str]:
        # A name for each running task, by its resident and not by its id; equal ones are numbered.
        if self._noise_names is None:
            counts: Counter[Resident] = Counter()
            self._noise_names = []
            for task in self._running.values():
                counts[task.resident] += 1
                self._noise_names.append(f"{task.resident}#{counts[task.resident]}")
        return self._noise_names

    def _task(self, task_id: int) -> _RunningTask:
        if task_id not in self._running:
            raise self._refusal(f"no task {task_id} runs here", "Name only what was started and has not completed.")
        return self._running[task_id]

    def _room_mib(self, resident: Resident) -> float:
        try:
            model = sharing_model(self._gpu, [*(task.resident for task in self._running.values()), resident])
        except InputError as error:
            raise self._refusal(str(error), "Wait for the others to end.") from error
        return math.inf if model is None else model.memory_mib(self._gpu, resident)

    def _refusal(self, found: str, action: str) -> DeviceError:
        return DeviceError(f"{self._gpu.name} ({self.provenance}): {found}. {action}")


@lru_cache(maxsize=10_000, typed=True)
def mps_resident(workload: Workload, mps_pct: int) -> tuple[Resident, float]:
    """Return a resident under an MPS limit, and its memory, MiB."""
    return Resident(workload, mps_pct), memory_mib(workload)
