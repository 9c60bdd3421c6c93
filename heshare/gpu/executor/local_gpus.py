"""The GPUs of a run on this machine, taken and given back: locks, watchdog and note before MPS and clocks."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from heshare.errors import DeviceError, InputError
from heshare.gpu.executor.gpu_lock import GpuLock
from heshare.gpu.executor.gpu_readings import Timeouts
from heshare.gpu.executor.gpu_set import GpuSet
from heshare.gpu.executor.local_device import LocalExecutorDevice
from heshare.gpu.executor.watchdog import Watchdog, clean_up_killed_runs, note_of_this_process
from heshare.gpu.mps import MPS, MpsSession
from heshare.gpu.nvml.binding import GpuLostError, NoSuchGpuError, Nvml
from heshare.gpu.nvml.nvml_device import NvmlDevice
from heshare.gpu.remote.remote_client import lost_device
from heshare.gpu.workers.job_process import AssignedJob, JobLauncher
from heshare.gpu.workers.launcher import Launcher, Worker
from heshare.gpu.workers.worker_pool import ProcessLauncher
from heshare.processes import MARK, end_marked
from heshare.world.workload import Workload

LauncherFactory = Callable[[MpsSession, Path], Launcher]
"""Makes the launcher of workloads of Table IV under an MPS session, with a folder for outputs."""


def select_gpus(text: str) -> list[str]:
    """Return the UUIDs of the GPUs that `nvml`, `nvml:0` or `nvml:0,nvml:GPU-...` names, in order.

    Raises:
        InputError: another form, or a GPU twice.
        DeviceError: no such GPU, or no NVML.
    """
    names = [part.strip() for part in text.split(",")]
    with Nvml() as nvml:
        if names == ["nvml"]:
            uuids = [nvml.card(index).uuid() for index in range(nvml.count())]
            found = "" if uuids else "no GPU"
        elif all(name.startswith("nvml:") and name != "nvml:" for name in names):
            keys = [name.removeprefix("nvml:") for name in names]
            uuids = [nvml.card(int(key) if key.isdecimal() else key).uuid() for key in keys]
            found = "a GPU twice" if len(set(uuids)) < len(uuids) else ""
        else:
            uuids, found = [], repr(text)
    if found:
        raise InputError(
            found,
            "nvml for every GPU, or nvml:INDEX or nvml:UUID, each once, with commas between them",
            "`heshare doctor` lists the GPUs of this machine.",
            column="--devices",
        )
    return uuids


class LocalGpus(GpuSet):
    """GPUs of this machine.

    Args:
        uuids, jobs, now_s, allow_clocks, timeouts: as `GpuSet`.
        folder: the run's folder; outputs go to its `outputs`.
        launcher: makes the launcher of workloads of Table IV; by default PyTorch workers.
        known: of a run that is resumed, the name of each GPU that it had; a GPU that is missing now is lost.

    Raises:
        GpuInUseError: another run has a GPU.
        DeviceError: a GPU cannot be used.
        Interrupted: a signal ended the run.
    """

    def __init__(
        self,
        uuids: Sequence[str],
        jobs: Mapping[int, AssignedJob],
        folder: Path,
        now_s: Callable[[], float],
        *,
        allow_clocks: bool,
        timeouts: Timeouts,
        launcher: LauncherFactory | None = None,
        known: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(uuids, jobs, now_s, allow_clocks=allow_clocks, timeouts=timeouts)
        self._folder, self._known = folder, known or {}
        self._launcher: LauncherFactory = launcher or (lambda mps, outputs: ProcessLauncher(mps, log_dir=outputs))

    def counters_j(self) -> list[float | None]:
        """Return each GPU's energy since its driver was loaded, J; None where that is unknown."""
        counters_j: list[float | None] = []
        with Nvml() as nvml:
            for uuid in self._uuids:
                try:
                    counters_j.append(nvml.card(uuid).energy_j())
                except DeviceError:
                    counters_j.append(None)
        return counters_j

    def _open(self, exits: ExitStack) -> None:
        # The order is what makes a kill at any moment safe: locked before anything else, watched and noted before
        # anything is changed; given back in the opposite order, so that the locks are the last to go.
        locks = []
        for uuid in self._uuids:
            locks.append(GpuLock(uuid))
            exits.callback(locks[-1].close)
        clean_up_killed_runs()
        note = note_of_this_process(self._folder, self.token)
        watchdog = Watchdog(note, [lock.descriptor for lock in locks])
        exits.callback(watchdog.dismiss)
        note.write()
        exits.callback(note.path.unlink, missing_ok=True)
        os.environ[MARK] = self.token
        exits.callback(os.environ.pop, MARK, None)
        # A signal that came while a process was being started leaves one that no device knows of.
        exits.callback(end_marked, self.token)
        for uuid in self._uuids:
            try:
                self.devices.append(self._device(uuid, exits))
            except (NoSuchGpuError, GpuLostError) as error:
                if uuid not in self._known:
                    raise
                device = lost_device(self._known[uuid], uuid, "", str(error), self._now_s)
                exits.callback(device.close)
                self.devices.append(device)
        if all(device.lost for device in self.devices):
            raise DeviceError(f"None of the run's GPUs can be used. {self.devices[0].lost}")

    def _device(self, uuid: str, exits: ExitStack) -> LocalExecutorDevice:
        mps = MpsSession(uuid)
        card = exits.enter_context(NvmlDevice(uuid, _NoLauncher(), mps=mps, allow_clocks=self._clocks))
        refusal = clock_refusal(card) if self._clocks else "not allowed"
        outputs = self._folder / "outputs"
        launcher = JobLauncher(
            self._jobs,
            lambda mps_pct: mps.environment(mps_pct if mps.sharing == MPS else 100),
            outputs,
            self._launcher(mps, outputs),
            attempts=self.attempts,
            enforced=lambda: mps.sharing == MPS,
            token=self.token,
            grace_s=self._timeouts.grace_s,
        )
        exits.callback(launcher.close)
        device = LocalExecutorDevice(
            card, launcher, self._jobs, self._now_s, mps=mps, clocks=refusal == "", timeouts=self._timeouts
        )
        if self._clocks and refusal:
            device.note(f"clocks cannot be set, so the plan is for the card's own: {refusal}")
        if mps.sharing != MPS:
            device.note(f"no MPS: {mps.reason}. Jobs take turns; shares are not enforced")
        exits.callback(device.stop_all)
        return device


def clock_refusal(device: NvmlDevice) -> str:
    """Return why clocks cannot be set on a GPU; empty if they can. The driver reveals that only when a clock is set."""
    try:
        device.set_clock(device.gpu.max_mhz)
        device.set_clock(None)
    except DeviceError as error:
        return str(error)
    return ""


class _NoLauncher(Launcher):
    """The launcher of a device that is only read and clocked: jobs are started by the executor's own."""

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> Worker:
        """Refuse."""
        raise DeviceError(f"Task {task_id} was to be started on the card itself. Start it on the job device.")
