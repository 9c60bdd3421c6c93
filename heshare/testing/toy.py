"""Toy device, for runs that can be checked by hand; its predictor; a scripted policy."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from heshare.devices.device import Progress, Reading
from heshare.errors import DeviceError
from heshare.policies.policy import Action, Event, Traits, View
from heshare.prediction.predictor import CoRuns, Predictor
from heshare.scheduling.objectives import Instance, make_instance
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


def toy_gpu(name: str = "Toy", *, memory_mib: float = 32_768.0, clocks_mhz: tuple[int, ...] = (500, 1000)) -> Gpu:
    """Return a GPU with two clocks, 10 W idle, 110 W at most."""
    return Gpu(name, f"{name} card", "toy", 10, 640, memory_mib, 100.0, 4.0, 1.0, 110.0, 10.0, clocks_mhz)


class ToyDevice:
    """A device in virtual time on which tasks take turns.

    With n residents an iteration takes n x base_s x top / clock. Power is idle power with nothing running, else idle
    power plus 100 W x clock / top. MPS percentages and ways of sharing are stored and have no effect.

    Args:
        gpu: the GPU.
        base_s: time of an iteration alone at the top clock, s, of all models or by model.
    """

    provenance = "emulated"

    def __init__(self, gpu: Gpu, *, base_s: float | Mapping[str, float] = 1.0) -> None:
        self.gpu = gpu
        self._base_s = base_s
        self._now_s = 0.0
        self._energy_j = 0.0
        self._requested_mhz: int | None = None
        self._residents: dict[int, Resident] = {}
        self._done: dict[int, float] = {}
        self._iterations: dict[int, float] = {}
        self._least_s: dict[int, float] = {}

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request a clock of the grid."""
        self._requested_mhz = None if sm_mhz is None else self.gpu.check_clock(sm_mhz)

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task under MPS."""
        self.start_as(task_id, Resident(workload, mps_pct), iterations)

    def start_as(self, task_id: int, resident: Resident, iterations: float | None = None) -> None:
        """Start a task."""
        workload = resident.workload
        if task_id in self._residents:
            raise DeviceError(f"{self.gpu.name}: task {task_id} runs already. Stop it first.")
        if len(self._residents) >= self.gpu.mps_clients:
            raise DeviceError(f"{self.gpu.name}: {self.gpu.mps_clients} MPS clients run already. Stop one first.")
        used_mib = sum(memory_mib(resident.workload) for resident in self._residents.values())
        if used_mib + memory_mib(workload) > self.gpu.memory_mib:
            raise DeviceError(f"{self.gpu.name}: {workload} does not fit beside {used_mib:.0f} MiB. Stop a task first.")
        self._residents[task_id] = resident
        self._done[task_id] = 0.0
        self._iterations[task_id] = math.inf if iterations is None else iterations

    def stop(self, task_id: int) -> float:
        """Stop a task and return its completed iterations."""
        if task_id not in self._residents:
            raise DeviceError(f"{self.gpu.name}: no task {task_id} runs here. Name one that does.")
        del self._residents[task_id], self._iterations[task_id]
        self._least_s.pop(task_id, None)
        return self._done.pop(task_id)

    def hold(self, task_id: int, time_s: float) -> None:
        """Make a task take at least `time_s` per iteration."""
        if task_id not in self._residents:
            raise DeviceError(f"{self.gpu.name}: no task {task_id} runs here. Name one that does.")
        self._least_s[task_id] = time_s

    def read(self) -> Reading:
        """Return its state now."""
        residents = {
            task: Progress(task, resident, self._done[task], self._time_s(task))
            for task, resident in self._residents.items()
        }
        return Reading(self._now_s, self._requested_mhz, self._mhz(), self._power_w(), self._energy_j, residents)

    def next_event_s(self) -> float:
        """Return the time of the next completion, s."""
        return self._completion_s()

    def _completion_s(self) -> float:
        return min(
            (
                self._now_s + (self._iterations[task] - self._done[task]) * self._time_s(task)
                for task in self._residents
            ),
            default=math.inf,
        )

    def advance(self, to_s: float) -> list[int]:
        """Advance to `to_s` and return the completed tasks in order."""
        completed: list[int] = []
        while (next_s := self._completion_s()) <= to_s:
            self._pass(next_s - self._now_s)
            ended = [task for task in self._residents if self._ended(task)]
            for task in ended:
                self.stop(task)
            completed += ended
        self._pass(to_s - self._now_s)
        self._now_s = to_s
        return completed

    def _pass(self, seconds: float) -> None:
        self._energy_j += self._power_w() * seconds
        self._now_s += seconds
        for task in self._residents:
            self._done[task] += seconds / self._time_s(task)

    def _ended(self, task: int) -> bool:
        """Return whether no iterations are left, or so few that time, rounded, would no longer advance."""
        left = self._iterations[task] - self._done[task]
        too_short = self._now_s + left * self._time_s(task) <= self._now_s
        return too_short or (left < math.inf and left <= 1e-12 * self._iterations[task])

    def _mhz(self) -> float:
        return float(self._requested_mhz or self.gpu.max_mhz)

    def _power_w(self) -> float:
        return self.gpu.idle_w + (100.0 * self._mhz() / self.gpu.max_mhz if self._residents else 0.0)

    def _time_s(self, task: int) -> float:
        base_s = self._base_s if isinstance(self._base_s, float) else self._base_s[self._residents[task].workload.model]
        own_s = base_s * len(self._residents) * self.gpu.max_mhz / self._mhz()
        return max(own_s, self._least_s.get(task, 0.0))


def toy_devices(cluster: Cluster) -> list[ToyDevice]:
    """Return a `ToyDevice` with one second an iteration for each GPU of a cluster."""
    return [ToyDevice(gpu) for gpu in cluster.gpus]


class ToyPredictor:
    """A predictor of what a `ToyDevice` with the same `base_s` does."""

    def __init__(self, *, base_s: float | Mapping[str, float] = 1.0) -> None:
        self._base_s = base_s
        self.calls = 0

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Predict each workload alone."""
        return self.co_run([(Resident(workload),) for workload in workloads], gpu, [sm_mhz] * len(workloads))

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict sets of residents, each at a clock."""
        self.calls += sum(map(len, sets))
        time_s = np.full((len(sets), max(map(len, sets), default=0)), np.nan)
        power_w = np.full(len(sets), gpu.idle_w)
        for row, (residents, clock) in enumerate(zip(sets, sm_mhz, strict=True)):
            device = ToyDevice(gpu, base_s=self._base_s)
            device.set_clock(clock)
            for task, resident in enumerate(residents):
                device.start(task, resident.workload, resident.mps_pct)
            reading = device.read()
            time_s[row, : len(residents)] = [reading.residents[task].time_s for task in range(len(residents))]
            power_w[row] = reading.power_w
        return CoRuns(time_s, power_w)


def toy_instance(iterations: Sequence[float], gpus: int = 1) -> tuple[Instance, ToyPredictor]:
    """Return an instance of tasks of one workload with these iterations on equal toy GPUs, and its predictor."""
    tasks = [Task(number, Workload("resnet18", 4), work) for number, work in enumerate(iterations)]
    predictor = ToyPredictor()
    return make_instance(tasks, Cluster((toy_gpu(),) * gpus), predictor), predictor


class ScriptedPolicy:
    """A policy of one function, which records every event as (time_s, kind, tasks, gpu) in `trace`.

    Args:
        decide: the answer to an event, as in `Policy`.
        tick_s: the period of ticks, s.
    """

    name = "scripted"
    traits = Traits(frequency=True, multi_task=True, heterogeneous=False)

    def __init__(self, decide: Callable[[Event, View], Iterable[Action]], *, tick_s: float | None = None) -> None:
        self._decide = decide
        self.tick_s = tick_s
        self.trace: list[tuple[float, str, tuple[int, ...], int | None]] = []

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Empty the trace."""
        self.trace = []

    def decide(self, event: Event, view: View) -> Iterable[Action]:
        """Record the event and return the actions of the function."""
        self.trace.append((event.time_s, event.kind.name, event.tasks, event.gpu))
        return self._decide(event, view)
