"""Result of a run: times of each task (Eqs. 8, 9), energy by both accounts (Eq. 7), and the timeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from heshare.running import timeline
from heshare.running.task_energy import energy_by_task
from heshare.running.timeline import Timeline, Totals
from heshare.running.timeline_figure import timeline_figure
from heshare.running.trace_events import write_trace
from heshare.shared import display
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require
from heshare.shared.html_tables import html_table
from heshare.world.cluster import Cluster
from heshare.world.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """Result of running n tasks under a policy on k GPUs; runs are equal if all but their wall times are.

    Attributes:
        policy: the policy's name.
        cluster: the GPUs.
        tasks: the task set, task i at index i.
        record: the timeline.
        device_energy_j: each device's own account from the start to the makespan, J, shape (k,).
        planning_s: wall time spent in the policy, s; never part of virtual time.
        predictor_calls: rows that the policy had predicted.
        events: events that the policy received.
        provenance: `emulated`, `measured`, or both.

    Example:
        >>> import heshare as hs
        >>> run = hs.run(4, "1xT4,1xA100", "sjf")
        >>> len(run.to_frame()), bool(run.makespan_s >= run.avg_jct_s)
        (4, True)
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

    @cached_property
    def _compared(self) -> tuple[object, ...]:
        return self.policy, self.cluster, self.tasks, self.record, self.device_energy_j.tobytes(), self.provenance

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    def __repr__(self) -> str:
        what = f"{display.short(self.policy)}, {len(self.tasks)} tasks on {display.short(str(self.cluster))}"
        values = f"{display.energy(self.energy_active_j)}, average JCT {display.number(self.avg_jct_s)} s"
        return f"Run({what}, {values}, {self.provenance})"

    def _repr_html_(self) -> str:
        return html_table(self, self.to_frame())

    @cached_property
    def _sums(self) -> Totals:
        return timeline.sum_up(self.record, self.tasks)

    @property
    def waiting_s(self) -> FloatArray:
        """Waiting times W_i of Eq. 8: on no GPU from arrival to completion, pauses included, s, shape (n,)."""
        return self._sums.waiting_s

    @property
    def execution_s(self) -> FloatArray:
        """Execution times E_i of Eq. 8: on a GPU, s, shape (n,)."""
        return self._sums.execution_s

    @property
    def completion_s(self) -> FloatArray:
        """Time of each task's completion, s after the start, shape (n,)."""
        return self._sums.completion_s

    @cached_property
    def jct_s(self) -> FloatArray:
        """Job completion times T_i = W_i + E_i (Eq. 8): completion less arrival, s, shape (n,)."""
        arrival_s: FloatArray = np.array([task.arrival_s for task in self.tasks], dtype=np.float64)
        return self.completion_s - arrival_s

    @property
    def avg_jct_s(self) -> float:
        """Average job completion time T_avg (Eq. 9), s."""
        return float(self.jct_s.mean())

    @property
    def deadline_misses(self) -> int:
        """Number of tasks that completed after their deadline."""
        deadline_s = np.array([task.deadline_s for task in self.tasks], dtype=np.float64)
        return int((self.completion_s > deadline_s * (1 + 1e-9)).sum())

    @cached_property
    def makespan_s(self) -> float:
        """Time of the last completion, s after the start."""
        return float(self.completion_s.max())

    @property
    def gpu_energy_active_j(self) -> FloatArray:
        """Each GPU's energy until its last task ends, idle gaps before that included, J, shape (k,)."""
        return self._sums.energy_active_j

    @property
    def gpu_energy_cluster_j(self) -> FloatArray:
        """Each GPU's energy until the makespan, J, shape (k,)."""
        return self._sums.energy_cluster_j

    @property
    def energy_active_j(self) -> float:
        """Total energy E_total (Eq. 7), the paper's active account: of each GPU until its last task ends, J."""
        return float(self.gpu_energy_active_j.sum())

    @property
    def energy_cluster_j(self) -> float:
        """Total energy by the cluster account: of all GPUs, idle ones included, until the makespan, J."""
        return float(self.gpu_energy_cluster_j.sum())

    @cached_property
    def utilisation(self) -> FloatArray:
        """Part of the makespan in which each GPU ran at least one task, 0 to 1, shape (k,)."""
        return self._sums.busy_s / self.makespan_s

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """One row a segment; see `Timeline.segment_frame`."""
        return self.record.segment_frame()

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """One row an interval; see `Timeline.interval_frame`."""
        return self.record.interval_frame()

    def energy_by_task(self) -> pd.DataFrame:
        """Return the energy of each task, J, a division of the energy of the GPUs on which it ran.

        In each segment of the timeline, in which n tasks run on a GPU that draws P for a time t, task i gets

            E_i = P_idle t / n + (P - P_idle) t w_i / (w_1 + ... + w_n)

        where P_idle is the power of the GPU with nothing running, and w_i the power above it that the task draws alone
        at its MPS percentage and the GPU's clock, both by the device model. A task that shares in another way than MPS
        is weighed as if it had its percentage under MPS. A task that the device model does not have has the mean weight
        of the others. The parts are equal where the model has none of the tasks, and where P is below P_idle. A task on
        several GPUs gets the sum of its parts.

        The energies of all tasks sum to that of the GPUs while tasks ran on them, whatever the model's error. Energy of
        a GPU on which nothing runs is no task's; with it, the sum is the cluster account.

        Returns:
            One row a task: task, workload, batch_size, gpu (its last one), energy_j, provenance.

        Raises:
            InputError: the run kept only totals and no timeline.

        Example:
            >>> import heshare as hs
            >>> run = hs.run(4, "1xA100", "random")
            >>> busy = run.timeline[run.timeline["tasks"] > 0]
            >>> bool(abs(run.energy_by_task()["energy_j"].sum() / busy["energy_j"].sum() - 1) < 1e-9)
            True
        """
        return energy_by_task(self)

    def plot(self) -> Figure:
        """Return a figure of the timeline: for each GPU its tasks, in the colour of their load, its clock and power.

        Raises:
            InputError: matplotlib is not installed.
        """
        return timeline_figure(self)

    def to_perfetto(self, path: str | Path) -> Path:
        """Write the run as Chrome trace events (JSON), which https://ui.perfetto.dev opens; return the path.

        Raises:
            InputError: the path is a folder.
        """
        return write_trace(self, path)

    def power_over_time(self) -> pd.DataFrame:
        """Return the cluster's power as a step function: columns time_s and power_w."""
        times_s, power_w = timeline.power_steps(self.record.segments)
        return pd.DataFrame({"time_s": times_s, "power_w": power_w})

    def summary(self) -> dict[str, float | int | str]:
        """Return the metrics by name, one row of a comparison; planning_s is wall time and differs from run to run.

        deadline_misses is there if a task has a deadline.
        """
        limited = any(task.deadline_s < float("inf") for task in self.tasks)
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
            **({"deadline_misses": self.deadline_misses} if limited else {}),
            "predictor_calls": self.predictor_calls,
            "events": self.events,
            "provenance": self.provenance,
            "planning_s": self.planning_s,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row a task: the task, its last GPU, and its times."""
        labels = self.cluster.labels
        return pd.DataFrame(
            {
                "task": [task.id for task in self.tasks],
                "workload": [task.workload.model for task in self.tasks],
                "batch_size": [task.workload.batch_size for task in self.tasks],
                "iterations": [task.iterations for task in self.tasks],
                "gpu": [labels[gpu] for gpu in self._sums.last_gpu.astype(int)],
                "arrival_s": [task.arrival_s for task in self.tasks],
                "waiting_s": self.waiting_s,
                "execution_s": self.execution_s,
                "jct_s": self.jct_s,
                "provenance": self.provenance,
            }
        )


def jct_summary(jct_s: ArrayLike, /) -> dict[str, float]:
    """Return the average (Eq. 9), median and 99th percentile of JCTs, s: avg_jct_s, median_jct_s, p99_jct_s.

    Raises:
        InputError: no JCT.
    """
    sample: FloatArray = np.asarray(jct_s, dtype=np.float64)
    require("jct_s", "no JCT", sample.size > 0, "at least one", "Summarise a run with at least one task.")
    median_s, p99_s = np.percentile(sample, [50, 99])
    return {"avg_jct_s": float(sample.mean()), "median_jct_s": float(median_s), "p99_jct_s": float(p99_s)}
