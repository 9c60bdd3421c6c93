"""GPU in virtual time: its residents, their progress and its energy, at rates that a subclass defines."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from heshare.devices.device import Device, Progress, Reading
from heshare.devices.device_model import Estimate, sharing_model
from heshare.devices.noise import NoiseModel
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

NEGLIGIBLE = 1e-9
"""Part of an iteration that counts as none when a task ends, since progress is rounded."""
_BOARD = "board"


@dataclass(slots=True)
class _RunningTask:
    """A task on the device.

    `estimated_s` are its seconds per iteration beside the others, `least_s` those to which it is held, and `time_s` the
    larger of the two; all are valid once the state is estimated.
    """

    resident: Resident
    iterations: float
    memory_mib: float
    done: float = 0.0
    time_s: float = math.inf
    estimated_s: float = math.inf
    least_s: float = 0.0


class VirtualDevice(Device):
    """A device in virtual time. A subclass estimates times and power of a set of residents.

    `provenance` is that of its readings; `noise` is repeat noise on readings, never on progress and energy.
    """

    def __init__(self, gpu: Gpu, *, provenance: str, noise: NoiseModel | None = None) -> None:
        self.gpu = gpu
        self.provenance = provenance
        self._noise = noise
        self._noise_label = ""
        self._noise_factors: dict[str, float] | None = None
        self._noise_names: list[str] | None = None

        self._clock: int | None = None
        self._now_s = 0.0
        self._energy_j = 0.0
        self._running: dict[int, _RunningTask] = {}
        self._other_sharing = False

        # Both are estimated when they are needed and hold until something changes.
        self._state: Estimate | None = None
        self._event_s: float | None = None

    @abstractmethod
    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        """Return the estimate of a set of residents; called only when it is needed."""

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request an SM clock of the card's grid, MHz; None leaves the clock to the card."""
        self._clock = None if sm_mhz is None else self.gpu.check_clock(sm_mhz)
        self._changed()

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task under an MPS limit; with `iterations=None` it runs until stopped."""
        self._start(task_id, *mps_resident(workload, mps_pct), iterations)

    def start_as(self, task_id: int, resident: Resident, iterations: float | None = None) -> None:
        """Start a task that shares the GPU in the resident's own way; otherwise as `start`."""
        self._start(task_id, resident, memory_mib(resident.workload), iterations)

    def _start(self, task_id: int, resident: Resident, needed_mib: float, iterations: float | None) -> None:
        if task_id in self._running:
            raise self._refusal(f"task {task_id} runs here already", "Stop it first.")
        if len(self._running) >= self.gpu.mps_clients:
            raise self._refusal(f"{self.gpu.mps_clients} MPS clients run already", "Wait for one to end.")

        free_mib = self.gpu.memory_mib - sum([task.memory_mib for task in self._running.values()])
        if resident.sharing != "mps" or self._other_sharing:
            free_mib = min(free_mib, self._room_mib(resident))
        if needed_mib > free_mib:
            found = f"{resident.workload} needs {needed_mib:.0f} MiB, {free_mib:.0f} are free"
            raise self._refusal(found, "Wait, or split.")

        total = math.inf if iterations is None else float(iterations)
        self._running[task_id] = _RunningTask(resident, total, needed_mib)
        self._other_sharing = resident.sharing != "mps"
        self._changed()

    def hold(self, task_id: int, time_s: float) -> None:
        """Make a task take at least `time_s` per iteration, until the next `hold`; 0 lets it run freely."""
        task = self._task(task_id)
        task.least_s = time_s
        task.time_s = max(task.estimated_s, time_s)
        self._event_s = None

    def stop(self, task_id: int) -> float:
        """Stop a task, finished or not, and return the iterations that it completed here."""
        stopped = self._task(task_id)
        self._remove((task_id,))
        return stopped.done

    def restart(self, label: str) -> None:
        """Set time, energy and progress to 0; tasks continue, and repeat noise depends on `label` alone.

        Until the next restart the noise of the board's power and of each task's time is constant: it is noise from one
        recording to the next.
        """
        self._noise_label = label
        self._noise_factors = {}
        self._now_s = 0.0
        self._energy_j = 0.0
        self._event_s = None
        for task in self._running.values():
            task.done = 0.0

    def read(self) -> Reading:
        """Return its state at this moment."""
        state = self._state or self._update()
        power_w = state.power_w
        times_s = [task.time_s for task in self._running.values()]

        noise = self._noise
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
            throttled=state.sm_mhz < (self.gpu.max_mhz if self._clock is None else self._clock),
            sm_util_pct=min(sum([task.sm_util_pct for task in state.tasks]), 100.0),
            dram_util_pct=min(sum([task.dram_util_pct for task in state.tasks]), 100.0),
            l2_util_pct=min(sum([task.l2_util_pct for task in state.tasks]), 100.0),
        )

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
        completed: list[int] = []

        # What has an iteration left takes some time, so that no estimate is needed yet.
        left = [task.iterations - task.done for task in self._running.values()]
        if to_s == self._now_s and self._state is None and min(left, default=1.0) >= 1.0:
            return completed

        # A subclass may announce other events, at which no task completes.
        while self._running and (event_s := VirtualDevice.next_event_s(self)) <= to_s:
            self._pass(event_s)
            ended = self._ended()
            self._remove(ended)
            completed += ended

        if to_s > self._now_s:
            self._pass(to_s)
        return completed

    def _pass(self, to_s: float) -> None:
        """Let time pass in which nothing changes."""
        state = self._state or self._update()
        step_s = to_s - self._now_s
        for task in self._running.values():
            task.done = min(task.iterations, task.done + step_s / task.time_s)
        self._energy_j += state.power_w * step_s
        self._now_s = to_s
        self._event_s = None

    def _ended(self) -> list[int]:
        """Return the tasks that have no iterations left, or so few that time, rounded, would no longer advance."""
        ended: list[int] = []
        for task_id, task in self._running.items():
            left_s = (task.iterations - task.done) * task.time_s
            negligible = left_s <= NEGLIGIBLE * task.time_s or self._now_s + left_s <= self._now_s
            if left_s < math.inf and negligible:
                ended.append(task_id)
        return ended

    def _remove(self, task_ids: Iterable[int]) -> None:
        for task_id in task_ids:
            del self._running[task_id]
        self._other_sharing = self._other_sharing and bool(self._running)
        self._changed()

    def _changed(self) -> None:
        self._state = None
        self._event_s = None
        self._noise_names = None

    def _update(self) -> Estimate:
        """Return the present state; estimate it, and the times of the tasks, if something changed."""
        if self._state is None:
            self._state = self._estimate(self._clock, tuple([task.resident for task in self._running.values()]))
            for task, estimate in zip(self._running.values(), self._state.tasks, strict=True):
                task.estimated_s = estimate.time_s
                task.time_s = max(task.estimated_s, task.least_s)
        return self._state

    def _noise_factor(self, name: str, spread: float) -> float:
        """Return the noise of one reading: drawn each time, or constant since the restart in any order of reads."""
        if self._noise is None:
            return 1.0
        if self._noise_factors is None:
            return self._noise.factor(spread)
        if name not in self._noise_factors:
            self._noise_factors[name] = self._noise.constant_factor(self._noise_label, name, spread)
        return self._noise_factors[name]

    def _names(self) -> list[str]:
        """Return a name for each running task, by its resident and not by its id; equal ones are numbered."""
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
            model = sharing_model(self.gpu, [*(task.resident for task in self._running.values()), resident])
        except InputError as error:
            raise self._refusal(str(error), "Wait for the others to end.") from error
        return math.inf if model is None else model.memory_mib(self.gpu, resident)

    def _refusal(self, found: str, action: str) -> DeviceError:
        return DeviceError(f"{self.gpu.name} ({self.provenance}): {found}. {action}")


@lru_cache(maxsize=10_000, typed=True)
def mps_resident(workload: Workload, mps_pct: int) -> tuple[Resident, float]:
    """Return a resident under an MPS limit, and its memory, MiB."""
    return Resident(workload, mps_pct), memory_mib(workload)
