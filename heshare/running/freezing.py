"""What of an event loop can be written down between two events, and how it finds together again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from heshare.running.state import Job, Slot

# What looks on from outside is not part of a run, and read-only views are made anew.
_OUTSIDE = ("on_done", "between", "left")


class Freezes:
    """Pickles a loop without what looks on; jobs lose their GPUs on the way (`Job.__getstate__`) and find them again.

    Graphs of gangs and GPUs that point at each other are too deep for pickle.
    """

    jobs: list[Job]
    slots: list[Slot]
    remaining: dict[int, float]
    left: Mapping[int, float]

    def __getstate__(self) -> dict[str, Any]:
        """Everything between two events."""
        running = {id(job): job for slot in self.slots for job in slot.jobs.values()}
        places = {job.task.id: [slot.index for slot in job.slots] for job in running.values()}
        return {**self.__dict__, **dict.fromkeys(_OUTSIDE), "places": places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        places = state.pop("places")
        self.__dict__.update(state)
        self.left = MappingProxyType(self.remaining)
        for task, indices in places.items():
            self.jobs[task].slots = tuple([self.slots[index] for index in indices])


class Arrivals:
    """The tasks that have not arrived yet; those that arrive at the same time do so together.

    Args:
        jobs: of all tasks.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._ordered = sorted(jobs, key=lambda job: (job.task.arrival_s, job.task.id))
        self._next = 0

    def __iter__(self) -> Iterator[list[Job]]:
        return self

    def __next__(self) -> list[Job]:
        """The next to arrive."""
        first = self._next
        if first == len(self._ordered):
            raise StopIteration
        arrival_s = self._ordered[first].task.arrival_s
        while self._next < len(self._ordered) and self._ordered[self._next].task.arrival_s == arrival_s:
            self._next += 1
        return self._ordered[first : self._next]
