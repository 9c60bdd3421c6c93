"""Runs of a stream of tasks in virtual time: memory for the tasks in the cluster, not for all that ever arrive."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heshare.lab.long_runs.run_long import EVERY_S, Checkpoints, complete_saving, run_key
from heshare.lab.long_runs.stream_totals import StreamTotals
from heshare.lab.long_runs.streaming import StreamingRecorder
from heshare.lab.long_runs.task_stream import TaskStream, checked_stream
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import begin
from heshare.shared.errors import require
from heshare.world.cluster import Cluster
from heshare.world.task import Task


@dataclass(frozen=True)
class StreamedRun:
    """Result of a run of a stream: sums over its tasks in place of values of each.

    Sums are exactly rounded (`math.fsum`), so they do not depend on the order in which tasks complete. The mean of
    `Run` is numpy's, whose last bits can differ.

    Attributes:
        run: the run without its tasks: energies of GPUs, events, wall time in the policy.
        count: how many tasks have completed.
        jct_s: the sum of their job completion times, s.
        waiting_s: the sum of their waiting times, s.
        execution_s: the sum of their execution times, s.
        makespan_s: the time of the last completion, s.
    """

    run: Run
    count: int
    jct_s: float
    waiting_s: float
    execution_s: float
    makespan_s: float

    def summary(self) -> dict[str, float | int | str]:
        """Return the metrics by name, as `Run.summary` without median and percentile of the JCTs."""
        run, busy_s = self.run, self.run.totals.busy_s if self.run.totals else np.zeros(1)
        return {
            "policy": run.policy,
            "cluster": str(run.cluster),
            "tasks": self.count,
            "avg_jct_s": self.jct_s / self.count,
            "avg_waiting_s": self.waiting_s / self.count,
            "avg_execution_s": self.execution_s / self.count,
            "makespan_s": self.makespan_s,
            "energy_active_j": run.energy_active_j,
            "energy_cluster_j": run.energy_cluster_j,
            "utilisation": float((busy_s / self.makespan_s).mean()),
            "predictor_calls": run.predictor_calls,
            "events": run.events,
            "provenance": run.provenance,
            "planning_s": run.planning_s,
        }


def run_stream(
    tasks: Iterable[Task],
    cluster: Cluster,
    policy: Policy,
    *,
    predictor: Predictor,
    rng: np.random.Generator,
    max_time_s: float = math.inf,
    start_cost_s: float = 0.0,
    progress: bool = False,
    folder: Path | None = None,
    timeline: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_s: float = EVERY_S,
) -> StreamedRun:
    """Run tasks that are read one by one, on emulated GPUs, until all have completed.

    Kept in memory are the tasks that have arrived and are not over, those of the next arrival, and as many again that
    are over; what the policy keeps of each task is its own. The policy sees `view.pending` as `inf` until the next
    arrival is the last. Everything else is as in `run_long`, to the last bit.

    A task is checked when it is read, one arrival before its own: a bad one ends the run there.

    Args:
        tasks: by arrival, with ids 0, 1, 2, ... in this order, such as a generator.
        cluster: the GPUs.
        policy: decides what starts where and when; it is reset first.
        predictor: predicts for the policy.
        rng: the policy's randomness; a generator of tasks needs its own.
        max_time_s: give up when the run reaches this time, s.
        start_cost_s: as in `run`, s.
        progress: show the number of tasks that have completed.
        folder: for `tasks.csv`, a row for each task when it completes; None writes no file.
        timeline: also write `segments.csv` and `intervals.csv` there.
        checkpoint: file from which an interrupted run continues, as in `run_long`. `tasks` is then read again from its
            beginning, without running what was read before: it must give the same tasks, which is checked.
        checkpoint_s: wall time from one checkpoint to the next, s.

    Raises:
        InputError: as `run`, tasks that are not by arrival, other tasks than before the checkpoint, a checkpoint of
            another run, or a timeline without a folder.
        PolicyError: as `run`.
    """
    require("timeline", "a timeline without a folder", folder is not None or not timeline, "a folder", "Name one.")
    checked = checked_stream(tasks, cluster, policy)
    folder = None if folder is None else folder.absolute()
    parts = (policy.name, cluster.gpus, "stream", folder, timeline, max_time_s, start_cost_s)
    checkpoints = None if checkpoint is None else Checkpoints(checkpoint, run_key(parts, rng), every_s=checkpoint_s)
    state = checkpoints.load() if checkpoints else None
    if state is None:
        stream = TaskStream(checked)
        totals = StreamTotals(cluster.labels, stream.live, folder)
        state = begin(
            stream,
            cluster,
            policy,
            predictor=predictor,
            rng=rng,
            max_time_s=max_time_s,
            start_cost_s=start_cost_s,
            recorder=StreamingRecorder(cluster.labels, totals, folder) if timeline and folder else totals,
        )
    elif isinstance(state.loop.stream, TaskStream):
        state.loop.stream.continue_with(checked)
    recorder = state.loop.recorder
    run = complete_saving(state, checkpoints, progress=progress)
    done = recorder.totals if isinstance(recorder, StreamingRecorder) else recorder
    assert isinstance(done, StreamTotals)
    return StreamedRun(run, done.count, done.jct_s.value, done.waiting_s.value, done.execution_s.value, done.last_s)
