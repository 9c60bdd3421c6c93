"""A GPU in virtual time: what runs, how far it is, what energy it took; how fast it goes is for others to say."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass

from heshare.devices.device import Glance, Progress, Reading
from heshare.devices.model import Estimate
from heshare.devices.noise import NoiseModel
from heshare.devices.sharing.apart import ways
from heshare.devices.sharing.mig import memory_mib as instance_mib
from heshare.devices.sharing.mig import slices_of
from heshare.errors import DeviceError, InputError
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_DONE = 1e-9
_BOARD = "board"


@dataclass(slots=True)
class _Running:
    resident: Resident
    iterations: float
    memory_mib: float
    done: float = 0.0
    time_s: float = math.inf
    own_s: float = math.inf
    held_s: float = 0.0

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.iterations - self.done) * self.time_s


class VirtualDevice(ABC):
    """Residents and an energy account in virtual time; a subclass says what a set of residents does.

    Args:
        gpu: which GPU.
        provenance: where its answers come from.
        noise: repeat noise on what `read` reports; None is none. Progress and energy are never noisy.
    """

    def __init__(self, gpu: Gpu, *, provenance: str, noise: NoiseModel | None = None) -> None:
        self.provenance = provenance
        self._gpu = gpu
        self._noise = self._seed_noise = noise
        self._held: dict[str, float] | None = None
        self._clock: int | None = None
        self._now_s = 0.0
        self._energy_j = 0.0
        self._running: dict[int, _Running] = {}
        self._settled: Estimate | None = None
        self._apart = False

    @abstractmethod
    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        """What a set of residents does; asked only when somebody wants to know."""

    @property
    def gpu(self) -> Gpu:
        """What it is."""
        return self._gpu

    def set_clock(self, sm_mhz: int | None) -> None:
        """Ask for an SM clock of the card's grid, MHz; None leaves the card to itself.

        Raises:
            InputError: the clock is not on the grid.
        """
        self._clock = None if sm_mhz is None else self._gpu.check_clock(sm_mhz)
        self._settled = None

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task under an MPS limit; with `iterations=None` it runs until stopped.

        Raises:
            DeviceError: the id runs already, the memory does not fit, or there are too many clients.
        """
        self.start_as(task_id, Resident(workload, mps_pct), iterations)

    def start_as(self, task_id: int, resident: Resident, iterations: float | None = None) -> None:
        """Start a task that shares the GPU in the resident's own way; otherwise as `start`.

        Raises:
            DeviceError: as `start`; or the GPU cannot share in this way, or not beside those that run.
        """
        needed_mib = memory_mib(resident.workload)
        free_mib = self._gpu.memory_mib - sum([one.memory_mib for one in self._running.values()])
        if task_id in self._running:
            raise self._refusal(f"task {task_id} runs here already", "Stop it first.")
        if len(self._running) >= self._gpu.mps_clients:
            raise self._refusal(f"{self._gpu.mps_clients} MPS clients run already", "Wait for one to end.")
        if resident.sharing != "mps" or self._apart:
            free_mib = min(free_mib, self._room_mib(resident))
        if needed_mib > free_mib:
            raise self._refusal(
                f"{resident.workload} needs {needed_mib:.0f} MiB, {free_mib:.0f} are free", "Wait, or split."
            )
        wanted = math.inf if iterations is None else float(iterations)
        self._running[task_id] = _Running(resident, wanted, needed_mib)
        self._apart = resident.sharing != "mps"
        self._settled = None

    def hold(self, task_id: int, time_s: float) -> None:
        """Let a task that runs here take at least `time_s` per iteration, until the next `hold`; 0 lets it run freely.

        Raises:
            DeviceError: no such task runs here.
        """
        one = self._found(task_id)
        one.held_s = time_s
        one.time_s = max(one.own_s, time_s)

    def stop(self, task_id: int) -> float:
        """Stop a task, finished or not; returns the iterations that it completed here.

        Raises:
            DeviceError: no such task runs here.
        """
        stopped = self._found(task_id)
        del self._running[task_id]
        self._apart = self._apart and bool(self._running)
        self._settled = None
        return stopped.done

    def restart(self, label: str) -> None:
        """Set time, energy and progress to 0; what runs goes on, and repeat noise depends on `label` alone.

        Until the next restart the noise of the board's power and of each task's time stays what it is at first: it is
        noise from one recording to the next.
        """
        self._noise = None if self._seed_noise is None else self._seed_noise.of(label)
        self._held = {}
        self._now_s = self._energy_j = 0.0
        for one in self._running.values():
            one.done = 0.0

    def read(self) -> Reading:
        """What it does at this moment."""
        state, noise = self._settle(), self._noise
        power_w, tasks = state.power_w, state.tasks
        if noise is None:
            residents = {
                task: Progress(task, one.resident, one.done, one.time_s) for task, one in self._running.items()
            }
        else:
            residents = {
                task: Progress(task, one.resident, one.done, one.time_s * self._factor(name, noise.time_cv))
                for name, (task, one) in zip(self._names(), self._running.items(), strict=True)
            }
            power_w *= self._factor(_BOARD, noise.power_cv)
        return Reading(
            self._now_s,
            self._clock,
            state.sm_mhz,
            power_w,
            self._energy_j,
            residents,
            throttled=state.sm_mhz < (self._gpu.max_mhz if self._clock is None else self._clock),
            sm_util_pct=_whole([task.sm_util_pct for task in tasks]),
            dram_util_pct=_whole([task.dram_util_pct for task in tasks]),
            l2_util_pct=_whole([task.l2_util_pct for task in tasks]),
        )

    def glance(self) -> Glance | None:
        """What `read` and `next_event_s` would say, in short; None where a reading is needed since it has noise."""
        if self._noise is not None:
            return None
        state = self._settled or self._settle()
        running = self._running
        if not running:
            return Glance(self._clock, state.sm_mhz, state.power_w, (), math.inf)
        residents = tuple([(task, one.resident.mps_pct, one.time_s) for task, one in running.items()])
        next_s = self._now_s + min([one.remaining_s for one in running.values()])
        return Glance(self._clock, state.sm_mhz, state.power_w, residents, next_s)

    def next_event_s(self) -> float:
        """When the next task completes if nothing changes, s; `inf` if none will."""
        if not self._running:
            return math.inf
        if self._settled is None:
            self._settle()
        return self._now_s + min([one.remaining_s for one in self._running.values()])

    def advance(self, to_s: float) -> list[int]:
        """Go on to time `to_s`; returns the ids of tasks that completed by then, in order of completion.

        Raises:
            DeviceError: `to_s` is in the past.
        """
        if to_s < self._now_s:
            raise self._refusal(f"time {to_s} s asked for at {self._now_s} s", "Time only goes forward.")
        completed: list[int] = []
        while self._running and (event_s := self.next_event_s()) <= to_s:
            self._pass(event_s)
            ended = [task for task, one in self._running.items() if self._ended(one)]
            for task in ended:
                del self._running[task]
            self._apart = self._apart and bool(self._running)
            completed += ended
            self._settled = None
        if to_s > self._now_s:
            self._pass(to_s)
        return completed

    def _factor(self, what: str, spread: float) -> float:
        """The noise of one reading: drawn anew, or held since the restart, whatever else is read in which order."""
        if self._noise is None:
            return 1.0
        if self._held is None:
            return self._noise.factor(spread)
        if what not in self._held:
            self._held[what] = self._noise.of(what).factor(spread)
        return self._held[what]

    def _names(self) -> list[str]:
        """A name for each task that runs, by what it is and not by its id: equal ones are told apart by a number."""
        if self._held is None:
            return [""] * len(self._running)
        seen: Counter[Resident] = Counter()
        names = []
        for one in self._running.values():
            seen[one.resident] += 1
            names.append(f"{one.resident}#{seen[one.resident]}")
        return names

    def _ended(self, one: _Running) -> bool:
        left_s = one.remaining_s
        return left_s < math.inf and (left_s <= _DONE * one.time_s or self._now_s + left_s <= self._now_s)

    def _pass(self, to_s: float) -> None:
        """Let time pass with nothing changing."""
        step_s, power_w = to_s - self._now_s, (self._settled or self._settle()).power_w
        for one in self._running.values():
            one.done = min(one.iterations, one.done + step_s / one.time_s)
        self._energy_j += power_w * step_s
        self._now_s = to_s

    def _settle(self) -> Estimate:
        """The state that the present residents and clock lead to."""
        if self._settled is None:
            self._settled = self._estimate(self._clock, tuple([one.resident for one in self._running.values()]))
            for one, task in zip(self._running.values(), self._settled.tasks, strict=True):
                one.own_s = task.time_s
                one.time_s = task.time_s if task.time_s > one.held_s else one.held_s
        return self._settled

    def _found(self, task_id: int) -> _Running:
        if task_id not in self._running:
            raise self._refusal(f"no task {task_id} runs here", "Name only what was started and has not completed.")
        return self._running[task_id]

    def _room_mib(self, resident: Resident) -> float:
        """Memory that a task finds which does not share by MPS, MiB, once it is sure that it may run beside others."""
        try:
            ways(self._gpu, [*(one.resident for one in self._running.values()), resident])
        except InputError as error:
            raise self._refusal(str(error), "Wait for the others to end.") from error
        slices = slices_of(resident.sharing)
        return math.inf if slices is None else instance_mib(self._gpu, slices)

    def _refusal(self, found: str, action: str) -> DeviceError:
        return DeviceError(f"{self._gpu.name} ({self.provenance}): {found}. {action}")


def _whole(parts_pct: list[float]) -> float:
    """The GPU's utilisation from that of its tasks, %; NaN where one of them is not known."""
    total_pct = sum(parts_pct)
    return 100.0 if total_pct > 100.0 else total_pct
