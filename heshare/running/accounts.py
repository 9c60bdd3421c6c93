"""Metrics from the timeline: waiting, execution and completion times (Eqs. 8, 9), energy by both accounts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from heshare.running.timeline import Interval, Segment
from heshare.world.task import Task

FloatArray = NDArray[np.float64]


def stretches(intervals: Iterable[Interval], /) -> list[Interval]:
    """One interval for each time that a task ran, whatever number of GPUs it ran on at once; in the order given."""
    return list({(each.task, each.start_s, each.end_s): each for each in intervals}.values())


def execution_s(intervals: Sequence[Interval], n: int, /) -> FloatArray:
    """Time that each of n tasks spent on its GPU or GPUs, E_i of Eq. 8, s, shape (n,)."""
    total = np.zeros(n)
    for each in stretches(intervals):
        total[each.task] += each.end_s - each.start_s
    return total


def waiting_s(intervals: Sequence[Interval], tasks: Sequence[Task], /) -> FloatArray:
    """Time that each task spent on no GPU between arrival and completion, W_i of Eq. 8, pauses included, s, (n,)."""
    total = np.zeros(len(tasks))
    left_s = np.array([task.arrival_s for task in tasks])
    for each in sorted(stretches(intervals), key=lambda one: (one.task, one.start_s, one.end_s)):
        total[each.task] += each.start_s - left_s[each.task]
        left_s[each.task] = each.end_s
    return total


def completion_s(intervals: Sequence[Interval], n: int, /) -> FloatArray:
    """When each of n tasks completed, s, shape (n,); NaN for one that never did."""
    when = np.full(n, np.nan)
    for each in intervals:
        if each.outcome == "completed":
            when[each.task] = each.end_s
    return when


def last_end_s(intervals: Sequence[Interval], k: int, /) -> FloatArray:
    """When the last task left each of k GPUs, s, shape (k,); 0 for a GPU that never ran one."""
    last = np.zeros(k)
    for each in intervals:
        last[each.gpu] = max(last[each.gpu], each.end_s)
    return last


def energy_j(segments: Sequence[Segment], until_s: FloatArray, /) -> FloatArray:
    """Integral of each GPU's power from the start to `until_s`, J.

    Args:
        segments: of all GPUs, in any order.
        until_s: where each GPU's account ends, s, shape (k,). The active account ends with its last task, the
            cluster account with the makespan.

    Returns:
        Energy of each GPU, shape (k,).
    """
    if not segments:
        return np.zeros(len(until_s))
    gpu, start_s, end_s, power_w = _columns(segments)
    held_s = np.clip(np.minimum(end_s, until_s[gpu]) - start_s, 0.0, None)
    total: FloatArray = np.bincount(gpu, weights=power_w * held_s, minlength=len(until_s)).astype(np.float64)
    return total


def busy_s(segments: Sequence[Segment], k: int, /) -> FloatArray:
    """Time that each of k GPUs ran at least one task, s, shape (k,)."""
    return np.array(
        [sum(each.end_s - each.start_s for each in segments if each.gpu == gpu and each.residents) for gpu in range(k)],
        dtype=float,
    )


def power_steps(segments: Sequence[Segment], /) -> tuple[FloatArray, FloatArray]:
    """The cluster's power as a step function: times s, shape (m,), and power from each time on, W, shape (m,)."""
    if not segments:
        return np.zeros(0), np.zeros(0)
    _, start_s, end_s, power_w = _columns(segments)
    when = np.concatenate([start_s, end_s])
    change = np.concatenate([power_w, -power_w])
    times, place = np.unique(when, return_inverse=True)
    # Rounding keeps the sum of +P and -P from showing as 1e-14 W once all is over.
    level: FloatArray = np.cumsum(np.bincount(place, weights=change, minlength=len(times))).astype(np.float64)
    return times, np.round(level, 9)


def _columns(segments: Sequence[Segment]) -> tuple[NDArray[np.int64], FloatArray, FloatArray, FloatArray]:
    return (
        np.array([each.gpu for each in segments], dtype=np.int64),
        np.array([each.start_s for each in segments], dtype=float),
        np.array([each.end_s for each in segments], dtype=float),
        np.array([each.power_w for each in segments], dtype=float),
    )
