"""The GPUs of a run on this machine, taken and released: locks, watchdog and note before MPS and clocks."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from heshare.lab.tenants.tenant_power import TenantPower
from heshare.ops.clocks.clock_notes import locked_clocks, restore
from heshare.ops.descriptors import keep_some, raised_limit
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.gang import Gang
from heshare.ops.executor.gpu_lock import GpuInUseError, GpuLock
from heshare.ops.executor.job_process import AssignedJob, JobLauncher
from heshare.ops.executor.local_device import LocalExecutorDevice
from heshare.ops.executor.lost_device import LostDevice
from heshare.ops.executor.watchdog import Watchdog, clean_up_killed_runs
from heshare.ops.mps import MPS, MpsSession
from heshare.ops.nvml.binding import GpuLostError, NoReplyError, NoSuchGpuError
from heshare.ops.nvml.card_survey import CUDA_VARIABLE, ChosenGpus, choose, survey
from heshare.ops.nvml.guarded_gpu import GuardedGpu
from heshare.ops.nvml_device import NvmlDevice, catalogue_gpu
from heshare.ops.private_files import make_private_folder
from heshare.ops.state.held_note import Life
from heshare.ops.state.run_note import note_of_this_process, noted_runs
from heshare.ops.workers.job_cgroup import bound_memory
from heshare.ops.workers.launcher import Launcher
from heshare.ops.workers.output_limit import OutputLimiter
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.shared.errors import DeviceError
from heshare.shared.processes import MARK, end_marked
from heshare.shared.signals import InterruptHandler, handling
from heshare.world.cluster import Cluster

NOT_FOR_JOBS = ("ZEUSD_TOKEN", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC",
                "WATCHDOG_PID", "CREDENTIALS_DIRECTORY")  # fmt: skip
"""Variables by which a service manager, or zeusd, gives the run what is not its jobs'."""
LauncherFactory = Callable[[MpsSession, Path], Launcher]
"""Makes the launcher of workloads of Table IV under an MPS session, with a folder for outputs."""


def select_gpus(text: str) -> ChosenGpus:
    """Return the GPUs that `nvml`, `nvml:0` or `nvml:0,nvml:GPU-...` names, of those that CUDA_VISIBLE_DEVICES leaves.

    Raises:
        InputError: another form, a GPU twice, or one that is hidden.
        DeviceError: no such GPU, none that can be used, or no NVML.
    """
    return choose(survey(), text, os.environ.get(CUDA_VARIABLE))


def planned_cluster(uuids: Sequence[str], *, clocks: bool) -> Cluster:
    """Return GPUs of this machine as a run would plan with them, before it takes them.

    Raises:
        DeviceError: a GPU does not reply, or the catalogue does not have it.
    """
    gpus = []
    for uuid in uuids:
        with GuardedGpu(uuid) as card:
            gpu = catalogue_gpu(card)
        gpus.append(gpu if clocks else replace(gpu, clocks_mhz=(gpu.max_mhz,)))
    return Cluster(tuple(gpus))


