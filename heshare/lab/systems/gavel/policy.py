"""FIFO with packing and Gandiva as Gavel's simulator defines them: the systems that EaCO is compared with.

Gavel: Narayanan et al., OSDI 2020; its code is public (stanford-futuredata/gavel). Gandiva: Xiao et al., OSDI 2018,
here in Gavel's form.

From Gavel's simulator: jobs run in order of arrival, each on GPUs of its own as long as there are enough. Otherwise a
job may be packed beside a running one that has as many GPUs and does not share them. FIFO_packed takes the partner with
the highest sum of speeds (each over its speed alone) if that is above 1.5. Gandiva takes a random partner, measures the
pair, and splits it if that sum is below 1.

`fifo-packed` keeps a pair until one of its jobs completes. `fifo-packed:gavel` is Gavel's own rule: at each allocation
the oldest jobs get GPUs of their own, and the others are paired anew, in order of arrival.

Assumed: GPUs of a job within one node, as under EaCO; pairs share by time slices, as under EaCO; and no rounds: Gavel
allocates every 1,920 s at most and rotates GPUs every 360 s, here each arrival and completion is an allocation.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from heshare.lab.systems.shared.co_location import BookedJob, CoLocationHistory, GpuBookings
from heshare.lab.systems.shared.time_slicing import TIME_SLICE
from heshare.policies.policy import Action, Event, Pause, Start, Traits, View, Wait
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.running.clock import MOMENT_S
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task

PAIRS = ("kept", "anew")
# Sums of speeds that differ by rounding alone are equal.
_ROUNDING = 1e-9


class PackingPolicy(ABC):
    """First come, first served on free GPUs within a node; pairs when too few are free.

    Args:
        gpus_per_node: consecutive GPUs that make a node; a larger job has whole nodes (assumed).

    Raises:
        InputError: a parameter is out of its range.
    """

    tick_s: float | None = None
    traits = Traits(frequency=False, multi_task=True, heterogeneous=False)

    def __init__(self, gpus_per_node: int) -> None:
        require("gpus_per_node", gpus_per_node, gpus_per_node >= 1, "at least one GPU")
        self._per_node = gpus_per_node

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all jobs and pairs before a new run."""
        self.history = CoLocationHistory(predictor)
        self.rng, k = rng, len(cluster)
        self._nodes = [range(at, min(at + self._per_node, k)) for at in range(0, k, self._per_node)]

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Start the waiting jobs that can run, alone or packed."""
        if len(view.waiting):
            yield from self.start_tasks(view, GpuBookings(view, self.history))

    def start_tasks(self, view: View, bookings: GpuBookings) -> Iterator[Start]:
        """Start jobs from the head of the queue; a job that must wait blocks those behind it."""
        for task in view.waiting:
            gpus = self._free_gpus(task, bookings) or self._shared_gpus(task, bookings)
            if gpus is None:
                break
            bookings.book(BookedJob(task, view.remaining[task.id], gpus))
            yield Start(task.id, gpus[0], also=gpus[1:], sharing=TIME_SLICE)

    @abstractmethod
    def partner(self, task: Task, hosts: Sequence[int], bookings: GpuBookings) -> int | None:
        """Return the running job beside which a task is packed, one of `hosts` (by number), or None."""

    def pair_throughput(self, task: Task, host: int, bookings: GpuBookings) -> float:
        """Return the sum of the speeds of a task and its host, each over its speed alone, on the host's GPUs."""
        workloads = bookings.jobs[host].task.workload, task.workload
        return min(self.history.throughput(bookings.gpus[gpu], workloads) for gpu in bookings.jobs[host].gpus)

    def _free_gpus(self, task: Task, bookings: GpuBookings) -> tuple[int, ...] | None:
        """Return free GPUs of the node with the fewest free ones that suffice; whole nodes for a larger task."""
        need_mib = memory_mib(task.workload)
        free = [
            [gpu for gpu in node if not bookings.on[gpu] and bookings.gpus[gpu].memory_mib >= need_mib]
            for node in self._nodes
        ]
        if task.gpus <= self._per_node:
            fitting = [node for node in free if len(node) >= task.gpus]
            return tuple(min(fitting, key=len)[: task.gpus]) if fitting else None
        whole = [gpu for node in free if len(node) == self._per_node for gpu in node]
        return tuple(whole[: task.gpus]) if len(whole) >= task.gpus else None

    def _shared_gpus(self, task: Task, bookings: GpuBookings) -> tuple[int, ...] | None:
        """Return the GPUs of the running job beside which a task is packed, or None."""
        need_mib = memory_mib(task.workload)
        hosts = [
            host
            for host, job in sorted(bookings.jobs.items())
            if len(job.gpus) == task.gpus
            and all(len(bookings.on[gpu]) == 1 and bookings.free_mib[gpu] >= need_mib for gpu in job.gpus)
        ]
        host = self.partner(task, hosts, bookings) if hosts else None
        return None if host is None else bookings.jobs[host].gpus


