"""Slowdown of trainings that share a GPU beside each other, from a record of measured pairs.

Trainings share more than the GPU: the host that loads and decodes their data. How much that costs follows from no
property of the GPU alone, so the record comes first:

- a pair of the record on its GPU is as slow as measured;
- another pair of its workloads there has the mean of the logarithms of the record's slowdowns, each weighted by how
  similar it is (`weight`): in effect that of the same two networks at the nearest batch sizes;
- on another GPU each has the mean slowdown of the record.

A measured slowdown below 1 counts as 1, so that a co-runner never speeds a task up.
"""

import math
from collections.abc import Mapping
from functools import cache, lru_cache

from heshare.devices.constants import fitted
from heshare.systems.shared import training
from heshare.world.workload import Workload

PER_DOUBLING = 4.0
"""Binary digits that a slowdown loses in weight for each doubling between the two batch sizes; assumed."""
OTHER_NETWORK, PER_BUSY = 16.0, 12.0
"""Digits that it loses if the network is another one, and for each unit of difference in busy parts; assumed."""

Slowdowns = Mapping[tuple[Workload, Workload], float]
"""Slowdown of the first workload beside the second."""


@cache
def record() -> dict[tuple[Workload, Workload], float]:
    """Return the measured slowdown of each workload of the record beside each other one, at least 1."""
    known = {}
    for (first, second), (of_first, of_second) in training.measured_pairs():
        known[first, second] = max(1.0, of_first)
        known[second, first] = max(1.0, of_second)
    return known


@cache
def members() -> frozenset[Workload]:
    """Return the workloads of the record."""
    return frozenset(workload for pair in record() for workload in pair)


@lru_cache(maxsize=4096)
def distance(one: Workload, other: Workload) -> float:
    """Return how unlike two workloads are, in binary digits of weight."""
    if one.model == other.model:
        return PER_DOUBLING * abs(math.log2(one.batch_size / other.batch_size))
    return OTHER_NETWORK + PER_BUSY * abs(training.step(one).busy - training.step(other).busy)


def similar_slowdown(own: Workload, other: Workload, known: Slowdowns) -> float:
    """Return the slowdown of `own` beside `other` from the known pairs, each weighted by similarity.

    The weight of a known pair is 2^-(distance of the first workloads + distance of the second ones).
    """
    total = weighted = 0.0
    for (first, second), slowdown in known.items():
        weight = 2.0 ** -(distance(own, first) + distance(other, second))
        total += weight
        weighted += weight * math.log(slowdown)
    return math.exp(weighted / total)


@lru_cache(maxsize=4096)
def pair_slowdown(gpu: str, own: Workload, other: Workload) -> float | None:
    """Return the slowdown of a training beside another one, at least 1; None unless the record has both workloads.

    Args:
        gpu: the GPU's name.
        own: the training.
        other: the one beside it.
    """
    if not {own, other} <= members():
        return None
    if gpu != training.step(own).gpu:
        return fitted("training-pairs")["", "", ""]["mean"]
    return record().get((own, other)) or similar_slowdown(own, other, record())


def pair_uncertainty(gpu: str, own: Workload, other: Workload) -> float:
    """Return the relative standard uncertainty of `pair_slowdown`, from workloads that were left out."""
    errors = fitted("training-pairs")["", "", ""]
    if gpu != training.step(own).gpu:
        return errors["elsewhere"]
    return 0.0 if (own, other) in record() else errors["similar"]
