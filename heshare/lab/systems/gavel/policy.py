"""FIFO with packing and Gandiva as Gavel's simulator defines them: EaCO's baselines.

Gavel: Narayanan et al., OSDI 2020; its code is public (stanford-futuredata/gavel). Gandiva: Xiao et al., OSDI 2018,
here in Gavel's form.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from heshare.lab.systems.shared.co_location import BookedJob, CoLocationHistory, GpuBookings
from heshare.lab.systems.shared.time_slicing import TIME_SLICE
from heshare.policies.policy import Action, Event, Pause, Policy, Start, Traits, View, Wait
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task

# Sums of speeds that differ by rounding only are equal.
_ROUNDING = 1e-9
LOOK_S = 360.0
"""How long a pair of Gandiva runs before it is checked, s; assumed to be a round of Gavel."""


# From Gavel's simulator: jobs run in order of arrival, each on exclusive GPUs while enough are free. Otherwise a job
# may be packed with a running one that has as many GPUs and does not share them. FIFO_packed takes the partner with the
# highest sum of speeds (each over its speed alone) if that is above 1.5. Gandiva takes a random partner, measures the
# pair, and splits it if that sum is below 1.
#
# A pair lasts until one of its jobs completes (Gavel pairs anew at each allocation).
#
# Assumed: GPUs of a job within one node, as under EaCO; pairs share by time slices, as under EaCO; and no rounds: Gavel
# allocates every 1,920 s at most and rotates GPUs every 360 s, here each arrival and completion is an allocation.


class PackingPolicy(Policy):
    """First come, first served on free GPUs within a node; pairs when too few are free.

    Args:
        gpus_per_node: consecutive GPUs that make a node; a larger job has whole nodes (assumed).
    """

    traits = Traits(frequency=False, multi_task=True, heterogeneous=False)

    def __init__(self, gpus_per_node: int) -> None:
        require("gpus_per_node", gpus_per_node, gpus_per_node >= 1, "at least one GPU")
        self._per_node = gpus_per_node

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self.history = CoLocationHistory(predictor)
        k = len(cluster)
        self._nodes = [range(at, min(at + self._per_node, k)) for at in range(0, k, self._per_node)]

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        if len(view.waiting):
            yield from self.start_tasks(view, GpuBookings(view, self.history))

    def start_tasks(self, view: View, bookings: GpuBookings) -> Iterator[Start]:
        for task in view.waiting:
            gpus = self._free_gpus(task, bookings) or self._shared_gpus(task, bookings)
            if gpus is None:
                break
            bookings.book(BookedJob(task, view.remaining[task.id], gpus))
            yield Start(task.id, gpus[0], also=gpus[1:], sharing=TIME_SLICE)

    @abstractmethod
    def partner(self, task: Task, hosts: Sequence[int], bookings: GpuBookings) -> int | None:
        """Return the running job with which a task is packed, one of `hosts` (by number), or None."""

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
class FifoPacked(PackingPolicy):
    """Packs a job with the running one for which the sum of speeds is highest, if that is above a threshold.

    Args:
        threshold: the sum of both speeds, each over its speed alone, above which a pair is made (1.5 in Gavel).
        gpus_per_node: as in `PackingPolicy`.
    """

    name = "fifo-packed"

    def __init__(self, threshold: float = 1.5, gpus_per_node: int = 8) -> None:
        require("threshold", threshold, threshold >= 0, "a sum of speeds of at least 0")
        super().__init__(gpus_per_node)
        self._threshold = threshold

    def partner(self, task: Task, hosts: Sequence[int], bookings: GpuBookings) -> int | None:
        sums = [self.pair_throughput(task, host, bookings) for host in hosts]
        if max(sums) <= self._threshold * (1 + _ROUNDING):
            return None
        return next(host for host, both in zip(hosts, sums, strict=True) if both >= max(sums) * (1 - _ROUNDING))


@register("gandiva", title="Gandiva")
class Gandiva(PackingPolicy):
    """Packs a job with a random one, and splits the pair if its throughput is below that of one of them alone.

    Args:
        least: the sum of both speeds, each over its speed alone, below which a pair is split (1 in Gavel).
        gpus_per_node: as in `PackingPolicy`.
    """

    name = "gandiva"

    def __init__(self, least: float = 1.0, gpus_per_node: int = 8) -> None:
        require("least", least, least >= 0, "a sum of speeds of at least 0")
        super().__init__(gpus_per_node)
        self._least = least

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self._due_s: dict[int, float] = {}
        self._split: set[frozenset[int]] = set()

    def partner(self, task: Task, hosts: Sequence[int], bookings: GpuBookings) -> int | None:
        untried = [host for host in hosts if frozenset((task.id, host)) not in self._split]
        return untried[int(self.rng.integers(len(untried)))] if untried else None

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        if not len(view.waiting) and all(due_s > view.now_s for due_s in self._due_s.values()):
            return
        bookings = GpuBookings(view, self.history)
        for task, due_s in list(self._due_s.items()):
            job = bookings.jobs.get(task)
            if job is not None and due_s > view.now_s:
                continue
            del self._due_s[task]
            members = {member for gpu in job.gpus for member in bookings.on[gpu]} if job else {task}
            pair = [bookings.jobs[member] for member in members if len(members) > 1]
            speeds = [self.history.alone_s(bookings.gpus[one.gpus[0]], one.task.workload) / one.time_s for one in pair]
            # A pair that still loads has speed 0: it is not slow.
            if 0 < sum(speeds) < self._least:
                self._split.add(frozenset(members))
                bookings.remove(task)
                yield Pause(task)
        for start in self.start_tasks(view, bookings):
            yield start
            if len(bookings.on[start.gpu]) > 1:
                self._due_s[start.task] = bookings.now_s + LOOK_S
                yield Wait(self._due_s[start.task])
