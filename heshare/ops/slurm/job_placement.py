"""Places of jobs: a policy runs on emulated cards, and what it starts where becomes gres, order and clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from heshare.devices.device import TaskFailure
from heshare.ops.slurm.job_comment import JobComment
from heshare.ops.slurm.slurm_cards import SlurmCard
from heshare.policies.policy import Action, Event, Migrate, Pause, SetClock, Start
from heshare.policies.registry import make
from heshare.prediction.predictor import Predictor
from heshare.running.observer import Observer
from heshare.running.run import run
from heshare.running.timeline import Interval
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster
from heshare.world.task import Task


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """The place of a job in a plan.

    Attributes:
        count: how much of the card's gres it gets: the percentage of it, or less where those that run together
            have more than 100 % in sum, since Slurm gives no more than there is.
        sm_mhz: the SM clock, MHz; None is the GPU's own.
        after: jobs of the plan on that GPU that must have ended; it starts after their predecessors, too.
    """

    job: int
    card: SlurmCard
    mps_pct: int
    count: int
    sm_mhz: int | None
    after: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass
class _TaskStart:
    gpu: int
    mps_pct: int
    sm_mhz: int | None
    after: tuple[int, ...]
    began: int
    ended: int = 0
    together_pct: int = 0


@dataclass
class PlacementObserver(Observer):
    """Keeps where each task starts, after which tasks of its GPU, and the most that runs beside it.

    Raises:
        InputError: the policy does what Slurm cannot follow.
    """

    policy: str
    gpus: int
    started: dict[int, _TaskStart] = field(default_factory=dict)
    clock_changes: int = 0
    _step: int = 0

    def __post_init__(self) -> None:
        self._clocks: list[int | None] = [None] * self.gpus
        self._running: list[set[int]] = [set() for _ in range(self.gpus)]
        self._ended: list[list[int]] = [[] for _ in range(self.gpus)]

    def on_decision(self, event: Event, actions: Sequence[Action]) -> None:
        begun = {action.gpu for action in actions if isinstance(action, Start)}
        for action in actions:
            if isinstance(action, SetClock):
                self.clock_changes += bool(self._running[action.gpu]) and action.gpu not in begun
                self._clocks[action.gpu] = action.sm_mhz
        for action in actions:
            if isinstance(action, Pause | Migrate):
                raise self._refused("pauses or moves a job that runs")
            if isinstance(action, Start):
                if action.also or action.batch_size is not None or action.sharing != "mps":
                    raise self._refused("changes the inference batch size, or shares GPUs in another way than MPS")
                self._start(action)

    def on_interval_end(self, interval: Interval, failed: TaskFailure | None) -> None:
        self._step += 1
        self.started[interval.task].ended = self._step
        self._running[interval.gpu].discard(interval.task)
        self._ended[interval.gpu].append(interval.task)

    def _start(self, action: Start) -> None:
        self._step += 1
        ended, running = self._ended[action.gpu], self._running[action.gpu]
        # Tasks before the last start of a task that has ended are its predecessors, or those of its batch.
        last = max((self.started[task].began for task in ended), default=0)
        after = tuple(task for task in ended if self.started[task].ended > last)
        clock = self._clocks[action.gpu]
        self.started[action.task] = _TaskStart(action.gpu, action.mps_pct, clock, after, self._step)
        running.add(action.task)
        together_pct = sum(self.started[task].mps_pct for task in running)
        for task in running:
            self.started[task].together_pct = max(self.started[task].together_pct, together_pct)

    def _refused(self, what: str) -> InputError:
        action = "Choose a policy that places jobs, such as heshare:trade-off, heshare+:trade-off or sjf:fastest."
        found = f"{self.policy}, which {what}"
        return InputError(found, "a policy whose starts Slurm can follow", action, column="policy")


def place_jobs(
    jobs: Mapping[int, JobComment], cards: Sequence[SlurmCard], policy: str, *, predictor: Predictor, seed: int
) -> tuple[tuple[JobPlacement, ...], dict[str, float], tuple[str, ...]]:
    """Plan jobs that all wait on cards that are all idle.

    The policy runs on emulated cards. A plan's batches become an order on each card: a job starts after those that had
    ended there. `jobs` says what each job is planned as, by its number. Returned are the places in order of their
    starts, predicted totals, and lines on what Slurm does not follow.

    Raises:
        InputError: an unknown policy, one that Slurm cannot follow, or a job that no card holds.
    """
    numbers = sorted(jobs)
    tasks = [Task(index, jobs[number].workload, jobs[number].iterations) for index, number in enumerate(numbers)]
    observer = PlacementObserver(policy, len(cards))
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    cluster = Cluster(tuple(card.gpu for card in cards))
    result = run(tasks, cluster, make(policy), predictor=predictor, rng=rng, observer=observer)
    rows = result.to_frame().to_dict("records")
    placements = []
    for task, begun in sorted(observer.started.items(), key=lambda item: item[1].began):
        card, row = cards[begun.gpu], rows[task]
        placements.append(
            JobPlacement(
                job=numbers[task],
                card=card,
                mps_pct=begun.mps_pct,
                count=max(1, begun.mps_pct * card.shares // max(100, begun.together_pct)),
                sm_mhz=begun.sm_mhz,
                after=tuple(numbers[other] for other in begun.after),
                start_s=row["arrival_s"] + row["waiting_s"],
                end_s=row["arrival_s"] + row["jct_s"],
            )
        )
    summary = result.summary()
    totals = {name: float(summary[name]) for name in ("makespan_s", "avg_jct_s", "energy_active_j")}
    notes: tuple[str, ...] = ()
    if observer.clock_changes:
        notes = (
            f"{policy} changes clocks {observer.clock_changes} times while jobs run: Slurm keeps those of starts.",
        )
    return tuple(placements), totals, notes
