"""What jobs are planned as: `like` at first, and what was measured of the same command from then on.

The workload is that of Table IV whose power is nearest to the measured one, its iterations are those that take the
measured time. So times, power, energy and limits on power that are predicted from it are the measured ones.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from heshare.lab.tenants.measured_work import MeasuredWork, nearest_workload, time_ratio
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.jobs.entries import End, Learned
from heshare.ops.jobs.learned_commands import command_key
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

_LARGER = 1.1
"""Most memory of the workload that a command is planned as, over that of its `like`."""
_NEWS = 0.1
"""A time that differs by less than this part from what is known is no news."""


class Learning:
    """What is known of the commands of a run, and the tasks as they are planned by it.

    `tasks` are those of the jobs as the file has them; `known` is what was learned before, by command.

    Attributes:
        tasks: as they are planned now.
        known: what is known now, of commands of this run alone.
    """

    def __init__(
        self, tasks: Sequence[Task], jobs: Mapping[int, AssignedJob], cluster: Cluster, known: Mapping[str, Learned]
    ) -> None:
        self._memories_mib = sorted((gpu.memory_mib for gpu in cluster.gpus), reverse=True)
        self._jobs = jobs
        keys = {id(job.spec): command_key(job.spec) for job in jobs.values() if job.spec.command}
        self._keys = {task: keys[id(job.spec)] for task, job in jobs.items() if job.spec.command}
        self._of_key: defaultdict[str, list[int]] = defaultdict(list)
        for task_id, key in self._keys.items():
            self._of_key[key].append(task_id)
        self._measured: dict[str, tuple[float, int]] = {}
        self._revised: list[Task] = []
        self._news: set[int] = set()
        self.known = {key: known[key] for key in self._of_key if key in known}
        self.tasks = [self._planned(task) for task in tasks]

    def source(self, task_id: int) -> str:
        """Return where the prediction of a task comes from."""
        learned = self.known.get(self._keys.get(task_id, ""))
        if learned is not None and self.tasks[task_id].workload == _workload(learned):
            return f"measured: {learned.job}, {learned.duration_s:.3g} s at {learned.mps_pct} % on {learned.gpu}"
        job = self._jobs[task_id]
        return f"like {job.spec.workload}" if job.spec.command else "its workload"

    def add(self, task: Task, end: End, measured: MeasuredWork, gpu: Gpu) -> Learned | None:
        """Add an attempt that has ended, with its task as it was started; return what is news about its command.

        One that did not complete shows that the command takes at least so long.
        """
        key = self._keys.get(task.id)
        if key is None or not measured.iterations > 0.0:
            return None
        known, spec = self.known.get(key), self._jobs[task.id].spec
        planned, sm_mhz = Resident(task.workload, end.mps_pct), math.nan if end.sm_mhz is None else end.sm_mhz
        workload = nearest_workload(
            gpu, planned, sm_mhz, measured.power_ratio,
            kept=_workload(known) if known else task.workload,
            need_mib=spec.memory_mib, most_mib=_LARGER * memory_mib(spec.workload),
        )  # fmt: skip
        factor = time_ratio(gpu, planned, sm_mhz, workload)
        same = known is not None and _workload(known) == workload
        before = known.iterations if known and same else factor * task.iterations
        iterations = factor * measured.iterations
        if not math.isfinite(iterations):
            return None
        if end.completed:
            total, count = self._measured.get(key, (before, 1)) if same else (0.0, 0)
            self._measured[key] = total + iterations, count + 1
            iterations = (total + iterations) / (count + 1)
        elif iterations < before:
            iterations = before
        else:
            self._measured[key] = 0.0, 0  # no time of a whole attempt
        if abs(iterations - before) <= _NEWS * before and (same or (not end.completed and workload == task.workload)):
            return None
        began_s = end.start_s if end.began_s is None else end.began_s
        learned = Learned(
            key, end.job, workload.model, workload.batch_size, workload.precision, iterations,
            end.end_s - began_s, gpu.name, end.mps_pct,
        )  # fmt: skip
        self.known[key] = learned
        for task_id in self._of_key[key]:
            self.tasks[task_id] = self._planned(self.tasks[task_id])
            self._revised.append(self.tasks[task_id])
        return learned

    def take_revised(self) -> list[Task]:
        """Return the tasks that are planned otherwise since the last call, those that run or are over among them."""
        revised, self._revised = self._revised, []
        self._news.update(task.id for task in revised)
        return revised

    def take_news(self, waiting: Sequence[Task]) -> bool:
        """Return whether one of the waiting tasks is planned otherwise since the last call."""
        news, self._news = self._news, set()
        return bool(news) and any(task.id in news for task in waiting)

    def _planned(self, task: Task) -> Task:
        learned = self.known.get(self._keys.get(task.id, ""))
        if learned is None:
            return task
        workload, fits = _workload(learned), len(self._memories_mib) >= task.gpus
        if not fits or memory_mib(workload) > self._memories_mib[task.gpus - 1]:
            return task
        return replace(task, workload=workload, iterations=learned.iterations)


def _workload(learned: Learned) -> Workload:
    return Workload(learned.model, learned.batch_size, learned.precision)
