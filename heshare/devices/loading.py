"""Loading in virtual time: on a real GPU a task is a process, which starts, loads, waits for its batch, and ends."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from heshare.devices.device import Device, Progress, Reading
from heshare.errors import DeviceError, InputError
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


@dataclass(frozen=True, slots=True)
class Loading:
    """What it takes to start and to end the processes of tasks, s.

    Attributes:
        one_s: from the start of a task until it may begin.
        more_s: how much longer that is for every other task that loads on the same GPU.
        exit_s: from the last iteration of a task until its process has ended, and its end is known.
        end_s: from then until what is started next begins to load.
        warm_s: the last part of loading, in which a task runs its workload without counting.

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
            if not 0.0 <= value < math.inf:
                raise InputError(column=name, found=f"{value} s", expected="0 s or more", action="Measure it again.")

    def together_s(self, tasks: int) -> float:
        """How long so many tasks load that are started together, s."""
        return self.one_s + self.more_s * (tasks - 1)


class LoadingDevice:
    """A device in virtual time whose tasks load first, and begin together, as on the executor's devices.

    The tasks that load on a GPU begin when the last of them is ready. Until they warm up they do nothing and draw no
    power; while they warm up they slow others down and draw power as always, and count no iterations. A task completes
    a moment after its last iteration, in which it holds its memory and does nothing.

    Args:
        device: where tasks run once they have loaded; nothing runs on it.
        loading: how long that takes.
    """

    def __init__(self, device: Device, loading: Loading) -> None:
        self._device, self._cost = device, loading
        self._now_s = device.read().time_s
        self._loading: dict[int, tuple[Resident, float | None]] = {}
        self._warm: set[int] = set()
        self._on: dict[int, Progress] = {}
        self._exiting: dict[int, tuple[float, Progress]] = {}
        self._ready_s = self._free_s = -math.inf

    @property
    def gpu(self) -> Gpu:
        """What it is."""
        return self._device.gpu

    @property
    def provenance(self) -> str:
        """That of the device below."""
        return self._device.provenance

    def set_clock(self, sm_mhz: int | None) -> None:
        """Ask for a clock."""
        self._device.set_clock(sm_mhz)

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Have a task load; it begins together with those that load already.

        Raises:
            DeviceError: the id runs or loads already, the memory does not fit, or there are too many clients.
        """
        there = self.read().residents
        if task_id in there:
            raise DeviceError(f"{self.gpu.name}: task {task_id} is on it already. Stop it first.")
        # What loads or ends holds its memory too, of which the device below knows nothing.
        needed_mib = memory_mib(workload) + sum(memory_mib(one.resident.workload) for one in there.values())
        if needed_mib > self.gpu.memory_mib or len(there) >= self.gpu.mps_clients:
            raise DeviceError(
                f"{self.gpu.name}: no room for {workload} beside {len(there)} tasks. Wait for one to end."
            )
        self._loading[task_id] = (Resident(workload, mps_pct), iterations)
        loads_s = self._cost.together_s(len(self._loading))
        self._ready_s = max(self._ready_s, max(self._now_s, self._free_s) + loads_s)
        self._move_on(self._now_s)

    def stop(self, task_id: int) -> float:
        """Stop a task; one that loads has completed no iteration.

        Raises:
            DeviceError: no such task is here.
        """
        if task_id in self._loading:
            del self._loading[task_id]
            self._cool(task_id)
            return 0.0
        if task_id in self._exiting:
            return self._exiting.pop(task_id)[1].done
        self._on.pop(task_id, None)
        return self._device.stop(task_id)

    def read(self) -> Reading:
        """What it does at this moment; what loads has no pace (`inf`)."""
        reading = self._device.read()
        waiting = {task: Progress(task, one, 0.0, math.inf) for task, (one, _) in self._loading.items()}
        exiting = {task: one for task, (_, one) in self._exiting.items()}
        return replace(reading, residents={**reading.residents, **waiting, **exiting})

    def next_event_s(self) -> float:
        """When the next task completes, or those that load warm up or begin, s."""
        return min(self._device.next_event_s(), self._next_s())

    def advance(self, to_s: float) -> list[int]:
        """Go on to time `to_s`; returns the tasks that completed by then, in order of completion.

        Raises:
            DeviceError: `to_s` is in the past.
        """
        completed: list[int] = []
        while (at_s := self.next_event_s()) <= to_s:
            completed += self._pass(at_s)
            self._move_on(at_s)
        return completed + self._pass(to_s)

    def _pass(self, to_s: float) -> list[int]:
        """Let time pass up to what happens next; who has completed by then."""
        for task in self._device.advance(to_s):
            self._exiting[task] = (to_s + self._cost.exit_s, self._on.pop(task))
        self._now_s = to_s
        ended = [task for task, (at_s, _) in self._exiting.items() if at_s <= to_s]
        for task in ended:
            del self._exiting[task]
            self._free_s = to_s + self._cost.end_s
        return ended

    def _next_s(self) -> float:
        """When those that load or end go on to what comes next, s; `inf` if nothing does."""
        exits_s = min((at_s for at_s, _ in self._exiting.values()), default=math.inf)
        if not self._loading:
            return exits_s
        cold = self._loading.keys() - self._warm
        warms_s = max(self._now_s, self._ready_s - self._cost.warm_s) if cold and self._cost.warm_s else self._ready_s
        return min(exits_s, warms_s)

    def _move_on(self, now_s: float) -> None:
        """Let those that have loaded warm up, and those that have warmed up begin."""
        if not self._loading:
            return
        if now_s >= self._ready_s:
            for task, (one, iterations) in self._loading.items():
                self._cool(task)
                self._device.start(task, one.workload, one.mps_pct, iterations)
                self._on[task] = Progress(task, one, math.inf if iterations is None else iterations, math.inf)
            self._loading.clear()
            self._ready_s = -math.inf
        elif self._cost.warm_s and now_s >= self._ready_s - self._cost.warm_s:
            for task in sorted(self._loading.keys() - self._warm):
                one = self._loading[task][0]
                self._device.start(task, one.workload, one.mps_pct)
                self._warm.add(task)

    def _cool(self, task_id: int) -> None:
        """End the warm-up of a task."""
        if task_id in self._warm:
            self._warm.remove(task_id)
            self._device.stop(task_id)
