"""Jobs that share GPUs by time slices: the history of their times, and the bookings of GPUs while a policy decides.

EaCO keeps a history of sets of jobs. It begins with measurements, and EaCO adds what it observes. Gandiva profiles the
pairs that it tries. Other sets are predicted by the common predictor of all policies (assumed).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from heshare.lab.systems.shared.time_slicing import TIME_SLICE
from heshare.lab.systems.shared.training import measured_sets, measured_slowdown, step
from heshare.lab.systems.shared.training_step import busy_alone
from heshare.policies.policy import View
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


class CoLocationHistory:
    """Times per iteration of sets of workloads on one GPU, and GPU utilisation of workloads alone.

    The history begins with the sets that EaCO measured, on the GPU on which they ran; sets that were never
    observed are predicted.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._times_s: dict[tuple[Gpu, tuple[Workload, ...]], dict[Workload, float]] = {}
        self._slowdowns = {
            (step(entry.workloads[0]).gpu, tuple(sorted(entry.workloads))): measured_slowdown(entry)
            for entry in measured_sets()
        }

    def times_s(self, gpu: Gpu, workloads: Sequence[Workload]) -> list[float]:
        """Return seconds per iteration of each of the workloads while all of them share a GPU at its default clock."""
        ordered = tuple(sorted(workloads))
        times_s = self._times_s.get((gpu, ordered))
        if times_s is None:
            times_s = self._times_s[gpu, ordered] = self._predict(gpu, ordered)
        return [times_s[workload] for workload in workloads]

    def alone_s(self, gpu: Gpu, workload: Workload) -> float:
        return self.times_s(gpu, [workload])[0]

    def throughput(self, gpu: Gpu, workloads: Sequence[Workload]) -> float:
        """Return the sum of the members' speeds, each over its speed alone; 1 is that of one member alone."""
        together_s = self.times_s(gpu, workloads)
        return sum(self.alone_s(gpu, own) / time_s for own, time_s in zip(workloads, together_s, strict=True))

    def record(self, gpu: Gpu, times_s: Sequence[tuple[Workload, float]]) -> None:
        self._times_s[gpu, tuple(sorted(workload for workload, _ in times_s))] = dict(times_s)

    def utilisation(self, gpu: Gpu, workloads: Sequence[Workload]) -> float:
        """Return the GPU utilisation of a set, 0 to 1: the sum of that of its members alone."""
        return min(1.0, sum(busy_alone(gpu, workload) for workload in workloads))

    def _predict(self, gpu: Gpu, ordered: tuple[Workload, ...]) -> dict[Workload, float]:
        slowdown = self._slowdowns.get((gpu.name, ordered))
        if slowdown is not None:
            return {workload: slowdown * self.alone_s(gpu, workload) for workload in ordered}
        sharing = TIME_SLICE if len(ordered) > 1 else "mps"
        residents = tuple(Resident(workload, sharing=sharing) for workload in ordered)
        times_s = self._predictor.co_run([residents], gpu, [None]).time_s[0]
        return {workload: float(time_s) for workload, time_s in zip(ordered, times_s, strict=True)}


class BookedJob(NamedTuple):
    """A job that has GPUs, and the iterations that are left.

    `time_s` are measured seconds per iteration, `inf` while it loads, or was not started yet.
    """

    task: Task
    left: float
    gpus: tuple[int, ...]
    time_s: float = math.inf


class GpuBookings:
    """The jobs on each GPU; a decision books jobs here before its actions are carried out."""

    def __init__(self, view: View, history: CoLocationHistory) -> None:
        self.now_s, self._history = view.now_s, history
        self.gpus = [gpu.gpu for gpu in view.gpus]
        self.on = [list(gpu.running) for gpu in view.gpus]
        self.free_mib = [gpu.free_mib for gpu in view.gpus]
        self.jobs: dict[int, BookedJob] = {}
        for gpu in view.gpus:
            for task, running in gpu.running.items():
                if task not in self.jobs:
                    gpus = running.gpus or (gpu.index,)
                    self.jobs[task] = BookedJob(running.task, running.remaining, gpus, running.time_s)

    def book(self, job: BookedJob) -> None:
        self.jobs[job.task.id] = job
        for gpu in job.gpus:
            self.on[gpu].append(job.task.id)
            self.free_mib[gpu] -= memory_mib(job.task.workload)

    def remove(self, task: int) -> BookedJob:
        job = self.jobs.pop(task)
        for gpu in job.gpus:
            self.on[gpu].remove(task)
            self.free_mib[gpu] += memory_mib(job.task.workload)
        return job

    def workloads(self, gpu: int) -> tuple[Workload, ...]:
        return tuple([self.jobs[task].task.workload for task in self.on[gpu]])

    def predicted_s(self, task: int) -> float:
        """Return the predicted seconds per iteration of a job; a gang runs at the speed of its slowest GPU."""
        return max(
            self._history.times_s(self.gpus[gpu], self.workloads(gpu))[self.on[gpu].index(task)]
            for gpu in self.jobs[task].gpus
        )

    def done_s(self, task: int) -> float:
        return self.now_s + self.jobs[task].left * self.predicted_s(task)
