"""FIFO with packing, and Gandiva, as Gavel's simulator defines them: the systems that EaCO is held against.

Both run jobs in order of arrival, each on GPUs of its own within one node as long as there are any. Then a job may be
packed onto the GPUs of a running one that has as many and shares them with nobody. FIFO_packed takes the partner with
the highest sum of speeds (each over its speed alone) if that is above a threshold. Gandiva takes one at random, looks
at what the pair does, and parts it again if that sum is below one. Here pairs share by time slices, as under EaCO.
Gavel hands GPUs round among jobs in rounds; here a job that finds no place waits (assumed).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from heshare.policies.allocation.books import Books
from heshare.policies.allocation.history import TIME_SLICE, History
from heshare.policies.description import check
from heshare.policies.policy import Action, Event, Pause, Start, Traits, View, Wait
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task


class Packs(ABC):
    """First come, first served on GPUs within a node; pairs where there are none.

    Args:
        gpus_per_node: consecutive GPUs that make a node; a larger job has whole nodes (assumed).

    Raises:
        InputError: a parameter is out of its range.
    """

    tick_s: float | None = None
    traits = Traits(frequency=False, multi_task=True, heterogeneous=False)

    def __init__(self, gpus_per_node: int) -> None:
        check("gpus_per_node", gpus_per_node, gpus_per_node >= 1, "at least one GPU")
        self._per_node = gpus_per_node

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything."""
        self.history = History(predictor)
        self.rng, k = rng, len(cluster)
        self._nodes = [range(at, min(at + self._per_node, k)) for at in range(0, k, self._per_node)]

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Start from the head of the queue; nobody overtakes a job that must wait."""
        if not len(view.waiting) and not self.looks(view.now_s):
            return
        books = Books(view)
        yield from self.judge(books)
        for task in view.waiting:
            gpus = self._own(task, books)
            if gpus is None:
                gpus = self._beside(task, view.remaining[task.id], books)
            if gpus is None:
                break
            beside = {each for gpu in gpus for each in books.on[gpu]}
            books.put(task, view.remaining[task.id], gpus)
            yield Start(task.id, gpus[0], also=gpus[1:], sharing=TIME_SLICE)
            if beside:
                yield from self.packed(task, gpus, books)

    @abstractmethod
    def partner(self, task: Task, hosts: Sequence[int], books: Books) -> int | None:
        """The running job beside which a task is to be packed, of those that can host it, in order of their numbers."""

    def looks(self, now_s: float) -> bool:
        """Whether there are pairs to look at; by default none."""
        return False

    def judge(self, books: Books) -> Iterator[Action]:
        """Part pairs that were found wanting; none by default."""
        yield from ()

    def packed(self, task: Task, gpus: tuple[int, ...], books: Books) -> Iterator[Action]:
        """Note a new pair; by default nothing comes of it."""
        yield from ()

    def pair(self, task: Task, host: int, books: Books) -> float:
        """Sum of the speeds of a task and its host, each over its speed alone, on the host's GPUs."""
        workloads = books.tasks[host].workload, task.workload
        return min(self.history.throughput(books.gpus[gpu], workloads) for gpu in books.where[host])

    def _own(self, task: Task, books: Books) -> tuple[int, ...] | None:
        """Free GPUs of the node that has the fewest of those that have enough; whole nodes for a larger task."""
        need_mib = memory_mib(task.workload)
        free = [
            [gpu for gpu in node if not books.on[gpu] and books.gpus[gpu].memory_mib >= need_mib]
            for node in self._nodes
        ]
        if task.gpus <= self._per_node:
            fitting = [node for node in free if len(node) >= task.gpus]
            return tuple(min(fitting, key=len)[: task.gpus]) if fitting else None
        whole = [gpu for node in free if len(node) == self._per_node for gpu in node]
        return tuple(whole[: task.gpus]) if len(whole) >= task.gpus else None

    def _beside(self, task: Task, left: float, books: Books) -> tuple[int, ...] | None:
        need_mib = memory_mib(task.workload)
        hosts = [
            host
            for host, gpus in sorted(books.where.items())
            if len(gpus) == task.gpus
            and all(len(books.on[gpu]) == 1 and books.free_mib[gpu] >= need_mib for gpu in gpus)
        ]
        host = self.partner(task, hosts, books) if hosts else None
        return None if host is None else books.where[host]


@register("fifo-packed", title="FIFO_packed")
class FifoPacked(Packs):
    """Packs a job beside the running one with which it does most, if that is worth it.

    Args:
        threshold: the sum of both speeds, each over its speed alone, above which a pair is made (Gavel's 1.5).
        gpus_per_node: consecutive GPUs that make a node; a larger job has whole nodes (assumed).

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "fifo-packed"

    def __init__(self, threshold: float = 1.5, gpus_per_node: int = 8) -> None:
        check("threshold", threshold, threshold >= 0, "a sum of speeds of at least 0")
        super().__init__(gpus_per_node)
        self._threshold = threshold

    def partner(self, task: Task, hosts: Sequence[int], books: Books) -> int | None:
        """The host with the highest sum of speeds, if it is above the threshold."""
        best = max(hosts, key=lambda host: (self.pair(task, host, books), -host))
        return best if self.pair(task, best, books) > self._threshold else None


@register("gandiva", title="Gandiva")
class Gandiva(Packs):
    """Packs a job beside a random one, and parts the pair again if it does less than one of them alone.

    Args:
        least: the sum of both speeds, each over its speed alone, below which a pair is parted (Gavel's 1).
        look_s: how long a pair runs before it is looked at, s; assumed, a round of Gavel's.
        gpus_per_node: consecutive GPUs that make a node; a larger job has whole nodes (assumed).

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "gandiva"

    def __init__(self, least: float = 1.0, look_s: float = 360.0, gpus_per_node: int = 8) -> None:
        check("least", least, least >= 0, "a sum of speeds of at least 0")
        check("look_s", look_s, look_s > 0, "a time above 0 s")
        super().__init__(gpus_per_node)
        self._least, self._look_s = least, look_s

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything."""
        super().reset(cluster, predictor, rng)
        self._due: dict[int, float] = {}
        self._parted: set[frozenset[int]] = set()

    def partner(self, task: Task, hosts: Sequence[int], books: Books) -> int | None:
        """One of the hosts at random, of those that it was not parted from."""
        open_ = [host for host in hosts if frozenset((task.id, host)) not in self._parted]
        return open_[int(self.rng.integers(len(open_)))] if open_ else None

    def packed(self, task: Task, gpus: tuple[int, ...], books: Books) -> Iterator[Action]:
        """Look at the pair later."""
        self._due[task.id] = books.now_s + self._look_s
        yield Wait(self._due[task.id])

    def looks(self, now_s: float) -> bool:
        """Whether there are pairs whose time has come."""
        return any(due_s <= now_s for due_s in self._due.values())

    def judge(self, books: Books) -> Iterator[Action]:
        """Look at the pairs whose time has come: what they do, measured, against what they do alone."""
        for job, due_s in list(self._due.items()):
            if job in books.tasks and due_s > books.now_s:
                continue
            del self._due[job]
            if job not in books.tasks:
                continue
            members = {each for gpu in books.where[job] for each in books.on[gpu]}
            speed = sum(
                self.history.alone_s(books.gpus[books.where[each][0]], books.tasks[each].workload) / books.pace_s[each]
                for each in members
            )
            if len(members) > 1 and 0 < speed < self._least:
                self._parted.add(frozenset(members))
                books.take(job)
                yield Pause(job)
