"""The GPUs of a run on this machine: locked, with a cleanup process and a state file, before MPS and clocks change."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from heshare.ops.cleanup import restore
from heshare.ops.clocks import ClockLock, locked_clocks
from heshare.ops.descriptors import keep_some, raised_limit
from heshare.ops.executor.executor_device import CardOfRun, ExecutorDevice, LostDevice, Timeouts
from heshare.ops.executor.gpu_lock import GpuInUseError, GpuLock
from heshare.ops.executor.host import Host
from heshare.ops.executor.job_launcher import JobLauncher
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.operator_log import timed
from heshare.ops.mps import MPS, MpsSession
from heshare.ops.nvml.binding import GpuLostError, NoReplyError, NoSuchGpuError, NvmlError
from heshare.ops.nvml.card_reader import CardReader, RemoteCard
from heshare.ops.nvml.card_sampler import CardSampler
from heshare.ops.nvml.card_survey import CUDA_VARIABLE, ChosenGpus, choose
from heshare.ops.nvml_device import catalogue_gpu, power_call, require_shareable, require_usable
from heshare.ops.private_files import make_private_folder
from heshare.ops.probe import low_clock
from heshare.ops.state.run_state_file import find_runs, run_state_file_of_this_process
from heshare.ops.state.state_file import OwnerStatus
from heshare.shared.errors import DeviceError
from heshare.shared.processes import MARK
from heshare.shared.signals import InterruptHandler, handling
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu

NOT_FOR_JOBS = ("ZEUSD_TOKEN", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC",
                "WATCHDOG_PID", "CREDENTIALS_DIRECTORY")  # fmt: skip
"""Environment variables of a service manager or zeusd for the run, which its jobs do not get."""


def select_gpus(text: str, host: Host) -> ChosenGpus:
    """Return the GPUs that `nvml`, `nvml:0` or `nvml:0,nvml:GPU-...` names, of those visible to CUDA_VISIBLE_DEVICES.

    Raises:
        InputError: another form, a GPU twice, or one that is hidden.
        DeviceError: no such GPU, none that can be used, or no NVML.
    """
    return choose(host.survey(), text, os.environ.get(CUDA_VARIABLE))


def planned_cluster(uuids: Sequence[str], host: Host, *, clocks: bool) -> Cluster:
    """Return GPUs of this machine as a run would describe them to its policy, without locking them.

    Raises:
        DeviceError: a GPU does not reply, or a run would refuse it.
        InputError: a GPU is not in the catalogue.
    """
    gpus = []
    with host.reader(Timeouts().nvml_s) as reader:
        for uuid in uuids:
            card = reader.card(uuid)
            gpus.append(catalogue_gpu(card))
            require_usable(card)
            require_shareable(card, host.sharing())
    return Cluster(tuple(gpu if clocks else at_top_clock(gpu) for gpu in gpus))


def at_top_clock(gpu: Gpu) -> Gpu:
    """Return a GPU with its top clock alone, as a policy sees it if no clock may be set."""
    return replace(gpu, clocks_mhz=(gpu.max_mhz,))


@dataclass(eq=False, kw_only=True)
class LocalGpus:
    """The GPUs of a run on this machine: locked at the begin of the `with`, released at its end, whatever ends it.

    The begin raises `GpuInUseError` if another run has one of them. Within the `with`, termination signals raise
    `Interrupted`; they are ignored while the GPUs are released.

    Attributes:
        uuids: the GPUs.
        jobs: the job of each task.
        now_s: the time of the run, which all devices share, s.
        allow_clocks: let the policy lock clocks.
        folder: the run's folder; outputs are written to `outputs` in it.
        host: this machine.
        known: names of the GPUs of a resumed run by UUID; one that is missing now counts as lost.
        hidden: the UUIDs of GPUs that CUDA_VISIBLE_DEVICES hides.
        uses: texts on foreign processes that were on GPUs before the run, by UUID.
        devices: one for each GPU, in order; set at the begin of the `with`.
        token: identifies the run's processes (`processes.MARK`).
        attempts: the number of attempts at each job so far, on all of the GPUs.
        unreleased: texts on what could not be released at the end of the `with`, and what to do.
        interrupts: the handler of signals, which ignores them after the first one and when the `with` ends.
    """

    uuids: Sequence[str]
    jobs: Mapping[int, AssignedJob]
    now_s: Callable[[], float]
    allow_clocks: bool
    timeouts: Timeouts
    folder: Path
    host: Host
    known: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    uses: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.devices: list[ExecutorDevice] = []
        self.token = uuid4().hex
        self.attempts = {task: job.attempts for task, job in self.jobs.items()}
        self.unreleased: list[str] = []
        self.interrupts = InterruptHandler()
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            exits.enter_context(handling(self.interrupts))
            try:
                self._open(exits)
            except BaseException:
                self.interrupts.ignore()
                raise
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.interrupts.ignore()
        self._exits.__exit__(kind, error, trace)

    def began_s(self, task_id: int) -> float:
        """Return when a job began, s; inf while its start waits."""
        return max(device.began_s(task_id) for device in self.devices)

    def _open(self, exits: ExitStack) -> None:
        make_private_folder(self.folder)
        make_private_folder(self.folder / "outputs")
        exits.enter_context(raised_limit())

        # This order makes a kill at any moment safe: first the locks of the GPUs, then the cleanup process and the
        # state file, and only then changes of GPUs. The release is in reverse order, the locks last.
        locks = []
        for uuid in self.uuids:
            locks.append(GpuLock(uuid))
            exits.callback(locks[-1].close)
        restore()
        cleanup = self.host.cleanup_process([lock.descriptor for lock in locks], self._report)
        exits.callback(lambda: cleanup.dismiss(all_released=not self.unreleased))
        run = run_state_file_of_this_process(self.folder, self.token, self.uuids)
        file = run.write()
        # If something could not be released, the file stays for the cleanup process, `heshare restore` and later runs.
        exits.callback(lambda: file.close() if self.unreleased else file.remove())
        run.publish(file)
        self._refuse_gpus_of_other_containers()

        for name in NOT_FOR_JOBS:
            os.environ.pop(name, None)
        os.environ[MARK] = self.token
        exits.callback(os.environ.pop, MARK, None)

        reader = exits.enter_context(self.host.reader(self.timeouts.nvml_s))
        for uuid in self.uuids:
            self.devices.append(self._opened_or_lost(uuid, reader, exits))
        keep_some(exits)
        if all(device.lost for device in self.devices):
            found = f"None of the run's GPUs is usable. {self.devices[0].lost}"
            raise DeviceError(f"{found} To continue on others, name them: --devices nvml.")

    def _refuse_gpus_of_other_containers(self) -> None:
        """Raise `GpuInUseError` for a GPU of a run that has another folder of locks, found by its state file."""
        for run in find_runs():
            if run.owner_status is OwnerStatus.RUNNING and run.token != self.token and set(run.gpus) & set(self.uuids):
                raise GpuInUseError(
                    f"{run.text} Wait for it to end, end it, or use other GPUs. Containers on one machine must share "
                    "the folder of the locks, /run/lock or $HESHARE_LOCKS."
                )

    def _report(self, text: str) -> None:
        if self.devices:
            self.devices[0].note(text)

    def _opened_or_lost(self, uuid: str, reader: CardReader, exits: ExitStack) -> ExecutorDevice:
        """Open a GPU; return a `LostDevice` for one that a resumed run had and that is missing now."""
        try:
            if uuid in self.hidden:
                raise NoSuchGpuError(f"GPU {uuid}: not found: {CUDA_VARIABLE} hides it.")
            return self._opened(uuid, reader.card(uuid), exits)
        except (NoSuchGpuError, GpuLostError, NoReplyError) as error:
            if uuid not in self.known:
                raise
            return LostDevice(find_gpu(self.known[uuid]), uuid, str(error), self.now_s)

    def _opened(self, uuid: str, card: RemoteCard, exits: ExitStack) -> ExecutorDevice:
        gpu = catalogue_gpu(card)
        require_usable(card)
        notes: list[str] = []

        def note(text: str) -> None:
            notes.append(timed(self.now_s(), text))

        clock = ClockLock(card, uuid) if self.allow_clocks else None
        if clock is not None:
            exits.callback(self._release, clock.close, f"GPU {uuid}")
            refusal = clock.refusal(gpu.max_mhz)
            if refusal:
                clock = None
                note(f"clocks cannot be set, so the plan is for the card's own: {refusal}")
        if clock is None:
            gpu = _at_own_clock(gpu, uuid, card, note)

        mps = self.host.mps(uuid)
        exits.callback(self._release, mps.stop, f"MPS of GPU {uuid}")
        mps.start()
        require_shareable(card, mps.sharing)
        if mps.sharing != MPS:
            note(f"no MPS: {mps.reason}. Jobs take turns; shares are not enforced")
        if uuid in self.uses:
            note(self.uses[uuid])

        launcher = self._launcher(mps)
        exits.callback(launcher.close)
        sampler = CardSampler(card, power_call(card), gpu.tdp_w, note, self.now_s)
        exclusive = card.compute_mode() != "default"
        device = ExecutorDevice(
            CardOfRun(gpu, uuid, sampler, clock, exclusive),
            launcher,
            self.jobs,
            self.now_s,
            mps=mps,
            timeouts=self.timeouts,
            notes=notes,
            on_stop=self._begin_stop,
        )
        exits.callback(device.stop_all)
        return device

    def _begin_stop(self) -> None:
        """Begin to end the jobs of all GPUs, so that they end at the same time and not one GPU after the other."""
        for device in self.devices:
            device.begin_stop()

    def _launcher(self, mps: MpsSession) -> JobLauncher:
        return JobLauncher(
            self.host,
            self.jobs,
            mps,
            self.folder / "outputs",
            attempts=self.attempts,
            token=self.token,
            grace_s=self.timeouts.grace_s,
        )

    def _release(self, release: Callable[[], None], what: str) -> None:
        try:
            release()
        except DeviceError as error:
            self.unreleased.append(str(error))
        except OSError as error:
            self.unreleased.append(f"{what}: not released ({error}). Run `heshare restore`.")


def _at_own_clock(gpu: Gpu, uuid: str, card: RemoteCard, note: Callable[[str], None]) -> Gpu:
    """Return a GPU whose clock cannot be set, with its expected clock alone."""
    for clock in locked_clocks():
        if clock.uuid == uuid:
            note(clock.text)
            if clock.owner_status is not OwnerStatus.UNKNOWN and clock.sm_mhz in gpu.clocks_mhz:
                # The plan must be for the clock at which jobs will run.
                return replace(gpu, clocks_mhz=(clock.sm_mhz,))
    try:
        low = low_clock(card.sm_mhz(), gpu.max_mhz, idles=card.idles(), throttled=bool(card.limits()))
    except NvmlError:
        low = ""
    if low:
        note(low)
    return at_top_clock(gpu)