@register("fifo-packed", title="FIFO_packed")
@register("fifo-packed:gavel", title="FIFO_packed, Gavel's pairs", preset={"pairs": "anew"})
class FifoPacked(PackingPolicy):
    """Packs a job beside the running one with which the sum of speeds is highest, if that is above a threshold.

    Args:
        threshold: the sum of both speeds, each over its speed alone, above which a pair is made (1.5 in Gavel).
        gpus_per_node: as in `PackingPolicy`.
        pairs: `kept` until one of the two jobs completes, or made `anew` whenever a job arrives or completes, as in
            Gavel. A job that is moved goes on from its last full epoch (Gavel saves it at the end of a round).

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "fifo-packed"

    def __init__(self, threshold: float = 1.5, gpus_per_node: int = 8, pairs: str = "kept") -> None:
        require("threshold", threshold, threshold >= 0, "a sum of speeds of at least 0")
        require("pairs", pairs, pairs in PAIRS, " or ".join(PAIRS))
        super().__init__(gpus_per_node)
        self._threshold, self._anew = threshold, pairs == "anew"

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Start the waiting jobs that can run, alone or packed; with pairs made anew also move running ones."""
        if not self._anew:
            yield from super().decide(event, view)
            return
        present = GpuBookings(view, self.history)
        paired = any(len(on) > 1 for on in present.on)
        # What completes at this moment is an event of its own, and the allocation is made then.
        if not (len(view.waiting) or paired) or any(job.left * job.time_s <= MOMENT_S for job in present.jobs.values()):
            return
        allocated = self._allocate(view, present)
        moved = [
            task
            for task, job in present.jobs.items()
            if task not in allocated or set(allocated[task].gpus) != set(job.gpus)
        ]
        yield from map(Pause, moved)
        for task, job in allocated.items():
            if task in moved or task not in present.jobs:
                yield Start(task, job.gpus[0], also=job.gpus[1:], sharing=TIME_SLICE)

    def _allocate(self, view: View, present: GpuBookings) -> dict[int, BookedJob]:
        """Return the GPUs of all jobs that run from now on: the oldest their own, the others beside them in order."""
        bookings = GpuBookings(view, self.history)
        for task_id in present.jobs:
            bookings.remove(task_id)
        jobs = [*present.jobs.values(), *(BookedJob(task, view.remaining[task.id], ()) for task in view.waiting)]
        jobs.sort(key=lambda job: (job.task.arrival_s, job.task.id))
        needed = np.cumsum([job.task.gpus for job in jobs])
        owners = jobs[: int(np.searchsorted(needed, len(view.gpus), side="right"))]
        for job in owners:
            if job.gpus and not any(bookings.on[gpu] for gpu in job.gpus):
                bookings.book(job)
        for job in owners:
            if job.task.id not in bookings.jobs and (gpus := self._free_gpus(job.task, bookings)):
                bookings.book(job._replace(gpus=gpus))
        # As in Gavel's code, the first job for which too few GPUs are left is passed over and blocks no other.
        full = not owners or needed[len(owners) - 1] == len(view.gpus)
        passed = None if full or len(owners) == len(jobs) else jobs[len(owners)]
        for job in jobs:
            if job is not passed and job.task.id not in bookings.jobs:
                beside = self._shared_gpus(job.task, bookings)
                if beside is None:
                    break
                bookings.book(job._replace(gpus=beside))
        return bookings.jobs

    def partner(self, task: Task, hosts: Sequence[int], bookings: GpuBookings) -> int | None:
        """Return the host with the highest sum of speeds, if that is above the threshold; of equal ones the first."""
        sums = [self.pair_throughput(task, host, bookings) for host in hosts]
        if max(sums) <= self._threshold * (1 + _ROUNDING):
            return None
        return next(host for host, both in zip(hosts, sums, strict=True) if both >= max(sums) * (1 - _ROUNDING))


@register("gandiva", title="Gandiva")
class Gandiva(PackingPolicy):
    """Packs a job beside a random one, and splits the pair if its throughput is below that of one of them alone.

    Args:
        least: the sum of both speeds, each over its speed alone, below which a pair is split (1 in Gavel).
        look_s: how long a pair runs before it is checked, s; assumed to be a round of Gavel, 360 s.
        gpus_per_node: as in `PackingPolicy`.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "gandiva"

    def __init__(self, least: float = 1.0, look_s: float = 360.0, gpus_per_node: int = 8) -> None:
        require("least", least, least >= 0, "a sum of speeds of at least 0")
        require("look_s", look_s, look_s > 0, "a time above 0 s")
        super().__init__(gpus_per_node)
        self._least, self._look_s = least, look_s

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Discard all jobs and trial pairs before a new run."""
        super().reset(cluster, predictor, rng)
        self._due_s: dict[int, float] = {}
        self._split: set[frozenset[int]] = set()

    def partner(self, task: Task, hosts: Sequence[int], bookings: GpuBookings) -> int | None:
        """Return a random host, of those that the task was not split from before."""
        untried = [host for host in hosts if frozenset((task.id, host)) not in self._split]
        return untried[int(self.rng.integers(len(untried)))] if untried else None

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Split the pairs that are due and too slow, then start jobs; every new pair is due later."""
        if not len(view.waiting) and all(due_s > view.now_s for due_s in self._due_s.values()):
            return
        bookings = GpuBookings(view, self.history)
        for task, due_s in list(self._due_s.items()):
            job = bookings.jobs.get(task)
            if job is not None and due_s > view.now_s:
                continue
            del self._due_s[task]
            members = {member for gpu in job.gpus for member in bookings.on[gpu]} if job else {task}
            # A pair that still loads has speed 0: it is not slow.
            if len(members) > 1 and 0 < sum(self._speed(member, bookings) for member in members) < self._least:
                self._split.add(frozenset(members))
                bookings.remove(task)
                yield Pause(task)
        for start in self.start_tasks(view, bookings):
            yield start
            if len(bookings.on[start.gpu]) > 1:
                self._due_s[start.task] = bookings.now_s + self._look_s
                yield Wait(self._due_s[start.task])

    def _speed(self, task: int, bookings: GpuBookings) -> float:
        """Return the measured speed of a job over its speed alone."""
        job = bookings.jobs[task]
        return self.history.alone_s(bookings.gpus[job.gpus[0]], job.task.workload) / job.time_s
