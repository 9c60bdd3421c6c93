"""Runs of any length in virtual time: with checkpoints, and with totals or a streamed timeline in place of a list."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heshare.devices.device import Device
from heshare.errors import InputError
from heshare.experiments.long_runs.checkpoint import EVERY_S, Checkpoints, run_key
from heshare.experiments.long_runs.streaming import StreamingRecorder, TotalsRecorder
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import begin, complete
from heshare.running.timeline import RunRecorder
from heshare.signals import handling
from heshare.world.cluster import Cluster
from heshare.world.task import Task

FULL, SUMMARY = "full", "summary"


def run_long(
    tasks: Sequence[Task],
    cluster: Cluster,
    policy: Policy,
    *,
    predictor: Predictor,
    rng: np.random.Generator,
    devices: Sequence[Device] | None = None,
    max_time_s: float = math.inf,
    start_cost_s: float = 0.0,
    progress: bool = False,
    record: str | Path = SUMMARY,
    checkpoint: str | Path | None = None,
    checkpoint_s: float = EVERY_S,
) -> Run:
    """Run a task set under a policy until every task has completed, as `heshare.running.run.run` does in virtual time.

    Args:
        tasks: the task set; task i has id i.
        cluster: the GPUs.
        policy: decides what starts where and when.
        predictor: predicts for the policy.
        rng: the policy's random generator.
        devices: one for each GPU, in order; by default an emulated one each.
        max_time_s: the run fails when it reaches this time, s.
        start_cost_s: time that a task holds its memory without progress whenever it starts on a GPU, s.
        progress: show a progress bar over tasks.
        record: `full` keeps the timeline in memory; `summary` only adds up times and energies; a `Path` also writes
            the timeline to `segments.csv` and `intervals.csv` in that folder.
        checkpoint: a file from which an interrupted run continues when this function is called again with the same
            arguments; the result is the same to the last byte. The file is removed when the run has completed.
        checkpoint_s: wall time from one checkpoint to the next, s. SIGINT and SIGTERM write a checkpoint too.

    Raises:
        InputError: as `run`, another `record`, or a checkpoint of another run.
        PolicyError: as `run`.
        DeviceError: as `run`.
    """
    ordered = tuple(sorted(tasks, key=lambda task: task.id))
    if isinstance(record, Path):
        record = record.absolute()
    elif record not in (FULL, SUMMARY):
        expected = f"{FULL} or {SUMMARY}, or the Path of a folder"
        raise InputError(repr(record), expected, "Choose one of them.", column="record")
    kinds = None if devices is None else [type(device) for device in devices]
    parts = (policy.name, cluster, ordered, record, max_time_s, start_cost_s, kinds)
    checkpoints = None if checkpoint is None else Checkpoints(checkpoint, run_key(parts, rng), every_s=checkpoint_s)
    state = checkpoints.load() if checkpoints else None
    if state is None:
        state = begin(
            ordered,
            cluster,
            policy,
            predictor=predictor,
            rng=rng,
            devices=devices,
            max_time_s=max_time_s,
            start_cost_s=start_cost_s,
            recorder=_recorder(record, cluster, ordered),
        )
    if checkpoints is None:
        return complete(state, progress=progress)
    with handling(checkpoints.request_end):
        result = complete(state, progress=progress, after_event=lambda: checkpoints.after_event(state))
    checkpoints.remove()
    return result


def _recorder(record: str | Path, cluster: Cluster, tasks: tuple[Task, ...]) -> RunRecorder | None:
    if isinstance(record, Path):
        return StreamingRecorder(cluster.labels, tasks, record)
    return None if record == FULL else TotalsRecorder(cluster.labels, tasks)
