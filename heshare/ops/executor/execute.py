"""The executor: jobs on real GPUs under a policy, by the same event loop as in virtual time."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from heshare.lab.limits.budget_policy import BudgetSettings
from heshare.lab.limits.run_terms import NO_TERMS, RunTerms
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.ops.executor import job_tasks
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.learning import Learning
from heshare.ops.executor.local_gpus import LauncherFactory, LocalGpus, planned_cluster, select_gpus
from heshare.ops.executor.operator_log import OperatorLog
from heshare.ops.executor.outcome import RunOutcome, run_outcome
from heshare.ops.executor.run_control import RunControl, RunDrained, RunSteering, SteeredPolicy
from heshare.ops.executor.run_observer import HEAR_S, JournalingObserver
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import Entry, Note, Run, Session, SessionGpu
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.jobs.learned_commands import keep_learned, read_learned
from heshare.ops.jobs.run_journal import RunJournal
from heshare.ops.nvml.card_survey import CUDA_VARIABLE, ChosenGpus, hidden, survey
from heshare.policies.policy import Policy
from heshare.policies.registry import make
from heshare.prediction.predictor import Predictor
from heshare.running.clock import WallClock
from heshare.running.run import run
from heshare.scheduling.objectives import fit_mask
from heshare.shared.errors import DeviceError, PolicyError, require
from heshare.shared.signals import Interrupted
from heshare.shared.version import __version__
from heshare.world.cluster import Cluster

_DRAINED = "drained: nothing more was started, and what ran has ended; `heshare jobs run --resume` continues"


@dataclass(frozen=True)
class ExecutorOptions:
    """Options of the executor, with defaults for real GPUs.

    Attributes:
        timeouts: how long to wait.
        launcher: makes the launcher of workloads of Table IV; None is PyTorch workers.
        log: tells the operator of events and progress; by default nobody.
        tenant_power: what jobs draw alone, by which the energy of a GPU is divided among them.
        meter: is called with every entry of the journal, and with samples between them, for metrics.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    launcher: LauncherFactory | None = None
    log: OperatorLog = field(default_factory=OperatorLog)
    tenant_power: TenantPower = field(default_factory=TenantPower)
    meter: Callable[[Entry], object] | None = None


def execute(
    file: Path,
    folder: Path,
    *,
    policy: str,
    devices: str,
    predictor: Predictor,
    seed: int = 0,
    allow_clocks: bool = False,
    terms: RunTerms = NO_TERMS,
    options: ExecutorOptions | None = None,
) -> RunOutcome:
    """Run the jobs of a file on real GPUs; everything about the run goes into its folder.

    Args:
        file: the `jobs.yaml`.
        folder: of the run; new, or without a journal.
        policy: a name of the registry.
        devices: `nvml`, or `nvml:0,nvml:1`.
        predictor: the predictor of the policy.
        seed: of the policy's randomness.
        allow_clocks: let the policy lock clocks.
        terms: a power limit from the start of the run on, kept by starts alone where no clock may be set. Jobs on real
            GPUs do not wait for cheap energy: `InputError` for a price.
        options: of the executor.

    Raises:
        InputError: a bad file, policy or GPU; nothing has been started.
        DeviceError: another run has a GPU, or it cannot be used; a disk stays full.
        Interrupted: a signal ended the run; the GPUs are released, and `resume` continues it.
    """
    action = "Leave it out; on emulated GPUs: heshare run --tasks JOBS.yaml --price FILE."
    require("price", "a price of energy for jobs on real GPUs", terms.price is None, "a power limit alone", action)
    specs = read_jobs(file)
    make(policy)
    options = options or ExecutorOptions()
    job_tasks.check_names(specs, file)
    job_tasks.check_programs(specs, file)
    chosen = select_gpus(devices)
    if terms.power_limit is not None:
        terms.check(planned_cluster(chosen.uuids, clocks=allow_clocks))
    described = Run(
        version=__version__,
        policy=policy,
        devices=tuple(chosen.uuids),
        seed=seed,
        allow_clocks=allow_clocks,
        file=str(file.absolute()),
        jobs=specs,
        power_limit=terms.to_json().get("power_limit"),
    )
    with closing(RunJournal(folder, described)) as journal:
        return _continue(folder, journal, predictor, options, chosen=chosen)


