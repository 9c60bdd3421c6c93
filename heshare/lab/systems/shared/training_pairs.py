"""Slowdown of trainings that share a GPU, from a record of measured pairs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache

from heshare.devices.constants import fitted
from heshare.devices.device_model import register_co_run_record
from heshare.lab.systems.shared import (
    training,
    training_step,  # noqa: F401 (registers the step: both are in one plug-in)
)
from heshare.world.workload import Workload

PER_DOUBLING = 4.0
"""Binary digits that a slowdown loses in weight for each doubling between the two batch sizes; assumed."""
OTHER_NETWORK, PER_BUSY = 16.0, 12.0
"""Digits that it loses if the network is another one, and for each unit of difference in busy parts; assumed."""

Slowdowns = Mapping[tuple[Workload, Workload], float]
"""Slowdown of the first workload with the second."""


@cache
def record() -> dict[tuple[Workload, Workload], float]:
    """Return the measured slowdown of each workload of the record with each other one, at least 1."""
    known = {}
    same: dict[Workload, Workload] = {}  # one object for equal workloads, as `similar_slowdown` expects
    for pair, (of_first, of_second) in training.measured_pairs():
        first, second = (same.setdefault(workload, workload) for workload in pair)
        known[first, second] = max(1.0, of_first)
        known[second, first] = max(1.0, of_second)
    return known


@cache
def members() -> frozenset[Workload]:
    return frozenset(workload for pair in record() for workload in pair)


# Trainings share more than the GPU: the host that loads and decodes their data. That cost follows from no
# property of the GPU alone, so the record has precedence:
#
# - a pair of the record on its GPU is as slow as measured;
# - another pair of its workloads there has the mean of the logarithms of the record's slowdowns, each weighted by how
#   similar it is (`weight`): in effect that of the same two networks at the nearest batch sizes;
# - on another GPU each has the mean slowdown of the record.
#
# A measured slowdown below 1 counts as 1, since a co-runner cannot speed a task up. In sets of three and more each
# further one of the record adds its part: `1 + sum over the others (slowdown of the pair - 1)`.
#
# The record does not state whether its pairs shared by MPS or by time slices, so it is used for both. Under MPS a
# training is at least as slow as that; a limit on its SMs that slows it down further does so.


@lru_cache(maxsize=4096)
def distance(one: Workload, other: Workload) -> float:
    """Return the dissimilarity of two workloads, as a binary logarithm of weight."""
    if one.model == other.model:
        return PER_DOUBLING * abs(math.log2(one.batch_size / other.batch_size))
    return OTHER_NETWORK + PER_BUSY * abs(training.step(one).busy - training.step(other).busy)


def similar_slowdown(own: Workload, other: Workload, known: Slowdowns) -> float:
    """Return the slowdown of `own` with `other` from the known pairs, each weighted by similarity.

    The weight of a known pair is 2^-(distance of the first workloads + distance of the second ones).
    """
    total = weighted = 0.0
    # The record has the same few objects in many pairs; hashing a workload takes longer than the rest of the loop.
    from_own: dict[int, float] = {}
    from_other: dict[int, float] = {}
    for (first, second), slowdown in known.items():
        if id(first) not in from_own:
            from_own[id(first)] = distance(own, first)
        if id(second) not in from_other:
            from_other[id(second)] = distance(other, second)
        weight = 2.0 ** -(from_own[id(first)] + from_other[id(second)])
        total += weight
        weighted += weight * math.log(slowdown)
    return math.exp(weighted / total)


@lru_cache(maxsize=4096)
def pair_slowdown(gpu: str, own: Workload, other: Workload) -> float | None:
    """Return the slowdown of a training with another one, at least 1; None unless the record has both workloads."""
    if not {own, other} <= members():
        return None
    if gpu != training.step(own).gpu:
        return fitted("training-pairs")["", "", ""]["mean"]
    return record().get((own, other)) or similar_slowdown(own, other, record())


def pair_uncertainty(gpu: str, own: Workload, other: Workload) -> float:
    """Return the relative standard uncertainty of `pair_slowdown`, from leave-one-workload-out errors."""
    errors = fitted("training-pairs")["", "", ""]
    if gpu != training.step(own).gpu:
        return errors["elsewhere"]
    return 0.0 if (own, other) in record() else errors["similar"]


def paired_slowdowns(gpu: str, workloads: Sequence[Workload]) -> list[float | None]:
    """Return the slowdown of each workload by the record of pairs; None without another one of the record."""
    slowdowns: list[float | None] = []
    for own, others in each_beside(workloads):
        found = [slowdown for other in others if (slowdown := pair_slowdown(gpu, own, other)) is not None]
        slowdowns.append(1.0 + sum(slowdown - 1.0 for slowdown in found) if found else None)
    return slowdowns


def each_beside(workloads: Sequence[Workload]) -> Iterator[tuple[Workload, list[Workload]]]:
    for index, own in enumerate(workloads):
        yield own, [*workloads[:index], *workloads[index + 1 :]]


def recorded_slowdowns(gpu: str, workloads: Sequence[Workload]) -> list[tuple[float, float]]:
    """Return (slowdown, relative standard uncertainty) of each workload by the record of pairs; (1, 0) without one."""
    recorded = []
    for slowdown, (own, others) in zip(paired_slowdowns(gpu, workloads), each_beside(workloads), strict=True):
        known = [other for other in others if {own, other} <= members()]
        recorded.append((slowdown or 1.0, max((pair_uncertainty(gpu, own, other) for other in known), default=0.0)))
    return recorded


register_co_run_record("training", recorded_slowdowns)
