"""A real GPU as a `Device` for the recorder, in wall time: NVML is called in this process, tasks are worker processes.

The executor, which must survive an NVML call that hangs, uses `executor/executor_device.py` instead.
"""

import math
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from heshare.devices.device import Device, Progress, Reading
from heshare.ops.cleanup import CleanupProcess
from heshare.ops.clocks import ClockLock
from heshare.ops.mps import MPS, MpsSession
from heshare.ops.nvml.binding import Gpm, NoReadingError, NotSupportedError, Nvml, NvmlError, NvmlGpu
from heshare.ops.nvml.energy_account import EnergyAccount
from heshare.ops.probe import match
from heshare.ops.workers.launcher import Launcher, Worker
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_LOOK_S = (0.02, 0.25)
_POLL_S = 0.005


class NvmlDevice(Device):
    """A GPU of this machine. Close it, or use it in a `with`: this ends workers, MPS and NVML and unlocks the clock.

    However this process ends, its cleanup process ends MPS and unlocks the clock (`heshare.ops.cleanup`).

    Args:
        which: its index or its UUID; indices follow the PCI bus as in `nvidia-smi`.
        launcher: starts the workers; it is closed with the device.
        mps: the MPS session of the workers, which is started and ended here; None is time-slicing.
        allow_clocks: let `set_clock` lock clocks, which needs root or CAP_SYS_ADMIN.
        mps_clients: most tasks at the same time, if that is fewer than the GPU allows.
        start_timeout_s: longest time of a worker until its first iteration, s.

    Attributes:
        gpu: the catalogue's GPU with the memory, clocks and power limit of this card.
        uuid: of the GPU.
        power_kind: kind of the card's power readings, `instant` or `average` (over 1 s).

    Raises:
        InputError: a card that is not in the catalogue.
        DeviceError: no such GPU, or it cannot be measured: MIG, a prohibiting compute mode, a sensor that is missing.
    """

    provenance = "measured"

    def __init__(
        self,
        which: int | str,
        launcher: Launcher,
        *,
        mps: MpsSession | None = None,
        allow_clocks: bool = False,
        mps_clients: int | None = None,
        start_timeout_s: float = 180.0,
    ) -> None:
        self._allow_clocks, self._launcher = allow_clocks, launcher
        self._requested_mhz: int | None = None
        with ExitStack() as ends:
            nvml = ends.enter_context(Nvml())
            self._driver = nvml.driver()
            self._card = nvml.card(which)
            self.uuid = self._card.uuid()
            self.gpu = catalogue_gpu(self._card)
            if mps_clients is not None:
                self.gpu = replace(self.gpu, mps_clients=min(self.gpu.mps_clients, mps_clients))
            require_usable(self._card)
            self._require_sensors(ends)

            self._clock = clock = ClockLock(self._card, self.uuid)
            cleanup = CleanupProcess()
            ends.callback(lambda: cleanup.dismiss(all_released=not clock.left_locked))
            ends.callback(clock.close)
            self._mps = mps or MpsSession(self.uuid)
            if mps is not None:
                ends.callback(mps.stop)
                mps.start()
            require_shareable(self._card, self._mps.sharing)

            self._tasks = _Tasks(launcher, self.gpu, self.uuid, timeout_s=start_timeout_s)
            ends.callback(launcher.close)
            ends.callback(self._tasks.stop_all)
            self._began_s = time.monotonic()
            self._energy = EnergyAccount(self.gpu.tdp_w, _warn)
            self._energy.add(0.0, self._card.energy_j(), self._first_w)
            self._facts = self._describe_facts()
            self._ends = ends.pop_all()

    @property
    def sharing(self) -> str:
        return self._mps.sharing

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return dict(self._facts)

    def free_mib(self) -> float:
        return self._card.memory_mib()[1]

    def clock_refusal(self) -> str:
        """Return the driver's reason for refusing to set the clock; empty if it does not refuse."""
        return self._clock.refusal(self.gpu.max_mhz)

    def set_clock(self, sm_mhz: int | None) -> None:
        """Lock the SM clock at a value of the GPU's grid, MHz; None unlocks it."""
        if sm_mhz is None:
            self._clock.release()
        else:
            self.gpu.check_clock(sm_mhz)
            if not self._allow_clocks:
                raise self._refusal(f"{sm_mhz} MHz requested, but setting clocks was not allowed", "Use --clocks.")
            self._clock.lock(sm_mhz)
            self._settle(sm_mhz)
        self._requested_mhz = sm_mhz

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task and wait for its first iteration; with `iterations=None` it runs until stopped."""
        self.start_together({task_id: Resident(workload, mps_pct)}, iterations)

    def stand_by(self) -> None:
        """Start spare worker processes, which import PyTorch before the first task is started."""
        self._launcher.stand_by()

    def start_together(self, tasks: Mapping[int, Resident], iterations: float | None = None) -> None:
        """Start several tasks in parallel, and wait for the first iteration of each."""
        for one in tasks.values():
            self._mps.check(one.mps_pct)
        self._tasks.start(tasks, iterations, free_mib=self.free_mib)

    def stop(self, task_id: int) -> float:
        return self._tasks.stop(task_id)

    def stop_all(self) -> None:
        """Stop every task, including failed ones."""
        self._tasks.stop_all()

    def read(self) -> Reading:
        self._tasks.poll()
        sm_pct, dram_pct = (math.nan, math.nan) if self._gpm is None else self._gpm.read()
        power_w, now_s = self._power_w(), self._now_s()
        self._energy.add(now_s, self._card.energy_j(), power_w)
        return Reading(
            time_s=now_s,
            requested_mhz=self._requested_mhz,
            sm_mhz=self._card.sm_mhz(),
            power_w=power_w,
            energy_j=self._energy.energy_j,
            residents=self._tasks.progress(),
            throttled=bool(self._card.limits()),
            sm_util_pct=sm_pct,
            dram_util_pct=dram_pct,
            temperature_c=self._card.temperature_c(),
        )

    def next_event_s(self) -> float:
        """Return the time of the next reading, s: the expected next completion; `inf` if nothing runs."""
        left_s = self._tasks.remaining_s()
        shortest_s, longest_s = _LOOK_S
        return self._now_s() + max(shortest_s, min(longest_s, left_s)) if self._tasks else math.inf

    def advance(self, to_s: float) -> list[int]:
        """Wait until time `to_s`; return the ids of tasks that completed by then, in order of completion."""
        if not math.isfinite(to_s):
            raise self._refusal(f"time {to_s} s requested", "Wait for a finite time.")
        completed: list[int] = []
        while True:
            completed += self._tasks.take_finished()
            left_s = to_s - self._now_s()
            if left_s <= 0:
                return completed
            time.sleep(min(left_s, _LOOK_S[0]))

    def close(self) -> None:
        """End the workers and MPS, unlock the clock, end NVML. Idempotent."""
        self._ends.close()

    def __enter__(self) -> "NvmlDevice":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _power_w(self) -> float:
        return self._card.instant_power_w() if self._instant else self._card.usage_power_w()

    def _require_sensors(self, ends: ExitStack) -> None:
        try:
            self._instant, self._first_w = True, self._card.instant_power_w()
        except (NotSupportedError, NoReadingError):
            self._instant, self._first_w = False, self._card.usage_power_w()
        self.power_kind = "instant" if self._instant else self._card.usage_power_kind()
        self._gpm: Gpm | None = None
        if self._card.has_gpm():
            self._gpm = Gpm(self._card)
            ends.callback(self._gpm.close)

    def _describe_facts(self) -> dict[str, str | int | float | bool | None]:
        card = self._card
        return {
            "card": card.name(),
            "uuid": self.uuid,
            "driver": self._driver,
            "power_kind": self.power_kind,
            "power_limit_w": self.gpu.tdp_w,
            "power_w_at_opening": self._first_w,
            "temperature_c_at_opening": card.temperature_c(),
            "memory_mib": self.gpu.memory_mib,
            "sm_mhz_min": self.gpu.clocks_mhz[0],
            "sm_mhz_max": self.gpu.max_mhz,
            "sharing": self.sharing,
            "sharing_reason": self._mps.reason,
            "gpm": self._gpm is not None,
            "persistence": card.persistent(),
            "compute_mode": card.compute_mode(),
            "clocks_allowed": self._allow_clocks,
        }

    def _settle(self, sm_mhz: int) -> None:
        until = time.monotonic() + 1.0
        with suppress(NvmlError):
            while self._card.sm_mhz() > sm_mhz and time.monotonic() < until:
                time.sleep(0.01)

    def _refusal(self, found: str, action: str) -> DeviceError:
        return DeviceError(f"{self._card.label} ({self.uuid}): {found}. {action}")


class MeterWarning(UserWarning):
    """A reading of a card is implausible, and another one is used."""


def _warn(text: str) -> None:
    warnings.warn(text, MeterWarning, stacklevel=2)


def require_usable(card: NvmlGpu) -> None:
    """Raise `DeviceError` for a card on which no task may run."""
    obstacle = card.obstacle()
    if obstacle:
        raise DeviceError(f"{card.label}: {obstacle}. Change that (nvidia-smi), or use another GPU.")


def require_shareable(card: NvmlGpu, sharing: str) -> None:
    """Raise `DeviceError` for an exclusive compute mode without MPS: a second task on the card would fail."""
    mode = card.compute_mode()
    if mode != "default" and sharing != MPS:
        raise DeviceError(
            f"{card.label}: its compute mode is {mode}, and without MPS tasks cannot share it. Set it to default: "
            "nvidia-smi -c DEFAULT."
        )


def power_call(card: NvmlGpu) -> str:
    """Return the name of the method that reads a card's power: instant power if the card reports it."""
    with suppress(NvmlError):
        card.instant_power_w()
        return "instant_power_w"
    return "usage_power_w"