@dataclass(eq=False, kw_only=True)
class LocalGpus:
    """The GPUs of a run, on this machine: taken at the begin of the `with`, released at its end, whatever ends it.

    Beginning raises `GpuInUseError` where another run has one of them. Within the `with`, signals that would end the
    process raise `Interrupted`; they are ignored while the GPUs are given back.

    Attributes:
        now_s: the time of the run, which all devices share, s.
        known: of a run that is resumed, the name of each GPU that it had, by UUID; one that is missing now is lost.
        folder: the run's folder; outputs go to `outputs` in it.
        launcher: makes the launcher of workloads of Table IV, by default PyTorch workers.
        hidden: the UUIDs of GPUs that CUDA_VISIBLE_DEVICES hides.
        uses: what processes of others were found on GPUs before the run, by UUID.
        devices: one for each GPU, in order; there once the `with` has begun.
        counters_j: each GPU's energy since its driver was loaded, when it was taken, J; None where that is unknown.
        token: the mark of the run's processes.
        attempts: the number of attempts at each job so far, on all of the GPUs.
        unreleased: what could not be given back at the end of the `with`, and what to do.
    """

    uuids: Sequence[str]
    jobs: Mapping[int, AssignedJob]
    now_s: Callable[[], float]
    allow_clocks: bool
    timeouts: Timeouts
    folder: Path
    known: Mapping[str, str] = field(default_factory=dict)
    tenant_power: TenantPower = field(default_factory=TenantPower)
    launcher: LauncherFactory | None = None
    hidden: frozenset[str] = frozenset()
    uses: Mapping[str, str] = field(default_factory=dict)
    _left: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.devices: list[LocalExecutorDevice | LostDevice] = []
        self.counters_j: list[float | None] = []
        self.token = uuid4().hex
        self.attempts = {task: job.attempts for task, job in self.jobs.items()}
        self.unreleased: list[str] = []
        self._interrupts = InterruptHandler()
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            exits.enter_context(handling(self._interrupts))
            self._open(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.ignore()
        self._exits.__exit__(kind, error, trace)

    def began_s(self, task_id: int) -> float:
        """Return when a job began on all of its GPUs, s; inf while its start waits on one of them."""
        return max(device.began_s(task_id) for device in self.devices)

    def _open(self, exits: ExitStack) -> None:
        make_private_folder(self.folder)
        make_private_folder(self.folder / "outputs")
        exits.enter_context(raised_limit())
        self._limiter = OutputLimiter()
        self._gangs: dict[int, Gang] = {}
        exits.callback(self._limiter.close)
        # The order makes a kill at any moment safe: GPUs are locked before anything else, watched and noted before
        # anything is changed; and released in the opposite order, the locks last.
        locks = []
        for uuid in self.uuids:
            locks.append(GpuLock(uuid))
            exits.callback(locks[-1].close)
        clean_up_killed_runs()
        restore()
        note = note_of_this_process(self.folder, self.token, self.uuids)
        held = note.hold()
        exits.callback(held.remove)
        watchdog = Watchdog(note, [lock.descriptor for lock in locks], held.descriptor, tell=self._tell)
        exits.callback(watchdog.dismiss)
        note.publish(held)
        # Before the watchdog is dismissed; what could not be ended stays noted, for `heshare restore` and the next run.
        exits.callback(lambda: held.close() if self._left else held.remove())
        self._refuse_gpus_of_other_containers()
        for name in NOT_FOR_JOBS:
            os.environ.pop(name, None)
        os.environ[MARK] = self.token
        exits.callback(os.environ.pop, MARK, None)
        # A signal that came while a process was being started leaves one that is on no device.
        exits.callback(end_marked, self.token)
        for uuid in self.uuids:
            try:
                if uuid in self.hidden:
                    raise NoSuchGpuError(f"GPU {uuid}: not found: {CUDA_VARIABLE} hides it.")
                self.devices.append(self._device(uuid, exits))
            except (NoSuchGpuError, GpuLostError, NoReplyError) as error:
                if uuid not in self.known:
                    raise
                self.devices.append(LostDevice(self.known[uuid], uuid, str(error), self.now_s))
        keep_some(exits)
        if all(device.lost for device in self.devices):
            raise DeviceError(f"None of the run's GPUs can be used. {self.devices[0].lost}")
        bounded = [job.spec.name for job in self.jobs.values() if job.spec.host_memory_mib is not None]
        if bounded and (reason := bound_memory()):
            self.devices[0].note(f"host_memory_mib of {bounded[0]} is not enforced: {reason}", "memory-unbounded")
        self.counters_j += [device.counter_j for device in self.devices]

    def _refuse_gpus_of_other_containers(self) -> None:
        """Raise `GpuInUseError` for a GPU of a run that does not share this machine's locks, as its note tells."""
        for run in noted_runs():
            if run.life is Life.RUNS and run.token != self.token and set(run.gpus) & set(self.uuids):
                raise GpuInUseError(
                    f"{run.text} Wait for it to end, end it, or use other GPUs. Containers on one machine must share "
                    "the folder of the locks, /run/lock or $HESHARE_LOCKS."
                )

    def _tell(self, text: str) -> None:
        if self.devices:
            self.devices[0].note(text, "watchdog")

    def _close(self, card: NvmlDevice) -> None:
        try:
            card.close()
        except DeviceError as error:
            self.unreleased.append(str(error))
        except OSError as error:
            self._left = True
            self.unreleased.append(f"GPU {card.uuid}: not given back ({error}). Run `heshare restore`.")

    def _device(self, uuid: str, exits: ExitStack) -> LocalExecutorDevice:
        mps = MpsSession(uuid)
        outputs = self.folder / "outputs"
        launcher = JobLauncher(
            self.jobs,
            mps,
            outputs,
            self.launcher(mps, outputs) if self.launcher else ProcessLauncher(mps, log_dir=outputs),
            attempts=self.attempts,
            gangs=self._gangs,
            limiter=self._limiter,
            token=self.token,
            grace_s=self.timeouts.grace_s,
        )
        card = NvmlDevice(uuid, launcher, mps=mps, allow_clocks=self.allow_clocks, deadline_s=self.timeouts.nvml_s)
        exits.callback(self._close, card)
        refusal = clock_refusal(card) if self.allow_clocks else "not allowed"
        device = LocalExecutorDevice(
            card, launcher, self.jobs, self.now_s,
            mps=mps, clocks=refusal == "", timeouts=self.timeouts, tenant_power=self.tenant_power,
        )  # fmt: skip
        if self.allow_clocks and refusal:
            device.note(f"clocks cannot be set, so the plan is for the card's own: {refusal}", "clocks-refused")
        for clock in locked_clocks():
            if clock.uuid == uuid:
                device.note(clock.text, "clock-locked")
                if clock.life is not Life.UNKNOWN and clock.sm_mhz in card.gpu.clocks_mhz:
                    # The plan must be for the clock at which jobs will run.
                    device.gpu = replace(device.gpu, clocks_mhz=(clock.sm_mhz,))
        if uuid in self.uses:
            device.note(self.uses[uuid], "gpu-used")
        if mps.sharing != MPS:
            device.note(f"no MPS: {mps.reason}. Jobs take turns; shares are not enforced", "no-mps")
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
