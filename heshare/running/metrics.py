"""What the systems of the field report beside energy and average JCT: pure functions over a run's record.

JCTs in percentiles, slowdown, deadlines met, GPU utilisation, active GPUs over time, nodes that sleep, and any of them
by priority class. Both energy accounts and power over time are in `heshare.running.accounts`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heshare.errors import InputError
from heshare.running.accounts import FloatArray
from heshare.running.timeline import Segment
from heshare.world.task import Task


def jct_summary(jct_s: ArrayLike, /) -> dict[str, float]:
    """Average, median and 99th percentile of JCTs, s: avg_jct_s, median_jct_s, p99_jct_s.

    Raises:
        InputError: no JCT.
    """
    sample: FloatArray = np.asarray(jct_s, dtype=np.float64)
    if not sample.size:
        raise InputError(
            column="jct_s", found="no JCT", expected="at least one", action="Summarise a run with at least one task."
        )
    median_s, p99_s = np.percentile(sample, [50, 99])
    return {"avg_jct_s": float(sample.mean()), "median_jct_s": float(median_s), "p99_jct_s": float(p99_s)}


def slowdown(jct_s: ArrayLike, alone_s: ArrayLike, /) -> FloatArray:
    """Each task's JCT over its time alone, shape (n,); 1 is a task that neither waited nor shared."""
    return np.asarray(jct_s, dtype=np.float64) / np.asarray(alone_s, dtype=np.float64)


def deadlines_met(completion_s: ArrayLike, tasks: Sequence[Task], /) -> float:
    """Share of the tasks with a deadline that completed by it; NaN when none has one.

    Args:
        completion_s: when each task completed, s, shape (n,); NaN for one that never did.
        tasks: the tasks, in the same order.
    """
    deadline_s = np.array([task.deadline_s for task in tasks])
    bound = np.isfinite(deadline_s)
    if not bound.any():
        return math.nan
    done_s = np.asarray(completion_s, dtype=np.float64)[bound]
    # Rounded sums of intervals may pass a deadline that is met to the moment.
    return float(np.mean(done_s <= deadline_s[bound] * (1 + 1e-9)))


def by_class(values: ArrayLike, tasks: Sequence[Task], /) -> dict[int, float]:
    """The mean of one value a task, shape (n,), for each priority class, most urgent first."""
    sample: FloatArray = np.asarray(values, dtype=np.float64)
    classes = np.array([task.priority for task in tasks])
    return {int(each): float(sample[classes == each].mean()) for each in np.unique(classes)}


def gpu_utilisation(segments: Sequence[Segment], busy: Callable[[int, int, float], float], /) -> float:
    """Average GPU utilisation while GPUs run something: time-weighted, capped at 1 at every moment.

    This is the driver's measure (the share of time in which some kernel runs), not that of occupied SMs.

    Args:
        segments: of all GPUs.
        busy: of (task, GPU, seconds per iteration there), the share of time in which the task's kernels run.

    Returns:
        From 0 to 1; NaN when nothing ever ran.
    """
    held_s = total_s = 0.0
    for gpu, start_s, end_s, _, _, _, residents in segments:
        if residents:
            share = sum(busy(task, gpu, time_s) for task, _, time_s in residents)
            held_s += min(1.0, share) * (end_s - start_s)
            total_s += end_s - start_s
    return held_s / total_s if total_s else math.nan


def active_steps(segments: Sequence[Segment], /, *, gpus_per_node: int = 1) -> tuple[FloatArray, NDArray[np.int64]]:
    """How many GPUs (or nodes) run something, as a step function: times s, shape (m,), and counts from each on, (m,).

    Args:
        segments: of all GPUs.
        gpus_per_node: consecutive GPUs that make a node, which is active when one of them is; 1 counts GPUs.
    """
    spans = [(start_s, end_s) for node in _awake(segments, gpus_per_node).values() for start_s, end_s in node]
    if not spans:
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    when = np.array(spans).T.reshape(-1)
    times_s, place = np.unique(when, return_inverse=True)
    change = np.repeat([1.0, -1.0], len(spans))
    count = np.cumsum(np.bincount(place, weights=change, minlength=len(times_s)))
    return times_s, np.round(count).astype(np.int64)


def average_active(segments: Sequence[Segment], until_s: float, /, *, gpus_per_node: int = 1) -> float:
    """How many GPUs (or nodes) run something, averaged over time from 0 to `until_s`, s."""
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
    """Energy of whole nodes from the start to `until_s`: their GPUs, their host, and sleep where nothing runs, J.

    A third account beside the two of the paper: EaCO counts servers, and lets idle ones sleep. Going to sleep and
    waking up take no time here (assumed).

    Args:
        segments: of all GPUs.
        k: how many GPUs there are.
        until_s: where the account ends, s.
        gpus_per_node: consecutive GPUs that make a node.
        host_w: power of a node apart from its GPUs, W, whenever it is awake.
        sleep_w: power of a whole node while none of its GPUs runs anything, W; None lets no node sleep.

    Returns:
        Energy of each node, shape (ceil(k / gpus_per_node),).
    """
    nodes = -(-k // gpus_per_node)
    always = {node: [(0.0, until_s)] for node in range(nodes)}
    awake = always if sleep_w is None else _awake(segments, gpus_per_node)
    total = np.zeros(nodes)
    for gpu, start_s, end_s, _, _, power_w, _ in segments:
        total[gpu // gpus_per_node] += power_w * _awake_s(awake, gpu // gpus_per_node, start_s, min(end_s, until_s))
    for node in range(nodes):
        awake_s = _awake_s(awake, node, 0.0, until_s)
        total[node] += host_w * awake_s + (sleep_w or 0.0) * (until_s - awake_s)
    return total


def _awake_s(awake: Mapping[int, list[tuple[float, float]]], node: int, start_s: float, end_s: float) -> float:
    """For how long of a stretch of time a node is awake, s."""
    spans = awake.get(node, [])
    first = max(bisect_right(spans, (start_s, math.inf)) - 1, 0)
    total_s = 0.0
    for from_s, to_s in spans[first:]:
        if from_s >= end_s:
            break
        total_s += max(0.0, min(to_s, end_s) - max(from_s, start_s))
    return total_s


def _awake(segments: Sequence[Segment], gpus_per_node: int) -> dict[int, list[tuple[float, float]]]:
    """For each node, the spans in which one of its GPUs runs something, in order, none touching the next."""
    spans: dict[int, list[tuple[float, float]]] = {}
    for each in sorted((one for one in segments if one.residents), key=lambda one: one.start_s):
        own = spans.setdefault(each.gpu // gpus_per_node, [])
        if own and each.start_s <= own[-1][1]:
            own[-1] = (own[-1][0], max(own[-1][1], each.end_s))
        else:
            own.append((each.start_s, each.end_s))
    return spans
