"""Metrics of other systems' papers: slowdown, deadlines met, GPU utilisation, active nodes, energy of whole nodes.

Pure functions over a run's record. The JCTs are in `heshare.running.result`, both energy accounts of the paper in
`heshare.running.timeline`.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from heshare.arrays import FloatArray
from heshare.running.timeline import Segment
from heshare.world.task import Task


def slowdown(jct_s: ArrayLike, alone_s: ArrayLike, /) -> FloatArray:
    """Return each task's JCT over its time alone, shape (n,); 1 is a task that neither waited nor shared."""
    return np.asarray(jct_s, dtype=np.float64) / np.asarray(alone_s, dtype=np.float64)


def deadlines_met(completion_s: ArrayLike, tasks: Sequence[Task], /) -> float:
    """Return the share of the tasks with a deadline that completed by it; NaN if no task has a deadline.

    Args:
        completion_s: completion time of each task, s, shape (n,); NaN for a task that never completed.
        tasks: the tasks, in the same order.
    """
    deadline_s = np.array([task.deadline_s for task in tasks])
    with_deadline = np.isfinite(deadline_s)
    if not with_deadline.any():
        return math.nan
    done_s = np.asarray(completion_s, dtype=np.float64)[with_deadline]
    # Completion times are rounded sums of intervals: they may pass a deadline that is met exactly.
    return float(np.mean(done_s <= deadline_s[with_deadline] * (1 + 1e-9)))


def class_means(values: ArrayLike, tasks: Sequence[Task], /) -> dict[int, float]:
    """Return the mean of one value a task, shape (n,), for each priority class, the most urgent class first."""
    sample: FloatArray = np.asarray(values, dtype=np.float64)
    priorities = np.array([task.priority for task in tasks])
    return {int(priority): float(sample[priorities == priority].mean()) for priority in np.unique(priorities)}


def gpu_utilisation(segments: Sequence[Segment], busy: Callable[[int, int, float], float], /) -> float:
    """Return the average GPU utilisation while GPUs run something, weighted by time and at most 1 at every moment.

    This is the driver's measure, the share of time in which some kernel runs, not the share of occupied SMs.

    Args:
        segments: of all GPUs.
        busy: the share of time in which a task's kernels run, by (task, GPU, seconds per iteration there).

    Returns:
        From 0 to 1; NaN if nothing ever ran.
    """
    used_s = active_s = 0.0
    for gpu, start_s, end_s, _, _, _, residents in segments:
        if residents:
            share = sum(busy(task, gpu, time_s) for task, _, time_s in residents)
            used_s += min(1.0, share) * (end_s - start_s)
            active_s += end_s - start_s
    return used_s / active_s if active_s else math.nan


def average_active(segments: Sequence[Segment], until_s: float, /, *, gpus_per_node: int = 1) -> float:
    """Return the number of GPUs (or nodes) that run something, averaged over time from 0 to `until_s`, s.

    Args:
        segments: of all GPUs.
        until_s: end of the average, s.
        gpus_per_node: consecutive GPUs that make a node, which is active while one of them is; 1 counts GPUs.
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
    """Return the energy of each node from the start to `until_s`: its GPUs, its host, and sleep while it is idle, J.

    A third account beside the two of the paper: EaCO counts whole servers and lets idle ones sleep. Going to sleep and
    waking up take no time here (assumed).

    Args:
        segments: of all GPUs.
        k: number of GPUs.
        until_s: end of the account, s.
        gpus_per_node: consecutive GPUs that make a node.
        host_w: power of a node apart from its GPUs, W, whenever it is awake.
        sleep_w: power of a whole node while none of its GPUs runs anything, W; None lets no node sleep.

    Returns:
        Shape (ceil(k / gpus_per_node),).
    """
    nodes = -(-k // gpus_per_node)
    always = {node: [(0.0, until_s)] for node in range(nodes)}
    awake = always if sleep_w is None else _awake(segments, gpus_per_node)
    energy_j = np.zeros(nodes)
    for gpu, start_s, end_s, _, _, power_w, _ in segments:
        energy_j[gpu // gpus_per_node] += power_w * _awake_s(awake, gpu // gpus_per_node, start_s, min(end_s, until_s))
    for node in range(nodes):
        awake_s = _awake_s(awake, node, 0.0, until_s)
        energy_j[node] += host_w * awake_s + (sleep_w or 0.0) * (until_s - awake_s)
    return energy_j


def _awake_s(awake: Mapping[int, list[tuple[float, float]]], node: int, start_s: float, end_s: float) -> float:
    """Return for how long a node is awake between two times, s."""
    spans = awake.get(node, [])
    first = max(bisect_right(spans, (start_s, math.inf)) - 1, 0)
    total_s = 0.0
    for from_s, to_s in spans[first:]:
        if from_s >= end_s:
            break
        total_s += max(0.0, min(to_s, end_s) - max(from_s, start_s))
    return total_s


def _awake(segments: Sequence[Segment], gpus_per_node: int) -> dict[int, list[tuple[float, float]]]:
    """Return the spans in which a node runs something, by node, in order and merged where they touch."""
    spans: dict[int, list[tuple[float, float]]] = {}
    for segment in sorted((segment for segment in segments if segment.residents), key=lambda segment: segment.start_s):
        own = spans.setdefault(segment.gpu // gpus_per_node, [])
        if own and segment.start_s <= own[-1][1]:
            own[-1] = (own[-1][0], max(own[-1][1], segment.end_s))
        else:
            own.append((segment.start_s, segment.end_s))
    return spans