def resume(
    folder: Path,
    *,
    predictor: Predictor,
    salvage: bool = False,
    options: ExecutorOptions | None = None,
) -> RunOutcome:
    """Continue a run that ended early: jobs that are over stay so, jobs that ran are started again.

    `salvage` leaves damaged lines of the journal out; a job whose end was in one runs again.

    Raises:
        InputError: no run in this folder, one that another process writes, or one of an older version on several hosts.
        DeviceError, Interrupted: as `execute`.
    """
    options = options or ExecutorOptions()
    with closing(RunJournal(folder, None, salvage=salvage)) as journal:
        return _continue(folder, journal, predictor, options)


def _continue(
    folder: Path,
    journal: RunJournal,
    predictor: Predictor,
    options: ExecutorOptions,
    chosen: ChosenGpus | None = None,
) -> RunOutcome:
    """Run the jobs that are not over in one more session; `chosen` are the GPUs of a run that begins here."""
    state = run_journal.folded(journal.entries, folder)
    described, sessions = state.run, [session.session for session in state.sessions]
    at, set_back_s = run_journal.session_start(journal.entries)
    clock = WallClock()
    elapsed_s = at - sessions[0].at if sessions else 0.0
    jobs = job_tasks.assigned_jobs(described.jobs)
    todo, assigned = job_tasks.remaining_tasks(jobs, state.history, elapsed_s=elapsed_s)
    if options.meter is not None:
        journal.follow(options.meter)
    drained = False
    if todo:
        steering = RunSteering(options.log, RunControl(folder), options.meter)
        # Every session draws random numbers of its own.
        rng = np.random.default_rng(np.random.SeedSequence(described.seed).spawn(len(sessions) + 1)[-1])
        gpus = _gpu_set(described, sessions, assigned, folder, clock, options, chosen)
        with _told_release(journal, steering.log, gpus), gpus:
            cluster = Cluster(tuple(device.gpu for device in gpus.devices))
            learning = Learning(todo, assigned, cluster, read_learned() | state.learned)
            observer = JournalingObserver(
                journal, assigned, gpus.devices, clock.now_s, state.history, steering, learning
            )
            _begin_session(gpus, journal, at, set_back_s)
            for key in learning.known.keys() - state.learned.keys():
                journal.append(learning.known[key], sync=False)
            _tell_begin(steering, described, gpus, len(todo), folder)
            for text in chosen.left_out if chosen else ():
                steering.log.tell("gpu-left-out", text)
                journal.append(Note(text), sync=False)
            observer.take_notes()
            fit_mask(learning.tasks, cluster)
            policy = _policy(described, elapsed_s, journal, steering, options, learning, gpus)
            with _told_end(journal, steering, observer, learning):
                run(
                    learning.tasks, cluster, policy,
                    predictor=predictor, rng=rng, devices=gpus.devices, clock=clock, observer=observer,
                )  # fmt: skip
            drained = steering.control.draining
            # Before the GPUs are given back: that may fail, or hang.
            run_outcome(run_journal.read_state(folder)).write(folder)
    return replace(run_outcome(run_journal.read_state(folder)).write(folder), drained=drained)


@contextmanager
def _told_end(
    journal: RunJournal, steering: RunSteering, observer: JournalingObserver, learning: Learning
) -> Iterator[None]:
    """Note how the run in the `with` ends: the run of a policy that gives up ends in order, as one that is drained."""
    try:
        yield
    except (RunDrained, PolicyError) as error:
        # The run ends with a note, since many jobs may have completed.
        text = _DRAINED if steering.control.draining else str(error)
        journal.append(Note(text))
        steering.log.tell("end", text)
    except Interrupted as signal:
        steering.log.tell("signal", f"{signal}: jobs are ended, the GPUs are given back")
        journal.append(Note(f"ended by {signal}"))
        raise
    finally:
        observer.finish()
        steering.control.clear()
        try:
            if learning.known:
                keep_learned(learning.known.values())
        except (OSError, DeviceError) as error:  # the run's results stand
            steering.log.tell("learned", f"what was learned of commands is not kept for later runs: {error}")


