"""Tasks of a run that are read one by one, so that a run of any length needs memory for those in the cluster only."""

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

from heshare.policies.policy import Policy
from heshare.running.clock import MOMENT_S
from heshare.running.run import check_gangs, check_memory
from heshare.running.state import TaskRun
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


class TaskStream:
    """Queue of the tasks that are still to arrive, in groups that arrive at one moment; one task is read ahead.

    Its pickle holds a count and a checksum of what was read, and not the tasks that follow: `continue_with` gives them.

    Args:
        tasks: the tasks by arrival, task i with id i, already checked.

    Attributes:
        live: the tasks of the run that were read and are not over, by id; the event loop keeps it.
        read: how many tasks were read.

    Raises:
        InputError: there is no task.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = iter(tasks)
        self.live: dict[int, TaskRun] = {}
        self.read, self._checksum = 0, 0
        self._next: Task | None = None
        self._advance()
        if self._next is None:
            raise InputError("no task", "at least one", "Give a stream with a task.", column="tasks")

    def __bool__(self) -> bool:
        return self._next is not None

    def popleft(self) -> list[TaskRun]:
        """Return the tasks that arrive next, at one moment."""
        assert self._next is not None
        group, end_s = [], self._next.arrival_s + MOMENT_S
        while self._next is not None and self._next.arrival_s <= end_s:
            group.append(TaskRun(self._next))
            self._advance()
        return group

    def continue_with(self, tasks: Iterable[Task]) -> None:
        """Go on with the same tasks, read from their beginning; those that were read before are skipped.

        Raises:
            InputError: they begin otherwise than the tasks that were read before.
        """
        other = TaskStream(tasks)
        while other and other.read < self.read:
            other._advance()
        if (other.read, other._checksum) != (self.read, self._checksum):
            raise InputError(
                f"other tasks among the first {self.read} than when the checkpoint was written",
                "a stream that gives the same tasks each time",
                "Give the same file, or a generator with the same seed.",
                column="tasks",
            )
        self._tasks = other._tasks

    def _advance(self) -> None:
        self._next = task = next(self._tasks, None)
        if task is not None:
            self.read += 1
            self._checksum = crc32(repr(task).encode(), self._checksum)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tasks": iter(())}


def checked_stream(tasks: Iterable[Task], cluster: Cluster, policy: Policy) -> Iterator[Task]:
    """Yield tasks as they are read, each checked as `begin` checks the tasks of a list.

    Raises:
        InputError: an id out of sequence, an arrival before that of the task above, or as `run`.
    """
    fitting_gpus: dict[Workload, int] = {}
    last_s = 0.0
    for index, task in enumerate(tasks):
        if not isinstance(task, Task) or task.id != index or task.arrival_s < last_s:
            found = f"{task!r} after {index} tasks, the last at {last_s:g} s"
            order = "tasks by arrival, with ids 0, 1, 2, ... in this order"
            raise InputError(found, order, "Sort the stream, or give the tasks as a list.", column="tasks")
        last_s = task.arrival_s
        check_gangs((task,), policy)
        check_memory((task,), cluster, fitting_gpus)
        yield task
