"""Nodes of a cluster, and the sets of GPUs inside one node that a gang may take."""

from collections.abc import Sequence
from itertools import product

from heshare.world.cluster import Cluster


def nodes(cluster: Cluster, gpus_per_node: int) -> list[tuple[int, ...]]:
    """Return the GPUs of each node: consecutive GPUs of one type; the last node of a type may be smaller."""
    groups: list[tuple[int, ...]] = []
    for kind in cluster.kinds:
        own = tuple(index for index, gpu in enumerate(cluster.gpus) if gpu == kind)
        groups += [own[at : at + gpus_per_node] for at in range(0, len(own), gpus_per_node)]
    return groups


def local_sets(eligible: Sequence[Sequence[int]], signature: Sequence[object], size: int) -> list[tuple[int, ...]]:
    """Return the sets of `size` GPUs within one node, one for each class of interchangeable sets.

    Args:
        eligible: GPUs of each node that may be taken, in order.
        signature: of each GPU; GPUs of a node with equal signatures are interchangeable.
        size: number of GPUs of a set.

    Returns:
        For each way to divide `size` over a node's groups of equal GPUs, the first GPUs of each group.
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
