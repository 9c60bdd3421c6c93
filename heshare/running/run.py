"""Running a policy on a cluster: emulated in virtual time by default, on real GPUs in wall time by the same code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from time import perf_counter

import numpy as np
from tqdm.auto import tqdm

from heshare.devices.device import Device
from heshare.devices.emulated import EmulatedDevice
from heshare.errors import InputError
from heshare.policies.policy import Borrows, Policy
from heshare.prediction.predictor import Predictor
from heshare.running.checkpoint import EVERY_S, Checkpoints, Course, hook, key_of
from heshare.running.clock import Clock, VirtualClock
from heshare.running.loop import Loop
from heshare.running.observer import Observer
from heshare.running.result import Run
from heshare.running.sizes import check_sizes
from heshare.running.streaming import Streamer
from heshare.running.timeline import Recorder
from heshare.running.totals import Accountant
from heshare.world.cluster import Cluster
from heshare.world.task import Task

FULL, SUMMARY = "full", "summary"


def run(
    tasks: Sequence[Task],
    cluster: Cluster,
    policy: Policy,
    *,
    predictor: Predictor,
    rng: np.random.Generator,
    devices: Sequence[Device] | None = None,
    clock: Clock | None = None,
    max_time_s: float = math.inf,
    start_cost_s: float = 0.0,
    progress: bool = False,
    observer: Observer | None = None,
    record: str | Path = FULL,
    checkpoint: str | Path | None = None,
    checkpoint_s: float = EVERY_S,
) -> Run:
    """Run a task set under a policy until every task has completed.

    Args:
        tasks: the task set; task i has id i.
        cluster: the GPUs.
        policy: who decides; it is reset first.
        predictor: what the policy believes. What happens is decided by the devices.
        rng: the policy's randomness.
        devices: one for each GPU, in order; by default an emulated one each.
        clock: the time that the devices share; by default virtual.
        max_time_s: give up when the run reaches this time, s.
        start_cost_s: time that a task holds its memory and does nothing whenever it starts or resumes on a GPU
            (loading the model), s. A real device has its own.
        progress: show a progress bar over tasks.
        observer: hears of decisions and results before they count, as the executor's journal does.
        record: `full` keeps the timeline; `summary` adds up times and energies as it goes, for long runs;
            a `Path` does so too and writes the timeline to `segments.csv` and `intervals.csv` in that folder.
        checkpoint: a file from which an interrupted run goes on, when it is called again in the same way, with the
            same result to the last byte; it is gone when the run is over. Only in virtual time.
        checkpoint_s: wall time from one checkpoint to the next, s. SIGINT and SIGTERM write one too.

    Returns:
        The run: per-task times, energies, timeline.

    Raises:
        InputError: no tasks, ids that are not 0 .. n-1, a task that the cluster can never hold, tasks on several GPUs
            for a policy that runs none, devices that do not match the cluster, or a checkpoint of another run.
        PolicyError: the policy asked for something impossible or leaves tasks that nobody will ever start.
        DeviceError: a device refused, failed or makes no progress.
    """
    ordered = _checked(tasks)
    _check_gangs(ordered, policy)
    check_sizes(ordered, cluster)
    record = _checked_record(record)
    clock = VirtualClock() if clock is None else clock
    devices = _emulated(cluster) if devices is None else list(devices)
    _check_devices(cluster, devices)
    parts = (policy.name, cluster, ordered, record, max_time_s, start_cost_s, [type(device) for device in devices])
    checkpoints = _checkpoints(checkpoint, checkpoint_s, clock, observer, lambda: key_of(parts, rng))
    course = checkpoints.load() if checkpoints else None
    if course is None:
        energy_j = np.array([device.read().energy_j for device in devices])
        calls, began_s = predictor.calls, perf_counter()
        policy.reset(cluster, predictor, rng)
        reset_s = perf_counter() - began_s
        loop = Loop(
            ordered,
            cluster,
            policy,
            devices,
            clock,
            max_time_s=max_time_s,
            start_cost_s=start_cost_s,
            observer=observer,
            recorder=_recorder(record, cluster, ordered),
        )
        course = Course(loop, predictor, calls, energy_j, reset_s)
    end_s = _followed(course, checkpoints, progress)
    return _result(course, cluster, ordered, end_s)


def _checkpoints(
    path: str | Path | None, every_s: float, clock: Clock, observer: Observer | None, key: Callable[[], str]
) -> Checkpoints | None:
    if path is None:
        return None
    if not isinstance(clock, VirtualClock) or observer is not None:
        raise InputError(
            column="checkpoint",
            found="a run on real devices, or one that is observed",
            expected="a run in virtual time",
            action="Do without it: a run on real devices has a journal.",
        )
    return Checkpoints(path, key(), every_s=every_s)


def _followed(course: Course, checkpoints: Checkpoints | None, progress: bool) -> float:
    """Let the loop go on to its end; returns when that was, s."""
    loop = course.loop
    total = len(loop.jobs)
    with tqdm(
        total=total, initial=total - loop.unfinished, desc=loop.policy.name, unit="task", disable=not progress
    ) as bar:
        loop.on_done, loop.between = bar.update, hook(checkpoints, course)
        try:
            with checkpoints.guarding() if checkpoints else nullcontext():
                end_s = loop.run()
        except BaseException:
            _abandon(loop)
            raise
    if checkpoints:
        checkpoints.done()
    return end_s


def _result(course: Course, cluster: Cluster, tasks: tuple[Task, ...], end_s: float) -> Run:
    loop, policy, predictor = course.loop, course.loop.policy, course.predictor
    devices = [slot.device for slot in loop.slots]
    for device in devices:
        device.advance(end_s)
    timeline, totals = loop.recorder.finish(end_s)
    borrowed = policy.borrowed if isinstance(policy, Borrows) else None
    return Run(
        policy=policy.name,
        cluster=cluster,
        tasks=tasks,
        record=timeline,
        totals=totals,
        device_energy_j=np.array([device.read().energy_j for device in devices]) - course.energy_j,
        planning_s=course.reset_s + loop.planning_s + (borrowed.planning_s if borrowed else 0.0),
        predictor_calls=predictor.calls - course.calls + (borrowed.predictor_calls if borrowed else 0),
        events=loop.events,
        provenance="+".join(sorted({device.provenance for device in devices})),
    )


def _check_gangs(tasks: Sequence[Task], policy: Policy) -> None:
    if getattr(policy, "gangs", True):
        return
    gang = next((task for task in tasks if task.gpus > 1 and 1 not in task.widths), None)
    if gang is not None:
        raise InputError(
            column="gpus",
            found=f"task {gang.id}, which runs on {gang.gpus} GPUs, under {policy.name}",
            expected="tasks on one GPU: this policy knows no others",
            action="Leave such tasks out, or take a policy that runs them, such as fifo, eaco or power-flow.",
        )


def _checked_record(record: str | Path) -> str | Path:
    if isinstance(record, Path):
        return record.absolute()
    if record not in (FULL, SUMMARY):
        raise InputError(
            column="record",
            found=repr(record),
            expected=f"{FULL} or {SUMMARY}, or the Path of a folder",
            action="Choose one of them.",
        )
    return record


def _recorder(record: str | Path, cluster: Cluster, tasks: tuple[Task, ...]) -> Recorder | Accountant | Streamer:
    if isinstance(record, Path):
        return Streamer(cluster.labels, tasks, record)
    return Recorder(cluster.labels) if record == FULL else Accountant(cluster.labels, tasks)


def _emulated(cluster: Cluster) -> list[Device]:
    """Emulated GPUs; those of a type remember together what the model has said."""
    first = {kind: EmulatedDevice(kind) for kind in cluster.kinds}
    return [EmulatedDevice(gpu, twin=first[gpu]) for gpu in cluster.gpus]


def _abandon(loop: Loop) -> None:
    """Leave nothing running behind on the devices of a run that failed, and no file open."""
    if isinstance(loop.recorder, Streamer):
        loop.recorder.release()
    for slot in loop.slots:
        # The failure that led here is the one to report; a device that fails again on the way out is not.
        with suppress(Exception):
            stop_all = getattr(slot.device, "stop_all", None)
            if stop_all is not None:
                stop_all()
            for task in list(slot.device.read().residents):
                slot.device.stop(task)


def _checked(tasks: Sequence[Task]) -> tuple[Task, ...]:
    ordered = tuple(sorted(tasks, key=lambda task: task.id))
    if not ordered or [task.id for task in ordered] != list(range(len(ordered))):
        raise InputError(
            column="tasks",
            found=f"{len(ordered)} tasks with ids {[task.id for task in ordered[:5]]} ...",
            expected="at least one task, with ids 0 to n-1",
            action="Number the tasks from 0.",
        )
    return ordered


def _check_devices(cluster: Cluster, devices: Sequence[Device]) -> None:
    names = [device.gpu.name for device in devices]
    expected = [gpu.name for gpu in cluster.gpus]
    if names != expected:
        raise InputError(
            column="devices",
            found=", ".join(names) or "no devices",
            expected=f"one for each GPU of the cluster: {', '.join(expected)}",
            action="Give the devices in the cluster's order.",
        )
