"""Release of Slurm's held jobs by a plan: what scontrol is to change, the change itself, and the watch of the queue."""

import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import pandas as pd

from heshare.ops.slurm.job_comment import JobComment, read_comment
from heshare.ops.slurm.job_placement import JobPlacement, place_jobs
from heshare.ops.slurm.slurm_cards import SlurmCard, read_cards
from heshare.ops.slurm.slurm_queue import SlurmError, SlurmJob, call, read_queue
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import fit_mask
from heshare.shared.errors import HeShareError, InputError
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


@dataclass(frozen=True)
class PlanSettings:
    """How jobs are planned; `types` are GPUs of data/gpus.csv by type of gres.conf; None is every partition or user."""

    policy: str
    predictor: Predictor
    types: Mapping[str, str]
    partition: str | None = None
    user: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class SlurmState:
    """Jobs and GPUs of Slurm at one moment.

    `waiting` says what each held job without a place is planned as, by its number. `unreleased` are held jobs that have
    a place: an earlier release was cut off, or their user holds them again.
    """

    jobs: tuple[SlurmJob, ...]
    cards: tuple[SlurmCard, ...]
    waiting: Mapping[int, JobComment]
    unreleased: tuple[SlurmJob, ...]
    notes: tuple[str, ...]

    def unfinished_on(self, card: SlurmCard) -> list[SlurmJob]:
        """Return the jobs with a place on a card that run, or wait and are not held, or are to be released now."""
        there = [job for job in self.jobs if job.gpu == card.key]
        return [job for job in there if not job.stopped or job in self.unreleased]

    def last_on(self, card: SlurmCard) -> tuple[int, ...]:
        """Return the jobs on a card that no other job there waits for."""
        there = self.unfinished_on(card)
        before = frozenset[int]().union(*[job.waits_for for job in there])
        return tuple(job.id for job in there if job.id not in before)


