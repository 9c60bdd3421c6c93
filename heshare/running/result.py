"""The result of a run: per-task times, both energy accounts, and the timeline that they are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from heshare.running import accounts
from heshare.running.accounts import FloatArray
from heshare.running.metrics import jct_summary
from heshare.running.timeline import Timeline
from heshare.running.totals import Totals
from heshare.world.cluster import Cluster
from heshare.world.task import Task


@dataclass(frozen=True)
class Run:
    """What happened when a policy ran a task set on a cluster.

    Attributes:
        policy: the policy's name.
        cluster: the GPUs.
        tasks: the task set, task i at index i.
        record: the timeline; empty where only totals were kept.
        device_energy_j: each device's own account from the start to the makespan, J, shape (k,).
        planning_s: wall time spent in the policy, s; reported, never part of virtual time.
        predictor_calls: rows that the policy asked of the predictor.
        events: events that the policy was told.
        provenance: `emulated`, `measured`, or both.
        totals: what was added up on the way in place of a timeline, or None.
    """

    policy: str
    cluster: Cluster
    tasks: tuple[Task, ...]
    record: Timeline
    device_energy_j: FloatArray
    planning_s: float
    predictor_calls: int
    events: int
    provenance: str
    totals: Totals | None = None

    @cached_property
    def waiting_s(self) -> FloatArray:
        """W_i: time on no GPU from arrival to completion, pauses included, s, shape (n,)."""
        if self.totals is not None:
            return self.totals.waiting_s
        return accounts.waiting_s(self.record.intervals, self.tasks)

    @cached_property
    def execution_s(self) -> FloatArray:
        """E_i: time on a GPU, s, shape (n,)."""
        if self.totals is not None:
            return self.totals.execution_s
        return accounts.execution_s(self.record.intervals, len(self.tasks))

    @cached_property
    def completion_s(self) -> FloatArray:
        """When each task completed, s after the start, shape (n,)."""
        if self.totals is not None:
            return self.totals.completion_s
        return accounts.completion_s(self.record.intervals, len(self.tasks))

    @cached_property
    def jct_s(self) -> FloatArray:
        """JCT_i = W_i + E_i (Eq. 8): completion less arrival, s, shape (n,)."""
        arrival_s: FloatArray = np.array([task.arrival_s for task in self.tasks], dtype=np.float64)
        return self.completion_s - arrival_s

    @property
    def avg_jct_s(self) -> float:
        """T_avg (Eq. 9), s."""
        return float(self.jct_s.mean())

    @cached_property
    def makespan_s(self) -> float:
        """When the last task completed, s after the start."""
        return float(self.completion_s.max())

    @cached_property
    def gpu_energy_active_j(self) -> FloatArray:
        """Each GPU's energy until its last task ends, idle gaps before that included, J, shape (k,)."""
        if self.totals is not None:
            return self.totals.energy_active_j
        ends = accounts.last_end_s(self.record.intervals, len(self.cluster))
        return accounts.energy_j(self.record.segments, ends)

    @cached_property
    def gpu_energy_cluster_j(self) -> FloatArray:
        """Each GPU's energy until the makespan, J, shape (k,)."""
        if self.totals is not None:
            return self.totals.energy_cluster_j
        return accounts.energy_j(self.record.segments, np.full(len(self.cluster), self.makespan_s))

    @property
    def energy_active_j(self) -> float:
        """The active account (the paper's, Eq. 7): the sum over GPUs of energy until the last task of each, J."""
        return float(self.gpu_energy_active_j.sum())

    @property
    def energy_cluster_j(self) -> float:
        """The cluster account: energy of all GPUs, idle included, until the makespan, J."""
        return float(self.gpu_energy_cluster_j.sum())

    @cached_property
    def utilisation(self) -> FloatArray:
        """Share of the makespan in which each GPU ran at least one task, shape (k,)."""
        busy_s = self.totals.busy_s if self.totals else accounts.busy_s(self.record.segments, len(self.cluster))
        return np.asarray(busy_s / self.makespan_s, dtype=np.float64)

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """One row a segment of a GPU (see `Timeline.segment_frame`)."""
        return self.record.segment_frame()

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """One row a stretch of a task on a GPU (see `Timeline.interval_frame`)."""
        return self.record.interval_frame()

    def power_over_time(self) -> pd.DataFrame:
        """The cluster's power as a step function: columns time_s and power_w."""
        times_s, power_w = accounts.power_steps(self.record.segments)
        return pd.DataFrame({"time_s": times_s, "power_w": power_w})

    def summary(self) -> dict[str, float | int | str]:
        """The numbers of one row of a comparison; planning_s is wall time and differs from run to run."""
        return {
            "policy": self.policy,
            "cluster": str(self.cluster),
            "tasks": len(self.tasks),
            **jct_summary(self.jct_s),
            "avg_waiting_s": float(self.waiting_s.mean()),
            "avg_execution_s": float(self.execution_s.mean()),
            "makespan_s": self.makespan_s,
            "energy_active_j": self.energy_active_j,
            "energy_cluster_j": self.energy_cluster_j,
            "utilisation": float(self.utilisation.mean()),
            "predictor_calls": self.predictor_calls,
            "events": self.events,
            "provenance": self.provenance,
            "planning_s": self.planning_s,
        }

    def to_frame(self) -> pd.DataFrame:
        """One row a task: what it is, where it last ran, and its times."""
        where = {each.task: each.gpu for each in self.record.intervals}
        if self.totals is not None:
            where = dict(enumerate(self.totals.last_gpu.astype(int).tolist()))
        labels = self.cluster.labels
        return pd.DataFrame(
            {
                "task": [task.id for task in self.tasks],
                "workload": [task.workload.model for task in self.tasks],
                "batch_size": [task.workload.batch_size for task in self.tasks],
                "iterations": [task.iterations for task in self.tasks],
                "gpu": [labels[where[task.id]] for task in self.tasks],
                "arrival_s": [task.arrival_s for task in self.tasks],
                "waiting_s": self.waiting_s,
                "execution_s": self.execution_s,
                "jct_s": self.jct_s,
                "provenance": self.provenance,
            }
        )
