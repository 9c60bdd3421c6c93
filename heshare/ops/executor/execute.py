"""The executor: runs jobs on this machine's GPUs under a policy, with the event loop of simulated runs."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from heshare.lab.limits import LimitSettings, PowerLimit, check_cluster, within_limit
from heshare.ops.executor import job_tasks
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.host import Host
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.local_gpus import LocalGpus, planned_cluster, select_gpus
from heshare.ops.executor.operator_log import OperatorLog
from heshare.ops.executor.run_observer import HEAR_S, JournalingObserver
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import Note, Run, Session, SessionGpu, known
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.jobs.report import RunReport, read_report, run_report
from heshare.ops.jobs.run_journal import RunJournal
from heshare.ops.jobs.run_state import RunState
from heshare.ops.nvml.card_survey import CUDA_VARIABLE, ChosenGpus, hidden
from heshare.policies.policy import Policy
from heshare.policies.registry import make
from heshare.prediction.predictor import Predictor
from heshare.running.clock import Clock
from heshare.running.run import run
from heshare.scheduling.objectives import fit_mask
from heshare.shared.errors import PolicyError
from heshare.shared.signals import Interrupted, handling
from heshare.shared.version import __version__
from heshare.world.cluster import Cluster
from heshare.world.task import Task


@dataclass(frozen=True)
class ExecutorOptions:
    """Options of the executor, with defaults for real GPUs.

    Attributes:
        timeouts: waiting times.
        log: prints events and progress; by default nothing.
        host: the machine.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    log: OperatorLog = field(default_factory=OperatorLog)
    host: Host = field(default_factory=Host)


def execute(
    file: Path,
    folder: Path,
    *,
    policy: str,
    devices: str,
    predictor: Predictor,
    seed: int = 0,
    allow_clocks: bool = False,
    power_limit: PowerLimit | None = None,
    options: ExecutorOptions | None = None,
) -> RunReport:
    """Run the jobs of a file on real GPUs; journal, outputs and report are written to the run's folder.

    Args:
        file: the `jobs.yaml`.
        folder: of the run; new, or without a journal.
        policy: a name of the registry.
        devices: `nvml`, or `nvml:0,nvml:1`.
        predictor: the predictor of the policy.
        seed: of the policy's randomness.
        allow_clocks: let the policy lock clocks.
        power_limit: from the start of the run on; if clocks may not be set, only starts are delayed for it.
        options: of the executor.

    Raises:
        InputError: a bad file, policy or GPU; nothing has been started.
        DeviceError: another run has a GPU, it is not usable, or the disk is full.
        Interrupted: a signal ended the run; the GPUs are released, the report is written, and `resume` continues it.
    """
    options = options or ExecutorOptions()
    specs = read_jobs(file)
    make(policy)
    job_tasks.check_real_jobs(specs, file, options.host.models_lack())
    chosen = select_gpus(devices, options.host)
    if power_limit is not None:
        check_cluster(planned_cluster(chosen.uuids, options.host, clocks=allow_clocks), power_limit)

    described = Run(
        version=__version__,
        policy=policy,
        devices=tuple(chosen.uuids),
        seed=seed,
        allow_clocks=allow_clocks,
        file=str(file.absolute()),
        jobs=specs,
        power_limit=None if power_limit is None else power_limit.to_json(),
    )
    with closing(RunJournal(folder, described)) as journal:
        return _SessionOfRun(folder, journal, predictor, options, chosen).run()


def resume(
    folder: Path,
    *,
    predictor: Predictor,
    devices: str | None = None,
    options: ExecutorOptions | None = None,
) -> RunReport:
    """Continue a run that ended early: finished jobs are not repeated, jobs that ran are started again.

    It uses the GPUs with which it began, or those that `devices` names, on this machine or another one.

    Raises:
        InputError: no run in this folder, or another process writes its journal.
        DeviceError, Interrupted: as `execute`.
    """
    options = options or ExecutorOptions()
    chosen = None if devices is None else select_gpus(devices, options.host)
    with closing(RunJournal(folder, None)) as journal:
        return _SessionOfRun(folder, journal, predictor, options, chosen).run()


