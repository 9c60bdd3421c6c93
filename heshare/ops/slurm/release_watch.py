"""Watch of Slurm's queue: jobs are planned as they arrive, and released as GPUs become free."""

import shlex
import time
from collections.abc import Callable
from dataclasses import replace

from heshare.ops.slurm.job_placement import JobPlacement
from heshare.ops.slurm.release_plan import (
    PlanSettings,
    ReleasePlan,
    SlurmState,
    apply_release,
    plan_release,
    read_state,
)
from heshare.shared.errors import HeShareError
from heshare.world.catalogue import memory_mib


class ReleaseWatch:
    """Releases held jobs round by round; what waits for a GPU stays held, so that it can still be planned again.

    A new plan is made when jobs have arrived and a GPU is free, of all jobs that are held (a rolling horizon, as
    `policies/plan_release.py` has it); where that leaves every free GPU without a job, they are planned on the free
    GPUs alone. Nothing is kept between rounds but the plan: another watch can continue.

    Args:
        settings: how jobs are planned.
        tell: is called with each line for the operator.
        carry_out: whether jobs are released; else only the commands are told.
    """

    def __init__(self, settings: PlanSettings, tell: Callable[[str], None], *, carry_out: bool) -> None:
        self._settings, self._tell, self._carry_out = settings, tell, carry_out
        self._plan: ReleasePlan | None = None
        self._told: set[str] = set()

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
        state = replace(state, unreleased=())
        idle = tuple(card for card in state.cards if not state.unfinished_on(card))
        known = {place.job for place in self._plan.placements} if self._plan else set()
        if state.waiting and idle and (not set(state.waiting) <= known or self._lost_a_card(state)):
            self._plan = plan_release(state, self._settings)
        ready = () if self._plan is None else _startable(self._plan, state)
        if state.waiting and idle and not ready:
            # The plan has these jobs wait for busy GPUs: a GPU that is free takes some of them.
            self._plan = None
            ready = _startable(self._on_idle(replace(state, cards=idle)), state)
        released = ReleasePlan(replace(state, jobs=()), ready, {}, ())
        if self._carry_out:
            apply_release(released, self._tell)
        else:
            for command in released.commands:
                self._tell(shlex.join(command))
        return len(ready)

    def run(self, every_s: float) -> None:
        """Repeat rounds until the process is interrupted; a round that fails is told and tried again.

        Args:
            every_s: time between rounds, s.
        """
        while True:
            try:
                self.round()
            except HeShareError as error:
                self._tell(f"{error} It is tried again in {every_s:g} s.")
                self._plan = None
            time.sleep(every_s)

    def _lost_a_card(self, state: SlurmState) -> bool:
        return self._plan is not None and self._plan.state.cards != state.cards

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
