"""Device model wrapper with the start and end times of processes: tasks load, wait for their batch, run, and end."""

import math
from dataclasses import asdict, dataclass, replace

from heshare.devices.device import Device, Progress, Reading
from heshare.shared.errors import DeviceError, require
from heshare.world.catalogue import memory_mib
from heshare.world.workload import Resident, Workload


@dataclass(frozen=True, slots=True)
class LoadingTimes:
    """Times of starting and ending the processes of tasks, s.

    Attributes:
        one_s: from the start of a task until it can begin.
        more_s: additional time for every other task that loads on the same GPU.
        exit_s: from the last iteration of a task until the executor has detected the end of its process.
        end_s: from then until the next task begins to load.
        warm_s: the last part of loading, in which a task runs its workload without counting iterations.

    Raises:
        InputError: one of them is negative or no number.
    """

    one_s: float = 0.0
    more_s: float = 0.0
    exit_s: float = 0.0
    end_s: float = 0.0
    warm_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            require(name, f"{value} s", 0.0 <= value < math.inf, "0 s or more", "Measure it again.")

    def together_s(self, tasks: int) -> float:
        """Return the loading time of this number of tasks that are started together, s."""
        return self.one_s + self.more_s * (tasks - 1)


class LoadingDevice(Device):
    """A device in virtual time on which tasks first load, and then begin together, as on the executor's devices.

    The tasks that load on a GPU begin when the last of them is ready. Before their warm-up they draw no power; during
    it they use the GPU as usual without counting iterations. A task completes a short time after its last iteration,
    during which it only uses memory. The wrapped `device`, on which loaded tasks run, must be idle at first.
    """

    def __init__(self, device: Device, loading: LoadingTimes) -> None:
        self.gpu = device.gpu
        self.provenance = device.provenance
        self._device, self._times = device, loading
        self._now_s = device.read().time_s
        self._loading: dict[int, tuple[Resident, float | None]] = {}
        self._warming: set[int] = set()
        self._running: dict[int, Progress] = {}
        self._exiting: dict[int, tuple[float, Progress]] = {}
        self._ready_s = self._free_s = -math.inf

    def set_clock(self, sm_mhz: int | None) -> None:
        self._device.set_clock(sm_mhz)

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Let a task load; it begins together with other tasks that are loading."""
        residents = self.read().residents
        if task_id in residents:
            raise DeviceError(f"{self.gpu.name}: task {task_id} is already on it. Stop it first.")
        # Tasks that load or end use memory too, which the wrapped device does not count.
        needed_mib = memory_mib(workload) + sum(memory_mib(task.resident.workload) for task in residents.values())
        if needed_mib > self.gpu.memory_mib or len(residents) >= self.gpu.mps_clients:
            raise DeviceError(
                f"{self.gpu.name}: no memory for {workload} with {len(residents)} other tasks. Wait for one to end."
            )
        self._loading[task_id] = (Resident(workload, mps_pct), iterations)
        loads_s = self._times.together_s(len(self._loading))
        self._ready_s = max(self._ready_s, max(self._now_s, self._free_s) + loads_s)
        self._change_phases(self._now_s)

    def stop(self, task_id: int) -> float:
        """Stop a task and return its completed iterations; one that loads has none."""
        if task_id in self._loading:
            del self._loading[task_id]
            self._end_warm_up(task_id)
            return 0.0
        if task_id in self._exiting:
            return self._exiting.pop(task_id)[1].done
        self._running.pop(task_id, None)
        return self._device.stop(task_id)

    def read(self) -> Reading:
        """Return the wrapped device's reading; tasks that load take `inf` seconds per iteration."""
        reading = self._device.read()
        loading = {task: Progress(task, resident, 0.0, math.inf) for task, (resident, _) in self._loading.items()}
        exiting = {task: progress for task, (_, progress) in self._exiting.items()}
        return replace(reading, residents={**reading.residents, **loading, **exiting})

    def next_event_s(self) -> float:
        return min(self._device.next_event_s(), self._next_change_s())

    def advance(self, to_s: float) -> list[int]:
        completed: list[int] = []
        while (at_s := self.next_event_s()) <= to_s:
            completed += self._advance_to(at_s)
            self._change_phases(at_s)
        return completed + self._advance_to(to_s)

    def _advance_to(self, to_s: float) -> list[int]:
        for task in self._device.advance(to_s):
            self._exiting[task] = (to_s + self._times.exit_s, self._running.pop(task))
        self._now_s = to_s
        ended = [task for task, (end_s, _) in self._exiting.items() if end_s <= to_s]
        for task in ended:
            del self._exiting[task]
            self._free_s = to_s + self._times.end_s
        return ended

    def _next_change_s(self) -> float:
        """Return when the next task ends, or those that load warm up or begin, s; `inf` for never."""
        exit_s = min((end_s for end_s, _ in self._exiting.values()), default=math.inf)
        if not self._loading:
            return exit_s
        cold, warm_s = self._loading.keys() - self._warming, self._times.warm_s
        return min(exit_s, max(self._now_s, self._ready_s - warm_s) if cold and warm_s else self._ready_s)

    def _change_phases(self, now_s: float) -> None:
        if not self._loading:
            return
        if now_s >= self._ready_s:
            for task, (resident, iterations) in self._loading.items():
                self._end_warm_up(task)
                self._device.start(task, resident.workload, resident.mps_pct, iterations)
                self._running[task] = Progress(task, resident, math.inf if iterations is None else iterations, math.inf)
            self._loading.clear()
            self._ready_s = -math.inf
        elif self._times.warm_s and now_s >= self._ready_s - self._times.warm_s:
            for task in sorted(self._loading.keys() - self._warming):
                resident = self._loading[task][0]
                self._device.start(task, resident.workload, resident.mps_pct)
                self._warming.add(task)

    def _end_warm_up(self, task_id: int) -> None:
        if task_id in self._warming:
            self._warming.remove(task_id)
            self._device.stop(task_id)