class _SessionOfRun:
    """One session of a run: the unfinished jobs, from locking the GPUs to releasing them.

    `chosen` are its GPUs; None means those with which the run began.
    """

    def __init__(
        self,
        folder: Path,
        journal: RunJournal,
        predictor: Predictor,
        options: ExecutorOptions,
        chosen: ChosenGpus | None,
    ) -> None:
        self._folder, self._journal, self._predictor, self._options = folder, journal, predictor, options
        self._chosen = chosen
        self._state: RunState = run_journal.folded(journal.entries, folder)
        self._at, self._set_back_s = run_journal.session_start(journal.entries)
        sessions = self._state.sessions
        self._number = len(sessions)
        self._elapsed_s = self._at - sessions[0].session.at if sessions else 0.0

    def run(self) -> RunReport:
        """Run the jobs; return the report of the run, which is written however the session ends."""
        self._state.end_session()
        tasks, jobs = job_tasks.remaining_tasks(self._state.jobs.values(), elapsed_s=self._elapsed_s)
        if not tasks:
            return run_report(self._state).write(self._folder)

        clock = self._options.host.clock()
        gpus = self._gpus(jobs, clock.now_s)
        # A second signal interrupts neither the release of the GPUs nor the report.
        with handling(gpus.interrupts):
            try:
                self._run_on(gpus, tasks, jobs, clock)
            except BaseException:
                if self._number < len(self._state.sessions):
                    read_report(self._folder).write(self._folder)
                raise
            return read_report(self._folder).write(self._folder)

    def _run_on(self, gpus: LocalGpus, tasks: Sequence[Task], jobs: Mapping[int, AssignedJob], clock: Clock) -> None:
        """Lock the GPUs, run the jobs on them, and release them."""
        with self._journal_release(gpus), gpus:
            cluster = Cluster(tuple(device.gpu for device in gpus.devices))
            observer = JournalingObserver(
                self._journal, self._state, jobs, gpus.devices, clock.now_s, self._options.log, self._options.host
            )
            self._begin(gpus, observer, len(tasks))
            fit_mask(tasks, cluster)
            policy = self._policy(gpus, observer)
            # Every session has its own random stream.
            seeds = np.random.SeedSequence(self._state.run.seed).spawn(self._number + 1)
            rng = np.random.default_rng(seeds[-1])
            with self._journal_end(observer, gpus):
                run(
                    tasks, cluster, policy,
                    predictor=self._predictor, rng=rng, devices=gpus.devices, clock=clock, observer=observer,
                )  # fmt: skip

    def _gpus(self, jobs: Mapping[int, AssignedJob], now_s: Callable[[], float]) -> LocalGpus:
        described = self._state.run
        cards = self._chosen.cards if self._chosen else self._options.host.survey()
        return LocalGpus(
            uuids=self._chosen.uuids if self._chosen else described.devices,
            jobs=jobs,
            now_s=now_s,
            allow_clocks=described.allow_clocks,
            timeouts=self._options.timeouts,
            folder=self._folder,
            host=self._options.host,
            known={gpu.opened.uuid: gpu.opened.name for gpu in self._state.gpus},
            hidden=hidden(cards, os.environ.get(CUDA_VARIABLE)),
            uses={card.uuid: card.use for card in cards if card.use},
        )

    def _begin(self, gpus: LocalGpus, observer: JournalingObserver, jobs: int) -> None:
        """Journal and log the GPUs of the session and its start."""
        log, described = self._options.log, self._state.run
        counters_j = tuple(known(device.first_counter_j) for device in gpus.devices)
        rows = []
        for device in gpus.devices:
            clocks_mhz = device.gpu.clocks_mhz
            grid = f"{clocks_mhz[0]}-{clocks_mhz[-1]}" if len(clocks_mhz) > 1 else f"{clocks_mhz[-1]} (the card's own)"
            rows.append(SessionGpu(device.uuid, device.gpu.name, grid, device.sharing))
        observer.begin(Session(self._at, tuple(rows), self._set_back_s, os.getpid(), counters_j, gpus.token))

        uuids = ", ".join(device.uuid for device in gpus.devices)
        log.event(f"{jobs} jobs to run on {uuids} under {described.policy}, in {self._folder}")
        if described.allow_clocks and not any(len(device.gpu.clocks_mhz) > 1 for device in gpus.devices):
            refused = "--allow-clocks is refused on every GPU: the jobs run, planned for the GPUs' default clocks"
            log.event(refused)
        for text in self._chosen.left_out if self._chosen else ():
            observer.note(text)

    def _policy(self, gpus: LocalGpus, observer: JournalingObserver) -> Policy:
        """Return the policy of the run, wrapped by fault tolerance, wrapped by the power limit."""
        described = self._state.run
        policy: Policy = FaultTolerantPolicy(
            make(described.policy), lambda: any(device.expected for device in gpus.devices)
        )
        if described.power_limit is None:
            return policy

        settle_s = self._options.timeouts.settle_s
        settings = LimitSettings(
            settle_s=settle_s,
            probe_s=settle_s,
            watch_s=min(HEAR_S, settle_s),
            began_s=gpus.began_s,
            tell=lambda text: observer.note(f"power limit: {text}"),
        )
        limit = PowerLimit.of_json(described.power_limit).later(self._elapsed_s)
        return within_limit(policy, limit, settings)

    @contextmanager
    def _journal_end(self, observer: JournalingObserver, gpus: LocalGpus) -> Iterator[None]:
        """Journal the end of the run in the `with`; a `PolicyError` ends it with the results so far."""
        try:
            yield
        except PolicyError as error:
            observer.note(str(error))
        except Interrupted as signal:
            observer.note(f"{signal}: jobs are ended, the GPUs are released")
            raise
        finally:
            gpus.interrupts.ignore()  # a signal must not interrupt the last accounts
            observer.finish()

    @contextmanager
    def _journal_release(self, gpus: LocalGpus) -> Iterator[None]:
        """At the end of the `with`, log and journal what could not be released."""
        try:
            yield
        finally:
            for text in gpus.unreleased:
                self._journal.append(Note(text))
                self._options.log.event(text)
