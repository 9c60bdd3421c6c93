"""The GPUs of a live run, taken and given back: locks, note and watchdog first, MPS and clocks after them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import uuid4

from heshare.devices import watchdog
from heshare.devices.command import Assigned, JobLauncher
from heshare.devices.executing import JobDevice
from heshare.devices.faults import GpuLostError, NoSuchGpuError
from heshare.devices.interrupts import Interrupts
from heshare.devices.launcher import Launcher, Worker
from heshare.devices.live import NvmlDevice
from heshare.devices.locks import GpuLock
from heshare.devices.meter import Patience
from heshare.devices.mps import MPS, TIME_SLICE, MpsSession
from heshare.devices.nvml import Nvml
from heshare.devices.processes import MARK, alive, end_marked
from heshare.devices.remote.host import absent
from heshare.devices.remote.messages import Card
from heshare.devices.worked import WorkedDevice
from heshare.devices.workers import ProcessLauncher
from heshare.errors import DeviceError, InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Workload

Models = Callable[[MpsSession, Path], Launcher]


def chosen(text: str) -> list[str]:
    """The UUIDs of the GPUs that `nvml`, `nvml:0` or `nvml:0,nvml:GPU-...` names, in order.

    Raises:
        InputError: another form, or a GPU twice.
        DeviceError: no such GPU, or no NVML.
    """
    names = [part.strip() for part in text.split(",")]
    with Nvml() as nvml:
        if names == ["nvml"]:
            uuids = [nvml.card(index).uuid() for index in range(nvml.count())]
        else:
            which = [name.removeprefix("nvml:") for name in names if name.startswith("nvml:") and name != "nvml:"]
            if len(which) != len(names):
                raise _unclear(repr(text))
            uuids = [nvml.card(int(one) if one.isdecimal() else one).uuid() for one in which]
    if not uuids or len(set(uuids)) < len(uuids):
        raise _unclear("no GPU" if not uuids else "a GPU twice")
    return uuids


class Machine:
    """The GPUs of one run, as job devices; a `with` gives everything back, whatever ends it.

    Signals that would end the process raise `Interrupted` while the `with` lasts, and wait while it gives back.

    Args:
        uuids: the GPUs.
        jobs: the jobs by task id.
        folder: the run's folder; outputs go to its `outputs`.
        now_s: the time that all devices share, s.
        allow_clocks: let policies lock clocks.
        patience: how long to wait for what.
        models: makes what starts workloads of Table IV under an MPS session; by default PyTorch workers.
        known: of a run that goes on, the name of each GPU that it had: those that are not there any more are lost, and
            the run goes on without them.

    Attributes:
        devices: one for each GPU, in order; there once the `with` has begun.
        token: the mark of the run's processes.
        attempts: how many attempts at each job there were, on whichever of the GPUs.
    """

    def __init__(
        self,
        uuids: Sequence[str],
        jobs: Mapping[int, Assigned],
        folder: Path,
        now_s: Callable[[], float],
        *,
        allow_clocks: bool = False,
        patience: Patience | None = None,
        models: Models | None = None,
        known: Mapping[str, str] | None = None,
    ) -> None:
        self.devices: list[WorkedDevice] = []
        self.token = uuid4().hex
        self.attempts = {task: job.attempts for task, job in jobs.items()}
        self._uuids, self._jobs, self._folder, self._now_s = uuids, jobs, folder, now_s
        self._clocks, self._patience, self._models = allow_clocks, patience or Patience(), models or _workers
        self._known = known or {}
        self._interrupts = Interrupts()
        self._ends = ExitStack()

    def __enter__(self) -> Machine:
        with ExitStack() as ends:
            self._interrupts.listen()
            ends.callback(self._interrupts.restore)
            self._open(ends)
            self._interrupts.listen()  # an open card has put its own handlers in the place of these
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._interrupts.ignore()
        self._ends.close()

    def counters_j(self) -> list[float | None]:
        """Each card's energy since its driver was loaded, J; None where it does not tell."""
        found: list[float | None] = []
        with Nvml() as nvml:
            for uuid in self._uuids:
                try:
                    found.append(nvml.card(uuid).energy_j())
                except DeviceError:
                    found.append(None)
        return found

    def _open(self, ends: ExitStack) -> None:
        locks = []
        for uuid in self._uuids:
            locks.append(GpuLock(uuid))
            ends.callback(locks[-1].close)
        sweep()
        note = watchdog.here(self._folder, self.token)
        dog = watchdog.Watchdog(note, [lock.descriptor for lock in locks])
        ends.callback(dog.dismiss)
        note.write()
        ends.callback(note.path.unlink, missing_ok=True)
        os.environ[MARK] = self.token
        ends.callback(os.environ.pop, MARK, None)
        # A signal that came while a process was being started leaves one that no device knows of.
        ends.callback(end_marked, self.token)
        for uuid in self._uuids:
            try:
                self.devices.append(self._device(uuid, ends))
            except (NoSuchGpuError, GpuLostError) as error:
                if uuid not in self._known:
                    raise
                card = Card(gpu(self._known[uuid]), uuid, TIME_SLICE, None)
                gone = absent(card, "", str(error), self._now_s)
                ends.callback(gone.close)
                self.devices.append(gone)
        if all(device.lost for device in self.devices):
            raise DeviceError(f"None of the run's GPUs can be used. {self.devices[0].lost}")

    def _device(self, uuid: str, ends: ExitStack) -> JobDevice:
        mps = MpsSession(uuid)
        gauge = ends.enter_context(NvmlDevice(uuid, _Nothing(), mps=mps, allow_clocks=self._clocks))
        refusal = clock_refusal(gauge) if self._clocks else "not allowed"
        outputs = self._folder / "outputs"
        launcher = JobLauncher(
            self._jobs,
            lambda mps_pct: mps.environment(mps_pct if mps.sharing == MPS else 100),
            outputs,
            self._models(mps, outputs),
            attempts=self.attempts,
            enforced=lambda: mps.sharing == MPS,
            token=self.token,
            grace_s=self._patience.grace_s,
        )
        ends.callback(launcher.close)
        device = JobDevice(
            gauge, launcher, self._jobs, self._now_s, mps=mps, clocks=refusal == "", patience=self._patience
        )
        if self._clocks and refusal:
            device.meter.note(f"clocks cannot be set, so the plan is for the card's own: {refusal}")
        if mps.sharing != MPS:
            device.meter.note(f"no MPS: {mps.reason}. Jobs take turns; shares are not enforced")
        ends.callback(device.stop_all)
        return device


