"""A GPU of another host as the executor sees it: what was told of it last, and what was ordered since."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from heshare.devices.device import Progress, Reading
from heshare.devices.failing import Failed
from heshare.devices.remote.messages import Card, Order, Told
from heshare.devices.residents import Attempt
from heshare.errors import DeviceError
from heshare.world.workload import Resident, Workload

if TYPE_CHECKING:
    from heshare.devices.remote.host import RemoteHost


class RemoteDevice:
    """A GPU of another host behind the `Device` protocol, as `heshare.devices.executing.JobDevice` is one of this.

    Args:
        host: its host.
        index: which of the host's, from 0.
        card: what it is.

    Attributes:
        attempts: what is known of attempts that are over, by task, until somebody takes it.
        idle_j: energy while nothing ran, J.
        latest: its latest reading.
        notes: what the operator should know, in order.
    """

    provenance = "measured"

    def __init__(self, host: RemoteHost, index: int, card: Card) -> None:
        self.gpu, self.uuid, self.sharing = card.gpu, card.uuid, card.sharing
        self.host = host.name
        self.attempts: dict[int, Attempt] = {}
        self.idle_j = 0.0
        self.latest = Reading(host.now_s(), None, 0.0, 0.0, 0.0)
        self.notes: list[str] = []
        self._host, self._index = host, index
        self._on: dict[int, tuple[Progress, Attempt]] = {}
        self._completed: list[int] = []
        self._failed: list[Failed] = []
        self._lost = ""
        self._next_s = math.inf
        self._heard, self._wake = os.pipe()
        for end in (self._heard, self._wake):
            os.set_blocking(end, False)

    @property
    def meter(self) -> RemoteDevice:
        """What the card told: itself."""
        return self

    @property
    def lost(self) -> str:
        """Why the GPU can no longer be used; empty as long as it can."""
        return self._host.lost or self._lost

    @property
    def running(self) -> int:
        """How many jobs are on it."""
        return len(self._on)

    def look(self, *, again: bool = False) -> None:
        """Ask its host, unless it was asked a moment ago (or `again`)."""
        if again:
            self._host.ask()
        else:
            self._host.bring()

    def set_clock(self, sm_mhz: int | None) -> None:
        """Ask for a clock, with the next visit.

        Raises:
            InputError: the clock is not on the grid.
        """
        if sm_mhz is not None:
            self.gpu.check_clock(sm_mhz)
        self._host.order(Order(self._index, "set_clock", (sm_mhz,)))

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a job, with the next visit; what goes wrong is a failure of the job, told later."""
        number = self._host.attempts[task_id] = self._host.attempts.get(task_id, 0) + 1
        begun = Progress(task_id, Resident(workload, mps_pct), 0.0, math.inf)
        self._on[task_id] = (begun, _unheard(number, self.latest))
        self._host.order(Order(self._index, "start", (task_id, workload, mps_pct, iterations), number))

    def stop(self, task_id: int) -> float:
        """End a job; returns the iterations that it did, which is none for a command.

        Raises:
            DeviceError: no such job runs here.
        """
        if task_id not in self._on:
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): no job {task_id} on it. Stop only what runs.")
        self._host.order(Order(self._index, "stop", (task_id,)))
        done = self._host.ask()
        self._leave(task_id)
        return 0.0 if done is None else float(done)

    def stop_all(self) -> None:
        """End every job, all at once."""
        self._host.order(Order(self._index, "stop_all"))
        self._host.ask()
        for task in list(self._on):
            self._leave(task)

    def read(self) -> Reading:
        """What it did when it was last asked, which is now if there were orders."""
        self._host.bring()
        reading = replace(
            self.latest, time_s=self._host.now_s(), residents={task: one[0] for task, one in self._on.items()}
        )
        # Its power is unknown from here on; no figure is made up for it.
        return replace(reading, power_w=0.0) if self.lost else reading

    def next_event_s(self) -> float:
        """When to look again, s: at once if there is something to tell, else about once a second while jobs run."""
        now_s = self._host.now_s()
        if self._completed or self._failed or (self.lost and self._on):
            return now_s
        if self.lost:
            return math.inf
        # The host looks by itself as often as it must, and gives notice of what comes of it.
        return now_s + self._host.look_s if self._on else max(self._next_s, now_s)

    def advance(self, to_s: float) -> list[int]:
        """Hear what has happened by now; returns the jobs that completed.

        Where that was heard a moment ago, and nothing new was given notice of, nobody is asked: so the orders for a
        batch stay together.
        """
        woken = False
        with contextlib.suppress(BlockingIOError):
            woken = bool(os.read(self._heard, 4096))
        if woken or not self._host.fresh:
            self._host.ask(by=self)
        completed, self._completed = self._completed, []
        for task in completed:
            self._on.pop(task, None)
        if self.lost:
            told = {one.task_id for one in self._failed}
            self._failed += [Failed(task, "lost", self.lost, charged=False) for task in self._on if task not in told]
        return completed

    def take_failed(self) -> list[Failed]:
        """The attempts that failed since this was last asked."""
        failed, self._failed = self._failed, []
        for one in failed:
            self._leave(one.task_id)
        return failed

    def descriptors(self) -> list[int]:
        """What becomes readable when there is something new to hear."""
        return [self._heard]

    def standing(self) -> dict[int, Attempt]:
        """What is known so far of the attempts on it, by task."""
        return {task: attempt for task, (_, attempt) in self._on.items()}

    def shares_j(self) -> dict[int, float]:
        """Energy so far of each job on it, and of those that left it unheard, J."""
        on = {task: attempt.energy_j for task, (_, attempt) in self._on.items()}
        return on | {task: one.energy_j for task, one in self.attempts.items()}

    def wake(self) -> None:
        """Let whoever waits look at it."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b".")

    def hear(self, told: Told) -> bool:
        """Take in what the host says of it; whether there is something that the run must be told."""
        self.latest, self.idle_j, self.sharing, self._next_s = told.reading, told.idle_j, told.sharing, told.next_s
        self.notes += told.notes
        self.attempts |= {task: self._here(one) for task, one in told.attempts.items()}
        for task, (progress, _) in self._on.items():
            if task in told.standing:
                self._on[task] = (told.reading.residents.get(task, progress), self._here(told.standing[task]))
        self._completed += told.completed
        self._failed += told.failed
        news = bool(told.completed or told.failed) or told.lost != self._lost
        self._lost = told.lost
        return news

    def close(self) -> None:
        """Let go of what it holds here."""
        for end in (self._heard, self._wake):
            os.close(end)

    def _leave(self, task_id: int) -> None:
        """A job is no longer on it; if its host never said how it ended, what was last known of it is kept."""
        left = self._on.pop(task_id, None)
        if left is not None:
            self.attempts.setdefault(task_id, left[1])

    def _here(self, attempt: Attempt) -> Attempt:
        return replace(attempt, log=f"{self.host}:{attempt.log}") if attempt.log else attempt


def _unheard(number: int, latest: Reading) -> Attempt:
    """An attempt that was asked for, and of which nothing has been heard yet."""
    return Attempt(number, math.nan, math.nan, 0.0, None, "", latest.sm_mhz, (), latest.energy_j)
