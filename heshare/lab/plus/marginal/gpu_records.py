"""Record of what runs on each GPU, as arrays; at an event, only the GPUs that have changed are read.

Example: a record of two GPUs on which nothing runs.

>>> from heshare.lab.plus.marginal.set_predictions import SetPredictions
>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> cluster = Cluster((toy_gpu(), toy_gpu()))
>>> tables = SetTables(SetPredictions(ToyPredictor(), clocks=2, price_w=10.0), cluster.kinds, most=4)
>>> GpuRecords(cluster, tables, most=4).arrays.free_mib.tolist()
[32768.0, 32768.0]
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from heshare.lab.plus.marginal.drain_costs import GpuArrays, Paces, new_moment
from heshare.lab.plus.marginal.set_tables import SetTables
from heshare.policies.policy import GpuView, Pace, View
from heshare.shared.arrays import IntArray
from heshare.world.cluster import Cluster
from heshare.world.workload import Workload

_BLOCK = 32
"""GPUs of a block: the root of about 1,000."""


class GpuRecords:
    """What runs on each GPU of a run, at which pace.

    The GPUs of a gang run nothing else and run alike, so only the first one is read: to read the others would make the
    run account for each of them.

    Args:
        cluster: the GPUs.
        tables: number the sets.
        most: the largest number of tasks that share a GPU.

    Attributes:
        arrays: the GPUs, as the last event left them.
        progress: the pace of each running task.
        moment: the arrays of an event in progress.
    """

    def __init__(self, cluster: Cluster, tables: SetTables, most: int) -> None:
        gpus, kinds = len(cluster), cluster.kinds
        self._tables, self._most = tables, most
        kind = np.array([kinds.index(gpu) for gpu in cluster.gpus])
        self.arrays = GpuArrays(
            kind=kind,
            set=kind.copy(),
            row=np.zeros((gpus, most), dtype=np.int64),
            free_mib=np.array([gpu.memory_mib for gpu in cluster.gpus]),
            sm_mhz=np.full(gpus, -1),
            gang=np.zeros(gpus, dtype=np.bool_),
            held=np.full(gpus, -1),
            **_blocks(kind),
        )
        self.progress = Paces(*(np.ones(gpus * most) for _ in Paces._fields))
        self.moment = new_moment(gpus, most, len(self.arrays.members))
        self._seen: list[GpuView | None] = [None] * gpus
        self._tasks: list[tuple[int, ...]] = [()] * gpus
        self._rows: dict[int, int] = {}
        self._unused = list(range(gpus * most))
        self._started: dict[int, Workload] = {}
        self._gangs: dict[int, tuple[int, ...]] = {}
        self._read = list(range(gpus))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without views, which refer to the run; all GPUs are read again."""
        return {**self.__dict__, "_seen": [None] * len(self._seen)}

    def start(self, task: int, workload: Workload, gpus: tuple[int, ...]) -> None:
        """Note which workload a task that starts runs, and the GPUs of a gang."""
        self._started[task] = workload
        # It may have ended before this GPU is read again.
        self._tasks[gpus[0]] = (*self._tasks[gpus[0]], task)
        if len(gpus) > 1:
            self._gangs[task] = gpus
            others = set(gpus[1:])
            self._read = [gpu for gpu in self._read if gpu not in others]

    def update(self, view: View) -> None:
        """Read the GPUs that have changed."""
        views, seen = view.gpus, self._seen
        if len(self._read) == len(seen):
            changed = [gpu for gpu, before in zip(views, seen, strict=True) if gpu is not before]
        else:
            present = [views[gpu] for gpu in self._read]
            changed = [gpu for gpu in present if gpu is not seen[gpu.index]]
        for gpu in changed:
            ended = self._drop(gpu)
            self._enter(gpu, view.now_s)
            for index in ended:
                self._tasks[index] = ()
                self._enter(views[index], view.now_s)

    def _drop(self, gpu: GpuView) -> list[int]:
        """Forget the tasks that a GPU no longer runs; return the other GPUs of gangs among them."""
        others: list[int] = []
        for task in self._tasks[gpu.index]:
            if task not in gpu.running:
                if task in self._rows:
                    self._unused.append(self._rows.pop(task))
                self._started.pop(task, None)
                others += self._gangs.pop(task, ())[1:]
        if others:
            self._read = sorted([*self._read, *others])
        return others

    def _enter(self, gpu: GpuView, now_s: float) -> None:
        """Record the present tasks of a GPU, and of the others of its gang."""
        index, arrays, running = gpu.index, self.arrays, gpu.running
        self._seen[index] = gpu
        members = sorted([(self._workload(gpu, task), task) for task in running])[: self._most]
        arrays.set[index] = self._tables.number(int(arrays.kind[index]), tuple([workload for workload, _ in members]))
        arrays.free_mib[index] = gpu.free_mib
        arrays.sm_mhz[index] = -1 if gpu.requested_mhz is None else gpu.requested_mhz
        arrays.gang[index] = False
        self._tasks[index] = tuple([task for _, task in members])
        for place, task in enumerate(self._tasks[index]):
            if task not in self._rows:
                self._rows[task] = self._unused.pop()
            row = arrays.row[index, place] = self._rows[task]
            pace = _pace(gpu, task, now_s)
            for column, value in zip(self.progress, pace, strict=True):
                column[row] = value
            if task in self._gangs:
                self._copy(index, self._gangs[task])

    def _copy(self, index: int, gang: Sequence[int]) -> None:
        """Record the state of one GPU of a gang for all of them."""
        self.arrays.gang[index] = True
        others = np.array(gang)
        for column in (self.arrays.set, self.arrays.row, self.arrays.free_mib, self.arrays.sm_mhz, self.arrays.gang):
            column[others] = column[index]

    def _workload(self, gpu: GpuView, task: int) -> Workload:
        """Return what a task runs; one that was started before the last reset runs its own workload."""
        found = self._started.get(task)
        return gpu.running[task].task.workload if found is None else found


def _blocks(kind: IntArray) -> dict[str, IntArray]:
    """Return the block of each GPU and the GPUs of each block, as `GpuArrays` describes them."""
    parts = []
    for one in range(kind.max() + 1):
        members = np.flatnonzero(kind == one)
        parts += [members[begin : begin + _BLOCK] for begin in range(0, len(members), _BLOCK)]
    block, members = np.zeros(len(kind), dtype=np.int64), np.full((len(parts), _BLOCK), -1)
    for number, part in enumerate(parts):
        block[part] = number
        members[number, : len(part)] = part
    return {"block": block, "members": members}


def _pace(gpu: GpuView, task: int, now_s: float) -> Pace:
    pace_of: Callable[[int], Pace] | None = getattr(gpu.running, "pace", None)
    if pace_of is not None:
        return pace_of(task)
    seen = gpu.running[task]
    return Pace(seen.remaining, 0.0, now_s, seen.time_s)
