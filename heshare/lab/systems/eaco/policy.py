"""EaCO: trainings share GPUs by time slices while every deadline is predicted to be met.

Haghshenas (Groningen) and Hashemi (Tehran), 2024, arXiv 2412.08294. No code was published.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from heshare.lab.systems.shared.cluster_nodes import no_place, nodes
from heshare.lab.systems.shared.co_location import BookedJob, CoLocationHistory, GpuBookings
from heshare.lab.systems.shared.time_slicing import TIME_SLICE
from heshare.policies.policy import Action, Event, Pause, Policy, Start, Traits, View, Wait
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import require
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task

# Epochs are counted in floating point; a smaller part of an epoch counts as none.
_EPOCH_TOLERANCE = 1e-6
# An epoch of a task that has none, over its work; assumed.
_EPOCH = 0.05


# From the publication (Algorithms 1 and 2):
#
# 1. Jobs are queued by priority and arrival. FindCandidates returns the sets of GPUs whose utilisation and memory are
#    below two thresholds and whose free memory holds the job.
# 2. The candidate of highest utilisation is taken on which all deadlines are predicted to be met. Predictions are from
#    a history of sets of jobs that begins with EaCO's measurements.
# 3. The allocation is on trial until every job there has completed an epoch since. Then the observed times are added to
#    the history. If a deadline would now be missed, the job leaves at the end of its epoch and tries the next
#    candidate.
# 4. Nodes that stay empty may sleep (`heshare.lab.systems.shared.cluster_nodes.node_energy_j`).
#
# Assumed, each a parameter of `Eaco`: both thresholds and the number of jobs on a GPU (the publication gives no
# numbers), epochs of tasks that have none, sets within one node only, and that later jobs may overtake a job without
# candidates. EaCO's clusters have one type of GPU. With several types (our extension) deadlines are checked by the
# times on each type, and of equally utilised sets the one on which the job runs fastest comes first.


@dataclass(slots=True)
class TrialPlacement:
    """A job that shares GPUs and for which the deadlines are not confirmed there yet.

    `left` are the iterations that remained of each job there when the trial began, `check_s` and `requested_s` the
    times of the next check and of the last one for which a tick was requested; it `leaves` at the end of its epoch.
    """

    gpus: tuple[int, ...]
    left: dict[int, float]
    check_s: float
    requested_s: float = math.nan
    leaves: bool = False


def local_sets(eligible: Sequence[Sequence[int]], signature: Sequence[object], size: int) -> list[tuple[int, ...]]:
    """Return the sets of `size` GPUs within one node, one for each class of interchangeable sets.

    `eligible` are the GPUs of each node that may be taken; GPUs of a node with equal `signature` are interchangeable.
    For each way to divide `size` over a node's groups of equal GPUs, the first GPUs of each group are taken.
    """
    sets: list[tuple[int, ...]] = []
    for node in eligible:
        if len(node) < size:
            continue
        groups: dict[object, list[int]] = {}
        for gpu in node:
            groups.setdefault(signature[gpu], []).append(gpu)
        if size == 1:
            sets += [(group[0],) for group in groups.values()]
            continue
        choices = [range(min(size, len(group)) + 1) for group in groups.values()]
        for counts in product(*choices):
            if sum(counts) == size:
                chosen = [gpu for group, count in zip(groups.values(), counts, strict=True) for gpu in group[:count]]
                sets.append(tuple(sorted(chosen)))
    return sets


@register("eaco", title="EaCO")
class Eaco(Policy):
    """Co-location by time slices: candidates by thresholds, the highest utilisation first, undone after an epoch.

    Args:
        util_max: the highest GPU utilisation of a GPU that a job may join, 0 to 1; assumed.
        memory_max: the highest share of its memory that may be taken on such a GPU; assumed.
        jobs_max: jobs on a GPU at most; assumed: EaCO measured sets of up to four.
        gpus_per_node: consecutive GPUs of a type that make a node, eight in the publication. The GPUs of a job are in
            one node, and a larger job has whole nodes exclusively; both assumed.
    """

    name = "eaco"
    traits = Traits(frequency=False, multi_task=True, heterogeneous=True)

    def __init__(
        self,
        util_max: float = 0.9,
        memory_max: float = 0.9,
        jobs_max: int = 4,
        gpus_per_node: int = 8,
    ) -> None:
        require("util_max", util_max, 0 <= util_max <= 1, "a share from 0 to 1")
        require("memory_max", memory_max, 0 <= memory_max <= 1, "a share from 0 to 1")
        require("jobs_max", jobs_max, jobs_max >= 1, "at least one job")
        require("gpus_per_node", gpus_per_node, gpus_per_node >= 1, "at least one GPU")
        self._util_max, self._memory_max, self._jobs_max = util_max, memory_max, jobs_max
        self._per_node = gpus_per_node

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        super().reset(cluster, predictor, rng)
        self.history = CoLocationHistory(predictor)
        self._nodes = nodes(cluster, self._per_node)
        self._trials: dict[int, TrialPlacement] = {}
        self._undone: dict[int, set[tuple[tuple[int, ...], frozenset[int]]]] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        if not len(view.waiting) and all(trial.check_s > view.now_s for trial in self._trials.values()):
            return
        bookings = GpuBookings(view, self.history)
        queue = [(task, view.remaining[task.id]) for task in view.waiting]
        for number in list(self._end_trials(bookings)):
            job = bookings.remove(number)
            queue.append((job.task, job.left))
            yield Pause(number)
        failed: set[tuple[object, ...]] = set()
        for task, left in sorted(queue, key=lambda item: (item[0].priority, item[0].arrival_s, item[0].id)):
            # If no set was found for a job at this event, equal jobs are not searched.
            alike = task.workload, task.gpus, task.deadline_s, task.id in self._undone and task.id
            found = None if alike in failed else self._find(task, left, bookings)
            if found is not None:
                self._allocate(found, bookings)
                yield Start(task.id, found.gpus[0], also=found.gpus[1:], sharing=TIME_SLICE)
                continue
            if task.gpus > max(map(len, self._nodes)) and not any(bookings.on):
                raise no_place("eaco", task, str(self.cluster))
            failed.add(alike)
        for trial in self._trials.values():
            if trial.check_s != trial.requested_s:
                trial.requested_s = trial.check_s
                yield Wait(trial.check_s)

    def candidates(self, task: Task, bookings: GpuBookings) -> list[tuple[int, ...]]:
        """Return the sets of GPUs that a task may join, the highest utilisation first (FindCandidates, Algorithm 2).

        Of the empty sets of one type, one represents all: that in the node with the fewest empty GPUs, so that whole
        nodes remain empty and may sleep (assumed).
        """
        trials = {gpu for trial in self._trials.values() for gpu in trial.gpus}
        eligible = [
            [gpu for gpu in node if gpu not in trials and self._below_thresholds(gpu, task, bookings)]
            for node in self._nodes
        ]
        if task.gpus > self._per_node:
            return self._whole_nodes(task.gpus, eligible, bookings)
        empty = {gpu: sum(not bookings.on[other] for other in node) for node in self._nodes for gpu in node}
        ranks: dict[object, tuple[float, float, int, tuple[int, ...]]] = {}
        signature = [tuple(on) for on in bookings.on]
        for gpus in local_sets(eligible, signature, task.gpus):
            util = sum(self._utilisation(gpu, bookings) for gpu in gpus) / len(gpus)
            kind = bookings.gpus[gpus[0]]
            rank = (-util, self.history.alone_s(kind, task.workload), 0 if util else empty[gpus[0]], gpus)
            key = gpus if util else kind
            ranks[key] = min(ranks.get(key, rank), rank)
        return [gpus for *_, gpus in sorted(ranks.values())]

    def _find(self, task: Task, left: float, bookings: GpuBookings) -> BookedJob | None:
        undone = self._undone.get(task.id, ())
        for gpus in self.candidates(task, bookings):
            job = BookedJob(task, left, gpus)
            if (gpus, _jobs_on(gpus, bookings)) not in undone and self._deadlines_hold(job, bookings):
                return job
        return None

    def _whole_nodes(self, size: int, eligible: list[list[int]], bookings: GpuBookings) -> list[tuple[int, ...]]:
        free: dict[object, list[int]] = {}
        for node in eligible:
            if len(node) == self._per_node and not any(bookings.on[gpu] for gpu in node):
                free.setdefault(bookings.gpus[node[0]], []).extend(node)
        return [tuple(gpus[:size]) for gpus in free.values() if len(gpus) >= size]

    def _below_thresholds(self, gpu: int, task: Task, bookings: GpuBookings) -> bool:
        total_mib, free_mib = bookings.gpus[gpu].memory_mib, bookings.free_mib[gpu]
        return (
            len(bookings.on[gpu]) < self._jobs_max
            and memory_mib(task.workload) <= free_mib
            and total_mib - free_mib <= self._memory_max * total_mib
            and self._utilisation(gpu, bookings) <= self._util_max
        )

    def _utilisation(self, gpu: int, bookings: GpuBookings) -> float:
        return self.history.utilisation(bookings.gpus[gpu], bookings.workloads(gpu)) if bookings.on[gpu] else 0.0

    def _deadlines_hold(self, job: BookedJob, bookings: GpuBookings) -> bool:
        """Return whether every deadline that is met without a job is also met if it joins.

        The deadline of the job counts if it would be met with the job alone on its GPUs. A deadline that is missed
        either way blocks no job.
        """
        task = job.task
        alone_s = max(self.history.alone_s(bookings.gpus[gpu], task.workload) for gpu in job.gpus)
        before_s = {other: bookings.done_s(other) for other in _jobs_on(job.gpus, bookings)}
        before_s[task.id] = bookings.now_s + job.left * alone_s
        bookings.book(job)
        # Deadlines have a tolerance for rounding.
        broken = any(
            done_s <= bookings.jobs[other].task.deadline_s * (1 + 1e-9) < bookings.done_s(other)
            for other, done_s in before_s.items()
        )
        bookings.remove(task.id)
        return not broken

    def _allocate(self, job: BookedJob, bookings: GpuBookings) -> None:
        bookings.book(job)
        jobs = {number: bookings.jobs[number] for number in _jobs_on(job.gpus, bookings)}
        if len(jobs) > 1:
            longest_epoch_s = max(
                self._epoch_of(each.task) * bookings.predicted_s(number) for number, each in jobs.items()
            )
            left_then = {number: each.left for number, each in jobs.items()}
            self._trials[job.task.id] = TrialPlacement(job.gpus, left_then, bookings.now_s + longest_epoch_s)

    def _end_trials(self, bookings: GpuBookings) -> Iterator[int]:
        for number, trial in list(self._trials.items()):
            job = bookings.jobs.get(number)
            if job is None:
                del self._trials[number]
                continue
            if trial.check_s > bookings.now_s or not (trial.leaves or self._epochs_passed(trial, bookings)):
                continue
            others = _jobs_on(trial.gpus, bookings) - {number}
            if not trial.leaves and self._confirmed(job, others, bookings):
                del self._trials[number]
                continue
            epoch = self._epoch_of(job.task)
            rest = _to_epoch_end(job.task.iterations - job.left, epoch)
            trial.leaves = True
            trial.check_s = _later(bookings.now_s, rest * job.time_s)
            if rest <= _EPOCH_TOLERANCE * epoch:
                del self._trials[number]
                self._undone.setdefault(number, set()).add((trial.gpus, others))
                yield number

    def _epochs_passed(self, trial: TrialPlacement, bookings: GpuBookings) -> bool:
        lacking_s = 0.0
        for number in trial.left.keys() & bookings.jobs.keys():
            job = bookings.jobs[number]
            epoch = self._epoch_of(job.task)
            lacking = epoch - (trial.left[number] - job.left)
            if lacking > _EPOCH_TOLERANCE * epoch:
                time_s = bookings.predicted_s(number) if job.time_s == math.inf else job.time_s
                lacking_s = max(lacking_s, lacking * time_s)
        trial.check_s = _later(bookings.now_s, lacking_s)
        return not lacking_s

    def _confirmed(self, job: BookedJob, others: frozenset[int], bookings: GpuBookings) -> bool:
        for gpu in job.gpus:
            members = [bookings.jobs[number] for number in bookings.on[gpu]]
            # A gang's time is that of its slowest GPU: it is the time of this set if all its GPUs hold the same set.
            sets = {tuple(sorted(bookings.workloads(other))) for member in members for other in member.gpus}
            if len(sets) == 1:
                self.history.record(bookings.gpus[gpu], [(member.task.workload, member.time_s) for member in members])
        if not others:
            return True
        bookings.remove(job.task.id)
        holds = self._deadlines_hold(job, bookings)
        bookings.book(job)
        return holds

    def _epoch_of(self, task: Task) -> float:
        return task.iterations / task.epochs if task.epochs else _EPOCH * task.iterations


def _jobs_on(gpus: Sequence[int], bookings: GpuBookings) -> frozenset[int]:
    return frozenset(job for gpu in gpus for job in bookings.on[gpu])


def _later(now_s: float, after_s: float) -> float:
    """Return the time `after_s` from now, s, and at least the next number: a tick must not be requested for now."""
    return max(now_s + after_s, math.nextafter(now_s, math.inf))


def _to_epoch_end(done: float, epoch: float) -> float:
    """Return the iterations until the end of the present epoch; 0 at its end, whatever was rounded."""
    epochs_done = done / epoch
    rest = math.ceil(epochs_done - _EPOCH_TOLERANCE) - epochs_done
    return max(rest, 0.0) * epoch
