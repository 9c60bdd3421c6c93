"""Nodes of a cluster: the GPUs of each, how many are active, and the energy of whole nodes."""

import math
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from heshare.running.timeline import Segment
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster
from heshare.world.task import Task

Spans = list[tuple[float, float]]
"""Spans of time, s, in order."""


def nodes(cluster: Cluster, gpus_per_node: int) -> list[tuple[int, ...]]:
    """Return the GPUs of each node: consecutive GPUs of one type; the last node of a type may be smaller."""
    groups: list[tuple[int, ...]] = []
    for kind in cluster.kinds:
        own = tuple(index for index, gpu in enumerate(cluster.gpus) if gpu == kind)
        groups += [own[at : at + gpus_per_node] for at in range(0, len(own), gpus_per_node)]
    return groups


def no_place(policy: str, task: Task, cluster: str) -> InputError:
    """Return the error of a task for which no type of GPU has enough GPUs, within the limits of a policy."""
    return InputError(
        f"task {task.id}, {task.workload} on {task.gpus} GPU{'s' * (task.gpus > 1)}, on {cluster} under {policy}",
        "a task that fits GPUs of one type, since this policy gives a task no others",
        "Leave the task out, take a cluster with more GPUs of one type, or a policy that mixes types, such as fifo.",
        column="gpus",
    )


def average_active(segments: Sequence[Segment], until_s: float, /, *, gpus_per_node: int = 1) -> float:
    """Return the number of GPUs (or nodes) that run something, averaged over time from 0 to `until_s`, s.

    `gpus_per_node` consecutive GPUs make a node, which is active while one of them is.
    """
    awake = _awake(segments, gpus_per_node)
    return sum(end_s - start_s for node in awake.values() for start_s, end_s in node) / until_s


def node_energy_j(
    segments: Sequence[Segment],
    k: int,
    until_s: float,
    /,
    *,
    gpus_per_node: int = 1,
    host_w: float = 0.0,
    sleep_w: float | None = None,
) -> FloatArray:
    """Return the energy of each node from the start to `until_s`: GPUs, host, and sleep while it is idle, J, (nodes,).

    A third energy account in addition to the two of the paper: EaCO counts whole servers, and idle ones sleep. Going to
    sleep and waking up take no time here (assumed). `k` is the number of GPUs, `host_w` the power of a node apart from
    its GPUs whenever it is awake, `sleep_w` that of a whole node while none of its GPUs runs anything; None: no node
    sleeps.
    """
    nodes = -(-k // gpus_per_node)
    awake = {node: [(0.0, until_s)] for node in range(nodes)} if sleep_w is None else _awake(segments, gpus_per_node)
    energy_j = np.zeros(nodes)
    for gpu, start_s, end_s, _, _, power_w, _ in segments:
        node = gpu // gpus_per_node
        energy_j[node] += power_w * _overlap_s(awake.get(node, []), start_s, min(end_s, until_s))
    for node in range(nodes):
        awake_s = _overlap_s(awake.get(node, []), 0.0, until_s)
        energy_j[node] += host_w * awake_s + (sleep_w or 0.0) * (until_s - awake_s)
    return energy_j


def _overlap_s(spans: Spans, start_s: float, end_s: float) -> float:
    first = max(bisect_right(spans, (start_s, math.inf)) - 1, 0)
    total_s = 0.0
    for from_s, to_s in spans[first:]:
        if from_s >= end_s:
            break
        total_s += max(0.0, min(to_s, end_s) - max(from_s, start_s))
    return total_s


def _awake(segments: Sequence[Segment], gpus_per_node: int) -> dict[int, Spans]:
    spans: dict[int, Spans] = {}
    for segment in sorted((segment for segment in segments if segment.residents), key=lambda segment: segment.start_s):
        own = spans.setdefault(segment.gpu // gpus_per_node, [])
        if own and segment.start_s <= own[-1][1]:
            own[-1] = (own[-1][0], max(own[-1][1], segment.end_s))
        else:
            own.append((segment.start_s, segment.end_s))
    return spans
