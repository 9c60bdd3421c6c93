"""Jobs of a trace as tasks: which a cluster can hold, at what load, and what they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from heshare.errors import InputError
from heshare.world import training
from heshare.world.task import Task
from heshare.world.trace import ON_BAD, Job, Trace
from heshare.world.workload import Workload


def usable(trace: Trace, *, most_gpus: int | None = None, on_bad: str = "skip") -> Trace:
    """The jobs that can be tasks, renumbered from time 0: at least one GPU, at most `most_gpus`, some time to run.

    Args:
        trace: the trace.
        most_gpus: how many GPUs the cluster has.
        on_bad: `skip` leaves jobs for more GPUs out and counts them, `raise` refuses them. Jobs without a GPU or
            without any time are always left out and counted.

    Raises:
        InputError: no job is left; or a job for too many GPUs is to be refused.
    """
    skipped = Counter(trace.skipped)
    kept: list[Job] = []
    for job in trace.jobs:
        large = most_gpus is not None and job.gpus > most_gpus
        if large and on_bad == ON_BAD[0]:
            raise InputError(
                file=trace.file,
                column="gpu_num",
                found=f"{job.gpus} for job {job.id}",
                expected=f"at most the {most_gpus} GPUs of the cluster",
                action="Take a larger cluster, or skip such jobs.",
            )
        reason = (
            "gpu_num: more GPUs than there are" if large
            else "gpu_num: no GPU" if job.gpus < 1
            else "duration: none" if job.duration_s <= 0
            else ""
        )  # fmt: skip
        if reason:
            skipped[reason] += 1
        else:
            kept.append(job)
    if not kept:
        raise InputError(
            file=trace.file,
            found="no job for a GPU",
            expected="at least one",
            action="Choose another trace or cluster.",
        )
    first_s = kept[0].submit_s
    jobs = tuple(replace(job, submit_s=job.submit_s - first_s) for job in kept)
    return replace(trace, jobs=jobs, skipped=dict(sorted(skipped.items())))


def load(trace: Trace, gpus: int, /) -> float:
    """Time on GPUs that the jobs ask for, over what `gpus` GPUs have from the first submission to the last."""
    span_s = trace.jobs[-1].submit_s - trace.jobs[0].submit_s
    asked_s = sum(job.duration_s * job.gpus for job in trace.jobs)
    return asked_s / (gpus * span_s) if span_s > 0 else float("inf")


def at_load(trace: Trace, gpus: int, wanted: float, /) -> Trace:
    """The trace with all gaps longer or shorter by one factor, so that `load` is as wanted; bursts stay, hours do not.

    Raises:
        InputError: not a load above zero, or a trace of one moment.
    """
    now = load(trace, gpus)
    if not 0 < wanted < float("inf") or now == float("inf"):
        raise InputError(
            column="load",
            found=f"a load of {wanted:g} for {len(trace.jobs)} jobs",
            expected="a load above zero and jobs at more than one moment",
            action="Correct the load, or take more jobs.",
        )
    first_s = trace.jobs[0].submit_s
    jobs = tuple(replace(job, submit_s=first_s + (job.submit_s - first_s) * now / wanted) for job in trace.jobs)
    return replace(trace, jobs=jobs)


def as_tasks(
    trace: Trace,
    *,
    rng: np.random.Generator,
    time_alone_s: Callable[[Workload], float],
    training_pool: Sequence[Workload],
    inference_pool: Sequence[Workload] = (),
    inference: float = 0.0,
) -> tuple[Task, ...]:
    """Each job as a task that runs as long, alone on the GPU that its workload was recorded on, as the trace says.

    A training workload is drawn among those of which the job can do at least one epoch; a job too short for any gets
    the one with the shortest epoch. Its epochs are those of the workload.

    Args:
        trace: usable jobs, by submission.
        rng: the source of randomness.
        time_alone_s: seconds per iteration of an inference workload alone on the GPU that durations are read on.
        training_pool: training workloads to draw from.
        inference_pool: inference workloads to draw from.
        inference: which share of the jobs on one GPU are inference tasks; the others, and all gangs, train.

    Returns:
        Task i is job i of the trace.

    Raises:
        InputError: an empty pool, or a share outside 0 to 1.
    """
    if not 0 <= inference <= 1 or (inference < 1 and not training_pool) or (inference > 0 and not inference_pool):
        raise InputError(
            column="inference",
            found=f"{inference:g} with {len(inference_pool)} inference and {len(training_pool)} training workloads",
            expected="a share from 0 to 1, and workloads of each kind to draw from",
            action="Correct the share or the pools.",
        )
    epoch_s = np.array([_epoch_s(workload) for workload in training_pool])
    order = np.argsort(epoch_s, kind="stable")
    upto = np.searchsorted(epoch_s[order], [job.duration_s for job in trace.jobs], side="right")
    drawn = rng.random((len(trace.jobs), 2))
    tasks = []
    for index, job in enumerate(trace.jobs):
        which, part = drawn[index]
        if job.gpus == 1 and which < inference:
            workload = inference_pool[int(part * len(inference_pool))]
            tasks.append(Task(index, workload, job.duration_s / time_alone_s(workload), job.submit_s))
            continue
        workload = training_pool[order[int(part * max(upto[index], 1))]]
        steps = job.duration_s / training.step(workload).step_s
        epochs = training.epochs(workload, steps, job.gpus)
        tasks.append(Task(index, workload, steps, job.submit_s, gpus=job.gpus, epochs=epochs))
    return tuple(tasks)


def _epoch_s(workload: Workload) -> float:
    """Seconds of an epoch on one GPU."""
    one = training.step(workload)
    return one.step_s * one.epoch_samples / workload.batch_size
