"""Conversion of the jobs of a trace into tasks: selection for a cluster, scaling to a load, and workloads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from heshare.devices.task_sizes import time_alone_s
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.venus import generate_trace
from heshare.shared.errors import InputError
from heshare.world.helios_trace import JobTrace, TraceJob, read_trace
from heshare.world.task import Task
from heshare.world.task_set import models_of
from heshare.world.workload import Workload

DURATIONS_S = (60.0, 86_400.0)
"""The shortest and longest duration of `venus_trainings`, s; assumed. A small cluster would wait for a job of weeks."""


def usable_jobs(trace: JobTrace, *, most_gpus: int) -> JobTrace:
    """Return the jobs that can be tasks, from time 0 on; the others are left out and counted.

    A task has at least one GPU, at most `most_gpus`, and a duration above zero.

    Raises:
        InputError: no job is left.
    """
    skipped = Counter(trace.skipped)
    kept: list[TraceJob] = []
    for job in trace.jobs:
        if job.gpus > most_gpus:
            skipped["gpu_num: more GPUs than there are"] += 1
        elif job.gpus < 1:
            skipped["gpu_num: no GPU"] += 1
        elif job.duration_s <= 0:
            skipped["duration: none"] += 1
        else:
            kept.append(job)
    if not kept:
        raise InputError("no job for a GPU", "at least one", "Choose another trace or cluster.", file=trace.file)
    first_s = kept[0].submit_s
    jobs = tuple(replace(job, submit_s=job.submit_s - first_s) for job in kept)
    return replace(trace, jobs=jobs, skipped=dict(sorted(skipped.items())))


def offered_load(trace: JobTrace, gpus: int, /) -> float:
    """Return the GPU time that the jobs request over that of `gpus` GPUs from the first submission to the last."""
    span_s = trace.jobs[-1].submit_s - trace.jobs[0].submit_s
    requested_s = sum(job.duration_s * job.gpus for job in trace.jobs)
    return requested_s / (gpus * span_s) if span_s > 0 else float("inf")


def scale_to_load(trace: JobTrace, gpus: int, load: float, /) -> JobTrace:
    """Return the trace with all gaps scaled by one factor, so that `offered_load` is `load`.

    Bursts keep their form; arrivals no longer follow the hours of the day.

    Raises:
        InputError: the load is not above zero, or all jobs are submitted at one moment.
    """
    offered = offered_load(trace, gpus)
    if not 0 < load < float("inf") or offered == float("inf"):
        raise InputError(
            f"a load of {load:g} for {len(trace.jobs)} jobs",
            "a load above zero and jobs at more than one moment",
            "Correct the load, or take more jobs.",
            column="load",
        )
    first_s = trace.jobs[0].submit_s
    jobs = tuple(replace(job, submit_s=first_s + (job.submit_s - first_s) * offered / load) for job in trace.jobs)
    return replace(trace, jobs=jobs)


def tasks_of_trace(
    trace: JobTrace,
    *,
    rng: np.random.Generator,
    training_pool: Sequence[Workload],
    inference_pool: Sequence[Workload] = (),
    inference: float = 0.0,
) -> tuple[Task, ...]:
    """Return each job as a task whose time alone, on the type of GPU of its workload's record, is the job's duration.

    A training workload is drawn among those of which the job can complete at least one epoch. A job that is too short
    for any of them gets the workload with the shortest epoch. The epochs of a task are those of its workload.

    Args:
        trace: usable jobs, by submission.
        rng: the source of randomness.
        training_pool: training workloads to draw from.
        inference_pool: inference workloads to draw from.
        inference: share of the jobs on one GPU that are inference tasks; the other jobs, and all gangs, train.

    Raises:
        InputError: an empty pool, or a share outside 0 to 1.
    """
    if not 0 <= inference <= 1 or (inference < 1 and not training_pool) or (inference > 0 and not inference_pool):
        raise InputError(
            f"{inference:g} with {len(inference_pool)} inference and {len(training_pool)} training workloads",
            "a share from 0 to 1, and workloads of each kind to draw from",
            "Correct the share or the pools.",
            column="inference",
        )
    epoch_s = np.array([_epoch_s(workload) for workload in training_pool])
    order = np.argsort(epoch_s, kind="stable")
    fitting = np.searchsorted(epoch_s[order], [job.duration_s for job in trace.jobs], side="right")
    # Two numbers for each job, whether it needs both or not: so a job's draw does not depend on the jobs before it.
    drawn = rng.random((len(trace.jobs), 2))
    tasks = []
    for index, (job, (kind, place)) in enumerate(zip(trace.jobs, drawn, strict=True)):
        if job.gpus == 1 and kind < inference:
            workload = inference_pool[int(place * len(inference_pool))]
            tasks.append(Task(index, workload, job.duration_s / time_alone_s(workload), job.submit_s))
            continue
        workload = training_pool[order[int(place * max(fitting[index], 1))]]
        steps = job.duration_s / training.step(workload).step_s
        epochs = training.epoch_count(workload, steps, job.gpus)
        tasks.append(Task(index, workload, steps, job.submit_s, gpus=job.gpus, epochs=epochs))
    return tuple(tasks)


def venus_tasks(
    n: int | None = 60,
    *,
    rng: np.random.Generator,
    gpus: int,
    load: float | None = None,
    inference: float = 0.0,
    file: str | Path | None = None,
    on_bad: str = "raise",
) -> tuple[tuple[Task, ...], JobTrace]:
    """Return the first jobs of the cluster Venus of Helios as tasks for a cluster, and the trace that they come from.

    Args:
        n: number of jobs, of those that the cluster can hold; None is all of the half-year.
        rng: the source of randomness.
        gpus: number of GPUs of the cluster. A generated job for more is left out and counted.
        load: the offered load, see `offered_load`; None leaves arrivals as they were.
        inference: share of the jobs on one GPU that are inference tasks of Table IV; the others train as in Gavel's
            record.
        file: the published trace; without it, a trace is generated that meets its published figures.
        on_bad: `raise` refuses the first row of the file that is bad or requests more GPUs than there are, `skip`
            leaves out and counts such rows.

    Returns:
        The tasks, and the trace: `origin` names its source, `report()` lists what was left out.

    Raises:
        InputError: an argument is out of its range, or the trace is bad.
    """
    # Some jobs are for more GPUs than a small cluster has; three times as many leave enough of one GPU alone.
    trace = (
        read_trace(file, on_bad=on_bad, most_gpus=gpus)
        if file is not None
        else generate_trace(None if n is None else 3 * n, rng=rng)
    )
    trace = usable_jobs(trace, most_gpus=gpus)
    trace = replace(trace, jobs=trace.jobs[:n])
    if load is not None:
        trace = scale_to_load(trace, gpus, load)
    pool = [Workload(name, size) for name in models_of("mixed") for size in (4, 8)]
    tasks = tasks_of_trace(
        trace,
        rng=rng,
        training_pool=training.workloads("gavel"),
        inference_pool=pool,
        inference=inference,
    )
    return tasks, trace


def venus_trainings(
    jobs: int, *, rng: np.random.Generator, gpus: int, load: float, record: str, gpus_a_job: int | None = None
) -> tuple[Task, ...]:
    """Return trainings that arrive as in a generated trace of Venus, for the studies of systems that train.

    Args:
        jobs: number of jobs to draw; those outside `DURATIONS_S`, or for more than a node, are left out.
        rng: the source of randomness.
        gpus: number of GPUs of the cluster.
        load: the offered load, see `offered_load`.
        record: the record of the training workloads.
        gpus_a_job: gives every job this number of GPUs, not that of the trace.
    """
    trace = usable_jobs(generate_trace(jobs, rng=rng), most_gpus=training.NODE_GPUS)
    kept = [
        replace(job, gpus=gpus_a_job or job.gpus)
        for job in trace.jobs
        if DURATIONS_S[0] <= job.duration_s <= DURATIONS_S[1]
    ]
    trace = scale_to_load(replace(trace, jobs=tuple(kept)), gpus, load)
    return tasks_of_trace(trace, rng=rng, training_pool=training.workloads(record))


def _epoch_s(workload: Workload) -> float:
    """Return the time of an epoch on one GPU, s."""
    step = training.step(workload)
    return step.step_s * step.epoch_samples / workload.batch_size
