"""Queues of the event loop: scheduled events, tasks that have not arrived yet, tasks that wait for a GPU."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, overload

from heshare.running.state import TaskRun
from heshare.world.task import Task


class EventQueue:
    """Scheduled calls in the total order (time, priority, sequence): of equal ones, the one scheduled first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """The time of the next event, s."""
        return self._heap[0][0]

    def schedule(self, time_s: float, priority: int, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule `call(now_s, *arguments)` at `time_s`."""
        self._sequence += 1
        heappush(self._heap, (time_s, priority, self._sequence, call, arguments))

    def pop(self) -> tuple[float, Callable[..., None], tuple[Any, ...]]:
        """Remove the next event and return its time, call and arguments."""
        time_s, _, _, call, arguments = heappop(self._heap)
        return time_s, call, arguments


class ArrivalQueue:
    """Iterator over the tasks in order of arrival; those that arrive at the same time come together.

    Args:
        tasks: all tasks.
    """

    def __init__(self, tasks: Sequence[TaskRun]) -> None:
        self._ordered = sorted(tasks, key=lambda task: (task.spec.arrival_s, task.id))
        self._next = 0

    def __iter__(self) -> Iterator[list[TaskRun]]:
        return self

    def __next__(self) -> list[TaskRun]:
        """Return the next tasks to arrive."""
        first = self._next
        if first == len(self._ordered):
            raise StopIteration
        arrival_s = self._ordered[first].spec.arrival_s
        while self._next < len(self._ordered) and self._ordered[self._next].spec.arrival_s == arrival_s:
            self._next += 1
        return self._ordered[first : self._next]


class WaitingTasks(Sequence[Task]):
    """Tasks that have arrived and do not run, by (arrival, id); `add` and `remove` take O(log n) and a memory move."""

    def __init__(self) -> None:
        self._keys: list[tuple[float, int]] = []
        self._tasks: list[Task] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        return self._tasks[index]

    def add(self, task: Task) -> None:
        """Add a task."""
        key = (task.arrival_s, task.id)
        place = bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self._tasks.insert(place, task)

    def remove(self, task: Task) -> None:
        """Remove a task that waits."""
        place = bisect_left(self._keys, (task.arrival_s, task.id))
        del self._keys[place], self._tasks[place]
