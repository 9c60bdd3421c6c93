"""Loading in virtual time: on a real GPU a task is a process, which starts, loads, waits for its batch, and ends."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from heshare.devices.device import Device, Progress, Reading
from heshare.errors import DeviceError, InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


@dataclass(frozen=True, slots=True)
class Loading:
    """What it takes to start and to end the processes of tasks, s.

    Attributes:
        one_s: from the start of a task until it may begin.
        more_s: how much longer that is for every other task that loads on the same GPU.
        end_s: from the completion of a task until what was started after it begins to load.

    Raises:
        InputError: one of them is negative or no number.
    """

    one_s: float = 0.0
    more_s: float = 0.0
    end_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0.0 <= value < math.inf:
                raise InputError(column=name, found=f"{value} s", expected="0 s or more", action="Measure it again.")

    def together_s(self, tasks: int) -> float:
        """How long so many tasks load that are started together, s."""
        return self.one_s + self.more_s * (tasks - 1)


class LoadingDevice:
    """A device in virtual time whose tasks load first, and begin together, as on the executor's devices.

    What loads does nothing and draws no power. The tasks that load on a GPU begin when the last of them is ready.

    Args:
        device: where tasks run once they have loaded; nothing runs on it.
        loading: how long that takes.
    """

    def __init__(self, device: Device, loading: Loading) -> None:
        self._device, self._cost = device, loading
        self._now_s = device.read().time_s
        self._loading: dict[int, tuple[Resident, float | None]] = {}
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
            DeviceError: the id runs or loads already.
        """
        if task_id in self._loading or task_id in self._device.read().residents:
            raise DeviceError(f"{self.gpu.name}: task {task_id} is on it already. Stop it first.")
        self._loading[task_id] = (Resident(workload, mps_pct), iterations)
        loads_s = self._cost.together_s(len(self._loading))
        self._ready_s = max(self._ready_s, max(self._now_s, self._free_s) + loads_s)
        self._begin(self._now_s)

    def stop(self, task_id: int) -> float:
        """Stop a task; one that loads has completed no iteration.

        Raises:
            DeviceError: no such task is here.
        """
        if task_id in self._loading:
            del self._loading[task_id]
            return 0.0
        return self._device.stop(task_id)

    def read(self) -> Reading:
        """What it does at this moment; what loads has no pace (`inf`)."""
        reading = self._device.read()
        waiting = {task: Progress(task, one, 0.0, math.inf) for task, (one, _) in self._loading.items()}
        return replace(reading, residents={**reading.residents, **waiting})

    def next_event_s(self) -> float:
        """When the next task completes, or those that load begin, s."""
        return min(self._device.next_event_s(), self._ready_s if self._loading else math.inf)

    def advance(self, to_s: float) -> list[int]:
        """Go on to time `to_s`; returns the tasks that completed by then, in order of completion.

        Raises:
            DeviceError: `to_s` is in the past.
        """
        completed: list[int] = []
        if self._loading and self._now_s < self._ready_s <= to_s:
            completed += self._pass(self._ready_s)
            self._begin(self._ready_s)
        return completed + self._pass(to_s)

    def _pass(self, to_s: float) -> list[int]:
        completed = self._device.advance(to_s)
        self._now_s = to_s
        if completed:
            self._free_s = to_s + self._cost.end_s
        return completed

    def _begin(self, now_s: float) -> None:
        """Let those that have loaded begin."""
        if now_s >= self._ready_s:
            for task, (one, iterations) in self._loading.items():
                self._device.start(task, one.workload, one.mps_pct, iterations)
            self._loading.clear()
            self._ready_s = -math.inf