@dataclass(frozen=True)
class ReleasePlan:
    """A plan for Slurm's held jobs, its places in the order of the release, and the commands that carry it out."""

    state: SlurmState
    placements: tuple[JobPlacement, ...]
    totals: Mapping[str, float]
    notes: tuple[str, ...]

    @cached_property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The calls of scontrol: first each job's place, then, in the same order, the releases."""
        updates = [self.update(placement) for placement in self.placements]
        numbers = [job.id for job in self.state.unreleased] + [placement.job for placement in self.placements]
        return (*updates, *[("scontrol", "release", str(number)) for number in numbers])

    def update(self, placement: JobPlacement) -> tuple[str, ...]:
        card = placement.card
        after = placement.after or self.state.last_on(card)
        order = [f"Dependency=afterany:{':'.join(map(str, after))}"] if after else []
        comment = self.state.waiting[placement.job].placed(card.key, placement.mps_pct, placement.sm_mhz)
        gres = f"Gres={card.gres}:{card.kind}:{placement.count}"
        return (
            "scontrol",
            "update",
            f"JobId={placement.job}",
            gres,
            f"ReqNodeList={card.node}",
            *order,
            (f"Comment={comment}"),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a job: job, user, workload, gpu, mps_pct, sm_mhz, after, start_s, end_s; as predicted."""
        users = {job.id: job.user for job in self.state.jobs}
        rows = [
            {
                "job": place.job,
                "user": users[place.job],
                "workload": str(self.state.waiting[place.job].workload),
                "gpu": place.card.key,
                "mps_pct": place.mps_pct,
                "sm_mhz": place.sm_mhz,
                "after": " ".join(map(str, place.after or self.state.last_on(place.card))),
                "start_s": place.start_s,
                "end_s": place.end_s,
            }
            for place in self.placements
        ]
        columns = ["job", "user", "workload", "gpu", "mps_pct", "sm_mhz", "after", "start_s", "end_s"]
        return pd.DataFrame(rows, columns=columns).astype({"sm_mhz": "Int64"})


def read_state(settings: PlanSettings) -> SlurmState:
    """Read Slurm's queue and nodes.

    Raises:
        SlurmError: Slurm's programs are missing or fail.
        InputError: no GPU can be shared, or a job cannot run on all of them.
    """
    cards, notes = read_cards(settings.types)
    jobs, wanted = read_queue(), settings.partition
    if wanted is not None:
        cards = tuple(card for card in cards if wanted in card.partitions)
        jobs_there = [job for job in jobs if wanted in job.partition.split(",")]
    else:
        jobs_there = list(jobs)
    if not cards:
        found = "no GPU of Slurm's nodes that jobs can share" + "".join(f" ({note})" for note in notes)
        action = "Correct gres.conf as docs/slurm.md shows, or --types or --partition."
        raise InputError(found, "at least one with a type and a gres shard or mps", action)
    if settings.user is not None:
        jobs_there = [job for job in jobs_there if job.user == settings.user]
    waiting: dict[int, JobComment] = {}
    unreleased, told = [], list(notes)
    for job in jobs_there:
        if job.gpu and job.stopped and not job.held:
            told.append(
                f"Job {job.id} has a place on {job.gpu} and is held ({job.reason}): new jobs do not wait for it."
            )
        if not (job.held and job.ours):
            continue
        why = "" if job.gpu else _why_not(job, cards)
        if why:
            told.append(f"Job {job.id} is left alone: {why}")
        elif job.gpu:
            unreleased.append(job)
        else:
            try:
                work = read_comment(job.comment, job.id)
                fit_mask([Task(job.id, work.workload, work.iterations)], Cluster(tuple(card.gpu for card in cards)))
                waiting[job.id] = work
            except InputError as error:
                told.append(f"Job {job.id} is left alone: {error}")
    return SlurmState(jobs, cards, waiting, tuple(unreleased), tuple(told))


def _why_not(job: SlurmJob, cards: Sequence[SlurmCard]) -> str:
    if job.gres:
        # Slurm 22.05 adds a type to those of the submission instead of replacing them, and the job never starts.
        return f"it asks for {job.gres} itself; submit it without --gres and --gpus, and the plan gives it a GPU."
    if job.array:
        return "it is a job array; submit its tasks as jobs."
    if job.nodes > 1:
        return f"it asks for {job.nodes} nodes; a plan gives a job one GPU."
    if job.dependency:
        return f"it depends on other jobs ({job.dependency}); it is planned once they have ended."
    own = set(job.partition.split(","))
    outside = [card.key for card in cards if not own & set(card.partitions)]
    if outside:
        return (
            f"its partition {job.partition} has no {', '.join(outside[:3])}, and a plan needs jobs that can run on all "
            f"of its GPUs; plan one partition at a time, such as --partition {sorted(own)[0]}."
        )
    return ""


def plan_release(state: SlurmState, settings: PlanSettings) -> ReleasePlan:
    """Plan the held jobs that have no place yet; jobs that were placed earlier go first on their GPUs.

    A job that cannot be planned is left alone with a note, since any user may submit one.

    Raises:
        InputError: an unknown policy, or one that Slurm cannot follow.
    """
    placements: tuple[JobPlacement, ...] = ()
    totals: dict[str, float] = {}
    notes = state.notes
    if state.unreleased:
        numbers = " ".join(str(job.id) for job in state.unreleased)
        notes = (*notes, f"Jobs {numbers} have a place and are held: they are released as they are.")
    users = sorted({job.user for job in state.jobs if job.id in state.waiting})
    if len(users) > 1:
        more = f"Jobs of {' and '.join(users)}: MPS runs one user's jobs of a GPU at a time; plan them with --user."
        notes = (*notes, more)
    if state.waiting:
        placed = partial(
            place_jobs, cards=state.cards, policy=settings.policy, predictor=settings.predictor, seed=settings.seed
        )
        waiting = dict(state.waiting)
        try:
            placements, totals, changes = placed(waiting)
        except InputError as error:
            if error.column == "policy":
                raise
            refused = {job: _refusal(placed, job, work) for job, work in waiting.items()}
            if not any(refused.values()):
                raise
            notes = (*notes, *[f"Job {job} is left alone: {why}" for job, why in refused.items() if why])
            waiting = {job: work for job, work in waiting.items() if not refused[job]}
            placements, totals, changes = placed(waiting)
        notes = (*notes, *changes)
    return ReleasePlan(state, placements, totals, notes)


def _refusal(placed: Callable[[Mapping[int, JobComment]], object], job: int, work: JobComment) -> str:
    try:
        placed({job: work})
    except InputError as error:
        return str(error)
    return ""


class RefusedPlacesError(SlurmError):
    """Slurm has refused to change some jobs; `jobs` are those that have no place for that."""

    def __init__(self, jobs: set[int], message: str) -> None:
        self.jobs = jobs
        super().__init__(message)


def apply_release(plan: ReleasePlan, tell: Callable[[str], None] = lambda line: None) -> None:
    """Carry out a plan: give all jobs their places, then release them.

    A job has its place, all of it, by one request to Slurm. What was cut off is continued by the next plan: jobs that
    have a place keep it. A job that Slurm refuses is left as it is, with those that wait for it; the others go on.
    `tell` is called with each command that was carried out.

    Raises:
        SlurmError: Slurm does not answer.
        RefusedPlacesError: it has refused a job; the message says what was done.
    """
    refusals: list[str] = []
    left: set[int] = set()
    done: Counter[str] = Counter()
    after = {place.job: set(place.after) for place in plan.placements}
    for command in plan.commands:
        job = int(command[2].removeprefix("JobId="))
        if job in left or after.get(job, set()) & left:
            left.add(job)
            continue
        try:
            call(command)
        except SlurmError as error:
            refusals.append(f"{shlex.join(command)} was refused ({error}).")
            left |= {job} if command[1] == "update" else set()
            read_queue()  # raises an error where Slurm does not answer at all
            continue
        done[command[1]] += 1
        tell(shlex.join(command))
    if refusals:
        raise RefusedPlacesError(
            left,
            f"{' '.join(refusals[:3])} Done all the same: {done['update']} of {len(plan.placements)} jobs have their "
            f"place, {done['release']} are released. Correct or cancel what was refused, then run "
            "`heshare slurm apply --yes` again: it continues.",
        )


class ReleaseWatch:
    """Releases held jobs round by round; what waits for a GPU stays held, so that it can still be planned again.

    A new plan is made when jobs have arrived and a GPU is free, of all jobs that are held (a rolling horizon, as
    `policies/plan_release.py` has it); where that leaves every free GPU without a job, they are planned on the free
    GPUs alone. Nothing is kept between rounds but the plan: another watch can continue. `tell` is called with each line
    for the operator; unless `carry_out`, the commands are only told.
    """

    def __init__(self, settings: PlanSettings, tell: Callable[[str], None], *, carry_out: bool) -> None:
        self._settings, self._tell, self._carry_out = settings, tell, carry_out
        self._plan: ReleasePlan | None = None
        self._told: set[str] = set()
        self._refused: set[int] = set()

    def round(self) -> int:
        """Look at the queue once, release what can start, and return how many jobs that were.

        Raises:
            HeShareError: Slurm does not answer or refuses, or the jobs cannot be planned.
        """
        state = read_state(self._settings)
        notes = {*state.notes, *[_held_again(job.id) for job in state.unreleased]}
        for note in sorted(notes - self._told):
            self._tell(note)
        self._told = notes
        waiting = {job: work for job, work in state.waiting.items() if job not in self._refused}
        state = replace(state, unreleased=(), waiting=waiting)
        idle = tuple(card for card in state.cards if not state.unfinished_on(card))
        known = set(self._plan.state.waiting) if self._plan else set()
        lost_a_card = self._plan is not None and self._plan.state.cards != state.cards
        if state.waiting and idle and (not set(state.waiting) <= known or lost_a_card):
            self._plan = plan_release(state, self._settings)
            for note in self._plan.notes[len(state.notes) :]:
                self._tell(note)
        ready = () if self._plan is None else _startable(self._plan, state)
        if state.waiting and idle and not ready:
            # The plan has these jobs wait for busy GPUs: a GPU that is free takes some of them.
            self._plan = None
            ready = _startable(self._on_idle(replace(state, cards=idle)), state)
        released = ReleasePlan(replace(state, jobs=()), ready, {}, ())
        if self._carry_out:
            try:
                apply_release(released, self._tell)
            except RefusedPlacesError as error:
                self._refused |= error.jobs  # they would take the same GPU again and again
                raise
        else:
            for command in released.commands:
                self._tell(shlex.join(command))
        return len(ready)

    def run(self, every_s: float) -> None:
        """Repeat rounds until the process is interrupted; a round that fails is told and tried again."""
        while True:
            try:
                self.round()
            except HeShareError as error:
                self._tell(f"{error} It is tried again in {every_s:g} s.")
                self._plan = None
            time.sleep(every_s)

    def _on_idle(self, state: SlurmState) -> ReleasePlan:
        most_mib = max(card.gpu.memory_mib for card in state.cards)
        fitting = {job: work for job, work in state.waiting.items() if memory_mib(work.workload) <= most_mib}
        return plan_release(replace(state, waiting=fitting), self._settings)


def _startable(plan: ReleasePlan, state: SlurmState) -> tuple[JobPlacement, ...]:
    own = {place.job for place in plan.placements}
    unfinished = {job.id for job in state.jobs}
    free = {card.key for card in state.cards if all(job.id in own for job in state.unfinished_on(card))}
    return tuple(
        replace(place, after=())
        for place in plan.placements
        if place.job in state.waiting and place.card.key in free and not unfinished & set(place.after)
    )


def _held_again(number: int) -> str:
    return f"Job {number} has a place and is held: `heshare slurm apply --yes` or its user releases it."