def catalogue_gpu(card: NvmlGpu) -> Gpu:
    """Return the catalogue's GPU for a card, with the card's memory, clocks and power limit."""
    try:
        cores: int | None = card.cores()
    except NotSupportedError:
        cores = None
    total_mib, limit_w = card.memory_mib()[0], card.power_limit_w()
    return match(card.name(), memory_mib=total_mib, clocks_mhz=card.offered_mhz(), cores=cores, tdp_w=limit_w)


@dataclass(slots=True)
class _Running:
    resident: Resident
    iterations: float
    worker: Worker
    memory_mib: float

    @property
    def remaining_s(self) -> float:
        left_s = (self.iterations - self.worker.done) * self.worker.time_s
        return 0.0 if math.isnan(left_s) else max(0.0, left_s)


class _Tasks:
    def __init__(self, launcher: Launcher, gpu: Gpu, uuid: str, *, timeout_s: float) -> None:
        self._launcher, self._gpu, self._uuid, self._timeout_s = launcher, gpu, uuid, timeout_s
        self._running: dict[int, _Running] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(
        self, requested: Mapping[int, Resident], iterations: float | None, *, free_mib: Callable[[], float]
    ) -> None:
        """Start workers in parallel, wait until each is ready, and let them begin together; all of them or none.

        Loading and warm-up take seconds, in parallel only as long as the slowest worker.
        """
        self._check_room(requested, free_mib)
        workers: dict[int, Worker] = {}
        try:
            for task, one in requested.items():
                worker = self._launcher.start(task, one.workload, one.mps_pct, iterations, gpu_uuid=self._uuid)
                workers[task] = worker
                if len(requested) == 1:
                    worker.go()  # workers of one call do not wait for each other
            self._await(workers, requested, lambda worker: worker.ready)
            for worker in workers.values():
                worker.go()
            self._await(workers, requested, lambda worker: worker.finished or worker.time_s > 0)
        except BaseException:
            for started in workers.values():
                started.stop()
            raise
        limit = math.inf if iterations is None else iterations
        for task, one in requested.items():
            self._running[task] = _Running(one, limit, workers[task], memory_mib(one.workload))

    def stop(self, task_id: int) -> float:
        if task_id not in self._running:
            raise self._refusal(f"no task {task_id} runs here", "Stop only what was started and has not completed.")
        one = self._running.pop(task_id)
        return min(one.iterations, one.worker.stop())

    def stop_all(self) -> None:
        while self._running:
            self._running.popitem()[1].worker.stop()

    def poll(self) -> None:
        for task, one in self._running.items():
            one.worker.poll()
            if one.worker.failure is not None:
                found = f"task {task} ({one.resident}) failed: {one.worker.failure}"
                raise self._refusal(found, "Stop it; what was measured with it cannot be used.")

    def take_finished(self) -> list[int]:
        """Poll the workers, end those that have finished, and return their task ids."""
        self.poll()
        finished = [task for task, one in self._running.items() if one.worker.finished]
        for task in finished:
            self.stop(task)
        return finished

    def progress(self) -> dict[int, Progress]:
        return {
            task: Progress(task, one.resident, min(one.iterations, one.worker.done), one.worker.time_s)
            for task, one in self._running.items()
        }

    def remaining_s(self) -> float:
        """Return the time to the next completion at the present speed, s; `inf` if nothing runs."""
        return min((one.remaining_s for one in self._running.values()), default=math.inf)

    def _check_room(self, requested: Mapping[int, Resident], free_mib: Callable[[], float]) -> None:
        for task in requested:
            if task in self._running:
                raise self._refusal(f"task {task} runs here already", "Stop it first.")
        if len(self._running) + len(requested) > self._gpu.mps_clients:
            found = f"{len(self._running)} tasks run already, of {self._gpu.mps_clients} that may"
            raise self._refusal(found, "Wait for one to end.")
        needed_mib = sum(memory_mib(one.workload) for one in requested.values())
        room_mib = self._gpu.memory_mib - sum(one.memory_mib for one in self._running.values())
        left_mib = min(room_mib, free_mib())
        if left_mib < needed_mib <= room_mib:
            # Idle workers use memory that the new tasks need.
            self._launcher.end_idle_workers()
            left_mib = min(room_mib, free_mib())
        if needed_mib > left_mib:
            what = ", ".join(str(one.workload) for one in requested.values())
            raise self._refusal(f"{what} needs {needed_mib:.0f} MiB, {left_mib:.0f} are free", "Wait, or split.")

    def _await(
        self, workers: Mapping[int, Worker], requested: Mapping[int, Resident], reached: Callable[[Worker], bool]
    ) -> None:
        until, waiting = time.monotonic() + self._timeout_s, dict(workers)
        while True:
            for task, worker in list(waiting.items()):
                worker.poll()
                if worker.failure is not None:
                    raise self._refusal(f"task {task} ({requested[task]}) failed: {worker.failure}", "See its log.")
                if reached(worker):
                    del waiting[task]
            if not waiting:
                return
            if time.monotonic() >= until:
                late = ", ".join(f"task {task} ({requested[task]})" for task in waiting)
                raise self._refusal(
                    f"{late} did nothing within {self._timeout_s:g} s", "See its log, or allow more time."
                )
            time.sleep(_POLL_S)

    def _refusal(self, found: str, action: str) -> DeviceError:
        return DeviceError(f"{self._gpu.name} ({self._uuid}): {found}. {action}")
