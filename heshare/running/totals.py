"""Accounts that are added up while a run goes on, where a timeline would be too long to keep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heshare.devices.device import Glance
from heshare.running.accounts import FloatArray
from heshare.running.timeline import Interval, Timeline
from heshare.world.task import Task


@dataclass(frozen=True)
class Totals:
    """What a run's timeline would add up to; n tasks, k GPUs.

    Attributes:
        waiting_s: W_i of Eq. 8, s, shape (n,).
        execution_s: E_i of Eq. 8, s, shape (n,).
        completion_s: when each task completed, s, shape (n,); NaN for one that never did.
        last_gpu: the GPU that each task was on last, shape (n,).
        energy_active_j: each GPU's energy until its last task ends, J, shape (k,).
        energy_cluster_j: each GPU's energy until the end, J, shape (k,).
        busy_s: time that each GPU ran at least one task, s, shape (k,).
    """

    waiting_s: FloatArray
    execution_s: FloatArray
    completion_s: FloatArray
    last_gpu: FloatArray
    energy_active_j: FloatArray
    energy_cluster_j: FloatArray
    busy_s: FloatArray


class Accountant:
    """Adds up instead of recording: memory for each task and each GPU, whatever the length of the run.

    Args:
        labels: of the GPUs.
        tasks: the task set.
    """

    def __init__(self, labels: tuple[str, ...], tasks: Sequence[Task]) -> None:
        k, n = len(labels), len(tasks)
        self.labels = labels
        self._since_s, self._power_w, self._runs = [0.0] * k, [0.0] * k, [False] * k
        self._energy_j, self._active_j, self._busy_s = [0.0] * k, [0.0] * k, [0.0] * k
        self._left_s = [task.arrival_s for task in tasks]
        self._waiting_s, self._execution_s, self._completion_s = [0.0] * n, [0.0] * n, [math.nan] * n
        self._last_gpu = [-1] * n

    def observe(self, gpu: int, now_s: float, seen: Glance) -> None:
        """From `now_s` on, the GPU is as was seen."""
        held_s = now_s - self._since_s[gpu]
        self._energy_j[gpu] += self._power_w[gpu] * held_s
        if self._runs[gpu]:
            self._busy_s[gpu] += held_s
        self._since_s[gpu], self._power_w[gpu], self._runs[gpu] = now_s, seen.power_w, bool(seen.residents)

    def alike(self, gpus: Sequence[int], now_s: float, seen: Glance) -> None:
        """From `now_s` on, all these GPUs are as was seen of one of them."""
        # The inner loop of long runs: names without dots.
        since_s, power_w, runs = self._since_s, self._power_w, self._runs
        energy_j, busy_s = self._energy_j, self._busy_s
        now_w, now_runs = seen.power_w, bool(seen.residents)
        for gpu in gpus:
            held_s = now_s - since_s[gpu]
            energy_j[gpu] += power_w[gpu] * held_s
            if runs[gpu]:
                busy_s[gpu] += held_s
            since_s[gpu] = now_s
            power_w[gpu] = now_w
            runs[gpu] = now_runs

    def close(self, last: Interval, gpus: Sequence[int]) -> None:
        """A task has left its GPUs; `last` is its stretch on one of them."""
        task, start_s, end_s = last.task, last.start_s, last.end_s
        self._waiting_s[task] += start_s - self._left_s[task]
        self._execution_s[task] += end_s - start_s
        self._left_s[task] = end_s
        self._last_gpu[task] = gpus[-1]
        if last.outcome == "completed":
            self._completion_s[task] = end_s
        for gpu in gpus:
            self._active_j[gpu] = self._energy_j[gpu] + self._power_w[gpu] * (end_s - self._since_s[gpu])

    def finish(self, now_s: float) -> tuple[Timeline, Totals]:
        """An empty timeline, and the totals up to `now_s`."""
        held_s = now_s - np.array(self._since_s)
        return Timeline(self.labels, (), ()), Totals(
            waiting_s=np.array(self._waiting_s),
            execution_s=np.array(self._execution_s),
            completion_s=np.array(self._completion_s),
            last_gpu=np.array(self._last_gpu, dtype=np.float64),
            energy_active_j=np.array(self._active_j),
            energy_cluster_j=np.array(self._energy_j) + np.array(self._power_w) * held_s,
            busy_s=np.array(self._busy_s) + np.where(self._runs, held_s, 0.0),
        )
