"""Order in which waiting tasks are considered: the shortest first, and before them gangs that have waited too long.

Example: 1 s an iteration on the toy GPU, so the task with fewer iterations is first.

>>> from heshare.policies.policy import EventKind
>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> cluster, tasks = Cluster((toy_gpu(),)), [Task(i, Workload("resnet18", 4), n) for i, n in enumerate((5.0, 2.0))]
>>> predictions = SetPredictions(ToyPredictor(), clocks=2, price_w=10.0)
>>> order = WaitingOrder(cluster, predictions, SetTables(predictions, cluster.kinds, most=1), largest_size=0)
>>> order.update(Event(EventKind.ARRIVAL, 0.0, (0, 1)), View(0.0, tasks, {0: 5.0, 1: 2.0}, [], 0))
True
>>> [order.task(row).id for row in order.first(10, now_s=0.0)]
[1, 0]
"""

from bisect import bisect_left
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from heshare.lab.plus.marginal.set_predictions import SetPredictions
from heshare.lab.plus.marginal.set_tables import SetTables
from heshare.lab.plus.marginal.task_placement import WaitingArrays
from heshare.policies.policy import Event, EventKind, View
from heshare.shared.arrays import IntArray
from heshare.shared.errors import InputError
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

_Entry = tuple[float, float, int, int]


class WaitingOrder:
    """The waiting tasks, by their time alone on their fastest type of GPU and their id.

    A gang that has waited as long as it would run alone has aged: it goes before all that have not, by arrival.

    Args:
        cluster: the GPUs.
        predictions: predict the time alone.
        tables: number the workloads.
        largest_size: the largest inference batch size that may be chosen; 0 for each task's own.

    Attributes:
        arrays: the tasks, for compiled code.
    """

    def __init__(self, cluster: Cluster, predictions: SetPredictions, tables: SetTables, largest_size: int) -> None:
        # `Cluster.kinds` is computed at each access.
        self._kinds, self._predictions, self._tables = cluster.kinds, predictions, tables
        self._counts = {kind: cluster.gpus.count(kind) for kind in self._kinds}
        self._alone_s: dict[Workload, float] = {}
        self._largest_size = largest_size
        self.arrays = _empty(256, max(1, largest_size.bit_length()))
        self.clear()

    def clear(self) -> None:
        """Remove all tasks."""
        self._entries: list[_Entry] = []
        self._rows: list[int] = []
        self._of: dict[int, _Entry] = {}
        self._tasks: dict[int, Task] = {}
        self._unused = list(range(len(self.arrays.gpus)))
        self._ages: list[tuple[float, int]] = []

    def task(self, row: int) -> Task:
        """Return the task of a row."""
        return self._tasks[row]

    def size(self, row: int, place: int) -> Workload:
        """Return the workload of a row at one of its inference batch sizes."""
        return sized(self._tasks[row].workload, self._largest_size)[place]

    def update(self, event: Event, view: View) -> bool:
        """Add the tasks that have arrived; return False if all were entered anew, since others wait than expected."""
        if event.kind is EventKind.ARRIVAL:
            ids = set(event.tasks)
            # They are the last of the waiting tasks, unless they are tried again.
            at = len(view.waiting)
            while ids and at:
                at -= 1
                task = view.waiting[at]
                if task.id in ids:
                    ids.remove(task.id)
                    self._add(task, view)
        if len(view.waiting) == len(self._entries):
            return True
        self.clear()
        for task in view.waiting:
            self._add(task, view)
        return False

    def first(self, count: int, now_s: float) -> IntArray:
        """Return the rows of the first tasks, at most `count`."""
        while self._ages and self._ages[0][0] <= now_s:
            _, task_id = heappop(self._ages)
            if task_id in self._of:
                row = self._of[task_id][-1]
                self._remove_entry(task_id)
                self._insert((-np.inf, self._tasks[row].arrival_s, task_id, row))
                self.arrays.aged[row] = True
        return np.array(self._rows[:count], dtype=np.int64)

    def remove(self, task_id: int) -> None:
        """Remove a task that starts."""
        row = self._remove_entry(task_id)
        del self._tasks[row]
        self._unused.append(row)

    def _add(self, task: Task, view: View) -> None:
        if task.id in self._of:
            self.remove(task.id)
        remaining, workload = view.remaining[task.id], task.workload
        if workload not in self._alone_s:
            for kind in self._kinds:
                self._predictions.predict(kind, [(workload,)])
            self._alone_s[workload] = min(self._predictions.alone_s(kind, workload) for kind in self._kinds)
        alone_s = remaining * self._alone_s[workload]
        row = self._row()
        self._tasks[row] = task
        arrays = self.arrays
        arrays.workload[row], arrays.gpus[row], arrays.aged[row] = -1, task.gpus, False
        for place, variant in enumerate(sized(workload, self._largest_size if task.gpus == 1 else 0)):
            arrays.workload[row, place] = self._tables.workload(variant)
            arrays.iterations[row, place] = remaining * workload.batch_size / variant.batch_size
            arrays.need_mib[row, place] = memory_mib(variant)
        if task.gpus > 1:
            self._check_gang(task)
            heappush(self._ages, (task.arrival_s + alone_s, task.id))
        self._insert((alone_s, task.id, task.id, row))

    def _check_gang(self, task: Task) -> None:
        """Raise `InputError` for a gang that no type of GPU can hold."""
        need_mib = memory_mib(task.workload)
        counts = {kind.name: count for kind, count in self._counts.items() if kind.memory_mib >= need_mib}
        if max(counts.values(), default=0) < task.gpus:
            raise InputError(
                f"task {task.id}, {task.workload}, for {task.gpus} GPUs of {need_mib:.0f} MiB each",
                "a task that GPUs of one type can hold: "
                + (", ".join(f"{n} {name}" for name, n in counts.items()) or "0"),
                "Leave the task out, or take a larger cluster.",
                column="gpus",
            )

    def _row(self) -> int:
        """Return a row that is not in use."""
        if not self._unused:
            old = self.arrays
            rows, sizes = old.workload.shape
            self.arrays = _empty(2 * rows, sizes)
            for new, array in zip(self.arrays, old, strict=True):
                new[:rows] = array
            self._unused = list(range(rows, 2 * rows))
        return self._unused.pop()

    def _insert(self, entry: _Entry) -> None:
        self._of[entry[2]] = entry
        place = bisect_left(self._entries, entry)
        self._entries.insert(place, entry)
        self._rows.insert(place, entry[-1])

    def _remove_entry(self, task_id: int) -> int:
        entry = self._of.pop(task_id)
        place = bisect_left(self._entries, entry)
        del self._entries[place], self._rows[place]
        return entry[-1]


def sized(workload: Workload, largest: int) -> list[Workload]:
    """Return a workload at the inference batch sizes that may be chosen, its own first."""
    found = [workload]
    while 2 * found[-1].batch_size <= largest:
        found.append(replace(workload, batch_size=2 * found[-1].batch_size))
    return found


def _empty(rows: int, sizes: int) -> WaitingArrays:
    return WaitingArrays(
        workload=np.full((rows, sizes), -1),
        iterations=np.zeros((rows, sizes)),
        need_mib=np.zeros((rows, sizes)),
        gpus=np.ones(rows, dtype=np.int64),
        aged=np.zeros(rows, dtype=np.bool_),
    )