def sweep() -> list[watchdog.Ordered]:
    """Put in order what runs that were killed left, if their watchdog could not; what it did."""
    done = []
    for path in watchdog.notes():
        with suppress(DeviceError):
            note = watchdog.RunNote.read(path)
            if not alive(note.pid, note.started):
                done.append(watchdog.put_in_order(note))
    return done


def clock_refusal(gauge: NvmlDevice) -> str:
    """Why clocks cannot be set here; empty if they can. Only the driver knows, and only when it is asked to."""
    try:
        gauge.set_clock(gauge.gpu.max_mhz)
        gauge.set_clock(None)
    except DeviceError as error:
        return str(error)
    return ""


def _workers(mps: MpsSession, outputs: Path) -> Launcher:
    return ProcessLauncher(mps, log_dir=outputs)


def _unclear(found: str) -> InputError:
    return InputError(
        column="--devices",
        found=found,
        expected="nvml for every GPU, or nvml:INDEX or nvml:UUID, each once, with commas between them",
        action="`heshare doctor` lists the GPUs of this machine.",
    )


class _Nothing:
    """A launcher for a card that only tells and is set: jobs are started by others."""

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> Worker:
        """Refuse."""
        raise DeviceError(f"Task {task_id} was to be started on the card itself. Start it on the job device.")