def _policy(
    described: Run,
    elapsed_s: float,
    journal: RunJournal,
    steering: RunSteering,
    options: ExecutorOptions,
    learning: Learning,
    gpus: LocalGpus,
) -> Policy:
    steered = SteeredPolicy(make(described.policy), steering.control, learning.take_news)
    if described.power_limit is None:
        return steered

    def tell(text: str) -> None:
        journal.append(Note(f"power limit: {text}"), sync=False)
        steering.log.tell("power-limit", text)

    settle_s = options.timeouts.settle_s
    settings = BudgetSettings(
        settle_s=settle_s,
        probe_s=settle_s,
        watch_s=min(HEAR_S, settle_s),
        may_start=lambda: not steering.control.draining,
        began_s=gpus.began_s,
        tell=tell,
    )
    return RunTerms.of_json({"power_limit": described.power_limit}).later(elapsed_s).wrap(steered, settings)


@contextmanager
def _told_release(journal: RunJournal, log: OperatorLog, gpus: LocalGpus) -> Iterator[None]:
    """Tell the operator what could not be given back at the end of the `with`, at once and in the report."""
    try:
        yield
    finally:
        for text in gpus.unreleased:
            journal.append(Note(text))
            log.tell("release-failed", text)


def _gpu_set(
    described: Run,
    sessions: Sequence[Session],
    assigned: Mapping[int, AssignedJob],
    folder: Path,
    clock: WallClock,
    options: ExecutorOptions,
    chosen: ChosenGpus | None,
) -> LocalGpus:
    place, action = folder / run_journal.NAME, "Begin a run on each host (docs/operations.md)."
    require(None, "a run on several hosts", not described.hosts, "a run on the GPUs of one", action, file=place)
    cards = chosen.cards if chosen else survey()
    return LocalGpus(
        uuids=described.devices,
        jobs=assigned,
        now_s=clock.now_s,
        allow_clocks=described.allow_clocks,
        timeouts=options.timeouts,
        tenant_power=options.tenant_power,
        known={gpu.uuid: gpu.name for session in sessions for gpu in session.gpus},
        folder=folder,
        launcher=options.launcher,
        hidden=hidden(cards, os.environ.get(CUDA_VARIABLE)),
        uses={card.uuid: card.use for card in cards if card.use},
    )


def _tell_begin(steering: RunSteering, described: Run, gpus: LocalGpus, jobs: int, folder: Path) -> None:
    uuids = ", ".join(device.uuid for device in gpus.devices)
    steering.log.tell("begin", f"{jobs} jobs to run on {uuids} under {described.policy}, in {folder}")
    if described.allow_clocks and not any(len(device.gpu.clocks_mhz) > 1 for device in gpus.devices):
        refused = "--allow-clocks is refused on every GPU: the jobs run, and the plan is for the GPUs' own clocks"
        steering.log.tell("clocks-refused", refused)


def _begin_session(gpus: LocalGpus, journal: RunJournal, at: float, set_back_s: float) -> None:
    """Journal the GPUs of a session, and its start as `session_start` has it, before anything is started."""
    rows = []
    for device in gpus.devices:
        clocks_mhz = device.gpu.clocks_mhz
        grid = f"{clocks_mhz[0]}-{clocks_mhz[-1]}" if len(clocks_mhz) > 1 else f"{clocks_mhz[-1]} (the card's own)"
        rows.append(SessionGpu(device.uuid, device.gpu.name, grid, device.sharing))
    journal.append(Session(at, tuple(rows), set_back_s, os.getpid(), tuple(gpus.counters_j), gpus.token))
