"""EaCO (Haghshenas and Hashemi, 2024): trainings share GPUs by time slices as long as every deadline holds.

A job goes to the set of GPUs of highest utilisation on which all deadlines are predicted to hold (Algorithms 1 and 2).
Predictions come from a history of measured sets of jobs. Once every job there has completed an epoch beside the new
one, what was observed goes into the history, and if a deadline would break after all, the new job leaves at the end of
its epoch and tries the next set. GPUs that stay empty may sleep (`heshare.running.metrics.node_energy_j`).

EaCO's clusters are of one type of GPU. With several (an extension of ours) deadlines are checked by how jobs run on
each, and of equally utilised sets the one where the job runs fastest comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from heshare.policies.allocation.books import Books, local_sets
from heshare.policies.allocation.history import TIME_SLICE, History
from heshare.policies.allocation.pools import nodes
from heshare.policies.description import check
from heshare.policies.policy import Action, Event, Pause, Start, Traits, View, Wait
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task

# Epochs are counted in floating point; this much of one is none.
_EPOCH = 1e-6


@dataclass(slots=True)
class Trial:
    """A job that shares GPUs and has not been found to keep every deadline there.

    Attributes:
        gpus: the GPUs.
        left: what each job there had still to do when the trial began, iterations.
        wake_s: when to look at it next, s.
        asked_s: when a look was last asked for, s.
        leaves: whether the job leaves at the end of its epoch.
    """

    gpus: tuple[int, ...]
    left: dict[int, float]
    wake_s: float
    asked_s: float = math.nan
    leaves: bool = False


@register("eaco", title="EaCO")
class Eaco:
    """Co-location by time slices: candidates by thresholds, the highest utilisation first, undone after an epoch.

    Args:
        util_max: the highest GPU utilisation that a GPU may have before a job joins, 0 to 1; assumed.
        memory_max: the highest share of its memory that may be taken before; assumed.
        jobs_max: jobs on a GPU at most; assumed.
        epoch: an epoch of a task that has none, over its work; assumed.
        limit: the deadline of a task that has none, over its time alone, from its arrival; infinite, as in the paper.
        gpus_per_node: consecutive GPUs of a type that make a node; the GPUs of a job are in one (assumed), and a larger
            job has whole nodes to itself.
        strict: whether a job that has to wait holds up those behind it; assumed.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "eaco"
    tick_s: float | None = None
    traits = Traits(frequency=False, multi_task=True, heterogeneous=True)

    def __init__(
        self,
        util_max: float = 0.9,
        memory_max: float = 0.9,
        jobs_max: int = 4,
        epoch: float = 0.05,
        limit: float = math.inf,
        gpus_per_node: int = 8,
        strict: bool = False,
    ) -> None:
        check("util_max", util_max, 0 <= util_max <= 1, "a share from 0 to 1")
        check("memory_max", memory_max, 0 <= memory_max <= 1, "a share from 0 to 1")
        check("jobs_max", jobs_max, jobs_max >= 1, "at least one job")
        check("epoch", epoch, 0 < epoch <= 1, "a share of the work, above 0, at most 1")
        check("limit", limit, limit >= 1, "a multiple of the time alone, at least 1")
        check("gpus_per_node", gpus_per_node, gpus_per_node >= 1, "at least one GPU")
        self._util_max, self._memory_max, self._jobs_max = util_max, memory_max, jobs_max
        self._epoch, self._limit, self._per_node, self._strict = epoch, limit, gpus_per_node, strict

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget every job and all that was observed."""
        self.history = History(predictor)
        self._cluster = cluster
        self._nodes = nodes(cluster, self._per_node)
        self._trials: dict[int, Trial] = {}
        self._undone: dict[int, set[tuple[tuple[int, ...], frozenset[int]]]] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Judge the trials that are due, then find GPUs for those that wait."""
        if not len(view.waiting) and all(trial.wake_s > view.now_s for trial in self._trials.values()):
            return
        books = Books(view)
        left = {task.id: view.remaining[task.id] for task in view.waiting}
        leaving = list(self._judged(books))
        for task in leaving:
            left[task.id] = books.left[task.id]
            books.take(task.id)
            yield Pause(task.id)
        queue = sorted([*view.waiting, *leaving], key=lambda task: (task.priority, task.arrival_s, task.id))
        failed: set[tuple[object, ...]] = set()
        for task in queue:
            # What one job could not have, no other one like it can have now.
            alike = task.workload, task.gpus, task.deadline_s, task.id in self._undone and task.id
            gpus = None if alike in failed else self._find(task, left[task.id], books)
            if gpus is not None:
                self._allocate(task, left[task.id], gpus, books)
                yield Start(task.id, gpus[0], also=gpus[1:], sharing=TIME_SLICE)
                continue
            failed.add(alike)
            if self._strict:
                break
        for trial in self._trials.values():
            if trial.wake_s != trial.asked_s:
                trial.asked_s = trial.wake_s
                yield Wait(trial.wake_s)

    def deadline_s(self, task: Task) -> float:
        """By when a task should have completed, s: its own deadline, or the assumed one."""
        if task.deadline_s < math.inf or self._limit == math.inf:
            return task.deadline_s
        alone_s = min(self.history.alone_s(gpu, task.workload) for gpu in self._cluster.kinds)
        return task.arrival_s + self._limit * task.iterations * alone_s

    def _find(self, task: Task, left: float, books: Books) -> tuple[int, ...] | None:
        """The set of highest utilisation on which every deadline is predicted to hold."""
        undone = self._undone.get(task.id, ())
        for gpus in self.candidates(task, books):
            others = frozenset(each for gpu in gpus for each in books.on[gpu])
            if (gpus, others) not in undone and self._holds(task, left, gpus, books):
                return gpus
        return None

    def candidates(self, task: Task, books: Books) -> list[tuple[int, ...]]:
        """FindCandidates: the sets of GPUs that a task may join, the highest utilisation first.

        Of sets that are empty and of one type, one stands for all: in the node with the fewest empty GPUs (assumed), so
        that whole nodes stay empty and may sleep.
        """
        trials = {gpu for trial in self._trials.values() for gpu in trial.gpus}
        eligible = [[gpu for gpu in node if gpu not in trials and self._open(gpu, task, books)] for node in self._nodes]
        if task.gpus > self._per_node:
            return self._whole_nodes(task.gpus, eligible, books)
        empty = {gpu: sum(not books.on[each] for each in node) for node in self._nodes for gpu in node}
        found: dict[object, tuple[float, float, int, tuple[int, ...]]] = {}
        signature = [tuple(on) for on in books.on]
        for gpus in local_sets(eligible, signature, task.gpus):
            util = sum(self._utilisation(gpu, books) for gpu in gpus) / len(gpus)
            kind = books.gpus[gpus[0]]
            rank = (-util, self.history.alone_s(kind, task.workload), 0 if util else empty[gpus[0]], gpus)
            of = gpus if util else kind
            found[of] = min(found.get(of, rank), rank)
        return [gpus for *_, gpus in sorted(found.values())]

    def _whole_nodes(self, size: int, eligible: list[list[int]], books: Books) -> list[tuple[int, ...]]:
        free: dict[object, list[int]] = {}
        for node in eligible:
            if len(node) == self._per_node and not any(books.on[gpu] for gpu in node):
                free.setdefault(books.gpus[node[0]], []).extend(node)
        return [tuple(gpus[:size]) for gpus in free.values() if len(gpus) >= size]

    def _open(self, gpu: int, task: Task, books: Books) -> bool:
        """Whether a GPU is below both thresholds and has memory for a task."""
        whole_mib, free_mib = books.gpus[gpu].memory_mib, books.free_mib[gpu]
        return (
            len(books.on[gpu]) < self._jobs_max
            and memory_mib(task.workload) <= free_mib
            and whole_mib - free_mib <= self._memory_max * whole_mib
            and self._utilisation(gpu, books) <= self._util_max
        )

    def _utilisation(self, gpu: int, books: Books) -> float:
        return self.history.utilisation(books.gpus[gpu], books.workloads(gpu)) if books.on[gpu] else 0.0

    def _holds(self, task: Task, left: float, gpus: tuple[int, ...], books: Books) -> bool:
        """Whether no deadline breaks that would hold if the task did not join; its own, if it ran there alone."""
        others = {each for gpu in gpus for each in books.on[gpu]}
        alone_s = books.now_s + left * max(self.history.alone_s(books.gpus[gpu], task.workload) for gpu in gpus)
        before_s = {task.id: alone_s} | {each: books.done_s(self.history, each) for each in others}
        books.put(task, left, gpus)
        broken = any(
            before_s[each] <= _by(self.deadline_s(books.tasks[each])) < books.done_s(self.history, each)
            for each in before_s
        )
        books.take(task.id)
        return not broken

    def _allocate(self, task: Task, left: float, gpus: tuple[int, ...], books: Books) -> None:
        """Book a task; if it shares GPUs, its trial begins."""
        books.put(task, left, gpus)
        there = {each for gpu in gpus for each in books.on[gpu]}
        if len(there) > 1:
            took_s = max(self._epoch_of(books.tasks[each]) * books.time_s(self.history, each) for each in there)
            self._trials[task.id] = Trial(gpus, {each: books.left[each] for each in there}, books.now_s + took_s)

    def _judged(self, books: Books) -> Iterator[Task]:
        """End the trials that are due; those jobs whose allocation is undone now."""
        for job, trial in list(self._trials.items()):
            if job not in books.tasks:
                del self._trials[job]
            elif trial.wake_s <= books.now_s:
                task = books.tasks[job]
                if not trial.leaves and not self._passed(task, trial, books):
                    continue
                others = frozenset(each for gpu in trial.gpus for each in books.on[gpu]) - {job}
                if not trial.leaves and self._kept(task, trial, others, books):
                    del self._trials[job]
                    continue
                rest = _to_boundary(task.iterations - books.left[job], self._epoch_of(task))
                trial.leaves = True
                trial.wake_s = _later(books.now_s, rest * books.pace_s[job])
                if rest <= _EPOCH * self._epoch_of(task):
                    del self._trials[job]
                    self._undone.setdefault(job, set()).add((trial.gpus, others))
                    yield task

    def _passed(self, task: Task, trial: Trial, books: Books) -> bool:
        """Whether every job that is still there has completed an epoch since; if not, look again when it should."""
        there = [each for each in trial.left if each in books.tasks]
        lacking_s = 0.0
        for each in there:
            epoch = self._epoch_of(books.tasks[each])
            lacking = epoch - (trial.left[each] - books.left[each])
            if lacking > _EPOCH * epoch:
                pace_s = books.pace_s[each]
                lacking_s = max(
                    lacking_s, lacking * (pace_s if pace_s < math.inf else books.time_s(self.history, each))
                )
        trial.wake_s = _later(books.now_s, lacking_s)
        return not lacking_s

    def _kept(self, task: Task, trial: Trial, others: frozenset[int], books: Books) -> bool:
        """Whether, by what was observed, every deadline holds that would hold without the task."""
        for gpu in trial.gpus:
            members = books.on[gpu]
            same = {tuple(sorted(books.workloads(each))) for job in members for each in books.where[job]}
            if len(same) == 1:
                self.history.record(
                    books.gpus[gpu], [(books.tasks[job].workload, books.pace_s[job]) for job in members]
                )
        if not others:
            return True
        left = books.left[task.id]
        books.take(task.id)
        holds = self._holds(task, left, trial.gpus, books)
        books.put(task, left, trial.gpus)
        return holds

    def _epoch_of(self, task: Task) -> float:
        """Iterations of an epoch."""
        return task.iterations / task.epochs if task.epochs else self._epoch * task.iterations


def _by(deadline_s: float) -> float:
    """A deadline, with room for rounding."""
    return deadline_s * (1 + 1e-9)


def _later(now_s: float, after_s: float) -> float:
    return max(now_s + after_s, math.nextafter(now_s, math.inf))


def _to_boundary(done: float, epoch: float) -> float:
    """Iterations until the end of the epoch that a job is in; 0 at its end, whatever was rounded."""
    inside = done / epoch
    over = math.ceil(inside - _EPOCH) - inside
    return max(over, 0.0) * epoch
