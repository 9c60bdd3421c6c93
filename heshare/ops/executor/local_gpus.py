"""The GPUs of a run on this machine, taken and released: locks, keeper and note before MPS and clocks."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from heshare.ops.clocks import HeldClock, locked_clocks
from heshare.ops.descriptors import keep_some, raised_limit
from heshare.ops.executor.executor_device import CardOfRun, ExecutorDevice, LostDevice, Timeouts
from heshare.ops.executor.gpu_lock import GpuInUseError, GpuLock
from heshare.ops.executor.host import Host
from heshare.ops.executor.job_launcher import JobLauncher
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.operator_log import timed
from heshare.ops.keeper import restore
from heshare.ops.mps import MPS, MpsSession
from heshare.ops.nvml.binding import GpuLostError, NoReplyError, NoSuchGpuError, NvmlError
from heshare.ops.nvml.card_reader import CardReader, ReadCard
from heshare.ops.nvml.card_sampler import CardSampler
from heshare.ops.nvml.card_survey import CUDA_VARIABLE, ChosenGpus, choose
from heshare.ops.nvml_device import catalogue_gpu, power_call, require_shareable, require_usable
from heshare.ops.private_files import make_private_folder
from heshare.ops.probe import low_clock
from heshare.ops.state.held_note import Life
from heshare.ops.state.run_note import note_of_this_process, noted_runs
from heshare.shared.errors import DeviceError
from heshare.shared.processes import MARK
from heshare.shared.signals import InterruptHandler, handling
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu

NOT_FOR_JOBS = ("ZEUSD_TOKEN", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC",
                "WATCHDOG_PID", "CREDENTIALS_DIRECTORY")  # fmt: skip
"""Variables by which a service manager, or zeusd, gives the run what is not its jobs'."""


def select_gpus(text: str, host: Host) -> ChosenGpus:
    """Return the GPUs that `nvml`, `nvml:0` or `nvml:0,nvml:GPU-...` names, of those that CUDA_VISIBLE_DEVICES leaves.

    Raises:
        InputError: another form, a GPU twice, or one that is hidden.
        DeviceError: no such GPU, none that can be used, or no NVML.
    """
    return choose(host.survey(), text, os.environ.get(CUDA_VARIABLE))


def planned_cluster(uuids: Sequence[str], host: Host, *, clocks: bool) -> Cluster:
    """Return GPUs of this machine as a run would plan with them, before it takes them.

    Raises:
        DeviceError: a GPU does not reply, or a run would refuse it.
        InputError: the catalogue does not have it.
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
    """Return a GPU as a policy sees it where no clock may be set."""
    return replace(gpu, clocks_mhz=(gpu.max_mhz,))


@dataclass(eq=False, kw_only=True)
class LocalGpus:
    """The GPUs of a run, on this machine: taken at the begin of the `with`, released at its end, whatever ends it.

    Beginning raises `GpuInUseError` where another run has one of them. Within the `with`, signals that would end the
    process raise `Interrupted`; they are ignored while the GPUs are given back.

    Attributes:
        uuids: the GPUs.
        jobs: the job of each task.
        now_s: the time of the run, which all devices share, s.
        allow_clocks: let the policy lock clocks.
        folder: the run's folder; outputs go to `outputs` in it.
        host: this machine.
        known: of a run that is resumed, the name of each GPU that it had, by UUID; one that is missing now is lost.
        hidden: the UUIDs of GPUs that CUDA_VISIBLE_DEVICES hides.
        uses: what processes of others were found on GPUs before the run, by UUID.
        devices: one for each GPU, in order; there once the `with` has begun.
        token: the mark of the run's processes.
        attempts: the number of attempts at each job so far, on all of the GPUs.
        unreleased: what could not be given back at the end of the `with`, and what to do.
        interrupts: the handler of signals, which ignores them once the first has come or the `with` ends.
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

        # The order makes a kill at any moment safe: GPUs are locked before anything else, a keeper and a note are there
        # before anything is changed; and all is released in the opposite order, the locks last.
        locks = []
        for uuid in self.uuids:
            locks.append(GpuLock(uuid))
            exits.callback(locks[-1].close)
        restore()
        keeper = self.host.keeper([lock.descriptor for lock in locks], self._tell)
        exits.callback(lambda: keeper.dismiss(all_given_back=not self.unreleased))
        note = note_of_this_process(self.folder, self.token, self.uuids)
        held = note.hold()
        # What could not be given back stays noted, for the keeper, for `heshare restore` and for the next run.
        exits.callback(lambda: held.close() if self.unreleased else held.remove())
        note.publish(held)
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
            found = f"None of the run's GPUs can be used. {self.devices[0].lost}"
            raise DeviceError(f"{found} To continue on others, name them: --devices nvml.")

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
            self.devices[0].note(text)

    def _opened_or_lost(self, uuid: str, reader: CardReader, exits: ExitStack) -> ExecutorDevice:
        """Return a GPU that is opened; one that a resumed run had, and that is missing now, is lost."""
        try:
            if uuid in self.hidden:
                raise NoSuchGpuError(f"GPU {uuid}: not found: {CUDA_VARIABLE} hides it.")
            return self._opened(uuid, reader.card(uuid), exits)
        except (NoSuchGpuError, GpuLostError, NoReplyError) as error:
            if uuid not in self.known:
                raise
            return LostDevice(find_gpu(self.known[uuid]), uuid, str(error), self.now_s)

    def _opened(self, uuid: str, card: ReadCard, exits: ExitStack) -> ExecutorDevice:
        gpu = catalogue_gpu(card)
        require_usable(card)
        notes: list[str] = []

        def note(text: str) -> None:
            notes.append(timed(self.now_s(), text))

        clock = HeldClock(card, uuid) if self.allow_clocks else None
        if clock is not None:
            exits.callback(self._give_back, clock.close, f"GPU {uuid}")
            refusal = clock.refusal(gpu.max_mhz)
            if refusal:
                clock = None
                note(f"clocks cannot be set, so the plan is for the card's own: {refusal}")
        if clock is None:
            gpu = _at_own_clock(gpu, uuid, card, note)

        mps = self.host.mps(uuid)
        exits.callback(self._give_back, mps.stop, f"MPS of GPU {uuid}")
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
        """Begin to end the jobs of all GPUs, so that a stop takes as long as that of the slowest one."""
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

    def _give_back(self, release: Callable[[], None], what: str) -> None:
        try:
            release()
        except DeviceError as error:
            self.unreleased.append(str(error))
        except OSError as error:
            self.unreleased.append(f"{what}: not given back ({error}). Run `heshare restore`.")


def _at_own_clock(gpu: Gpu, uuid: str, card: ReadCard, note: Callable[[str], None]) -> Gpu:
    """Return a GPU whose clock cannot be set, with the one clock that it is expected to have."""
    for clock in locked_clocks():
        if clock.uuid == uuid:
            note(clock.text)
            if clock.life is not Life.UNKNOWN and clock.sm_mhz in gpu.clocks_mhz:
                # The plan must be for the clock at which jobs will run.
                return replace(gpu, clocks_mhz=(clock.sm_mhz,))
    try:
        low = low_clock(card.sm_mhz(), gpu.max_mhz, idles=card.idles(), throttled=bool(card.limits()))
    except NvmlError:
        low = ""
    if low:
        note(low)
    return at_top_clock(gpu)
