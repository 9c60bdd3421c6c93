"""Run of a task set under a policy: on emulated GPUs in virtual time by default, on real ones by the same code."""

import math
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from time import perf_counter

import numpy as np

from heshare.devices.constants import default
from heshare.devices.device import Device
from heshare.devices.emulated_device import EmulatedDevice
from heshare.policies.policy import Policy, check_policy
from heshare.prediction.predictor import Predictor
from heshare.running.clock import Clock, VirtualClock
from heshare.running.loop import Loop
from heshare.running.observer import Observer
from heshare.running.result import Run
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import HeShareError, InputError, require
from heshare.shared.progress import tqdm_bar
from heshare.world.catalogue import memory_mib, models
from heshare.world.cluster import Cluster
from heshare.world.task import Task, TaskSet
from heshare.world.workload import Workload


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
    progress: bool | None = False,
    observer: Observer | None = None,
) -> Run:
    """Run a task set under a policy until every task has completed.

    `hs.run` calls it with the tasks, GPUs, policy and predictor that its arguments stand for (`heshare.arguments`), and
    draws `rng` from its seed.

    Args:
        tasks: the task set, in any order, with the ids 0 to n-1.
        cluster: the GPUs.
        policy: decides what starts where and when; it is reset first.
        predictor: predicts for the policy. What happens depends on the devices alone.
        rng: the policy's randomness.
        devices: one for each GPU, in order; by default an emulated one each.
        clock: the time that the devices share; by default virtual.
        max_time_s: most wall time that the run may take, s; it is looked at between two events.
        start_cost_s: time that a task holds its memory and does nothing whenever it starts or resumes on a GPU
            (loading the model), s. A real device has its own.
        progress: show a progress bar over completed tasks; None: on a terminal, after two seconds.
        observer: is called with decisions and results before they take effect, to journal them for example.

    Returns:
        The run: per-task times, energies, timeline.

    Raises:
        InputError: an object that is no `Policy`, or whose functions take other arguments, no tasks, ids that are not
            0 .. n-1, a task that the cluster can never hold, tasks on several GPUs for a policy that runs none, or
            devices that do not match the cluster.
        PolicyError: the policy returned an impossible action, or leaves tasks that no action will ever start.
        DeviceError: a device refused, failed or makes no progress.
        HeShareError: the run takes longer than `max_time_s`.
    """
    begun = BegunRun(
        tasks,
        cluster,
        policy,
        predictor=predictor,
        rng=rng,
        devices=devices,
        clock=clock,
        start_cost_s=start_cost_s,
        observer=observer,
    )
    loop = begun.loop
    began_s = perf_counter()

    # A bar, even one that shows nothing, has a lock that a killed process leaves behind.
    shown = nullcontext() if progress is False else tqdm_bar(progress, total=len(tasks), desc=policy.name, unit="task")
    with shown as bar:
        try:
            for _ in loop.steps():
                if bar is not None and loop.ended > bar.n:
                    bar.update(loop.ended - bar.n)
                if perf_counter() - began_s > max_time_s and loop.ended < len(loop.tasks):
                    raise _out_of_time(loop, max_time_s)
        except BaseException:
            _abandon(loop)
            raise
    return begun.result()


def _out_of_time(loop: Loop, max_time_s: float) -> HeShareError:
    return HeShareError(
        f"{loop.policy.name}: the run took more than {max_time_s:g} s; {loop.ended} of {len(loop.tasks)} tasks have "
        "completed. Allow more time, take fewer tasks, or another policy."
    )


class BegunRun:
    """A checked run whose policy is reset, and whose event loop has not processed an event yet.

    Arguments and errors are those of `run`; `kind` is the class of the loop.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        cluster: Cluster,
        policy: Policy,
        *,
        predictor: Predictor,
        rng: np.random.Generator,
        devices: Sequence[Device] | None = None,
        clock: Clock | None = None,
        start_cost_s: float = 0.0,
        observer: Observer | None = None,
        kind: type[Loop] = Loop,
    ) -> None:
        check_policy(policy)
        tasks = TaskSet.of(tasks)
        _check_gangs(tasks, policy)
        _check_memory(tasks, cluster)
        self._devices = _emulated(cluster) if devices is None else list(devices)
        _check_devices(cluster, self._devices)

        self._energy_j = self._read_energy_j()
        self._predictor = predictor
        self._calls_before = predictor.calls

        began_s = perf_counter()
        policy.reset(cluster, predictor, rng)
        self._reset_s = perf_counter() - began_s

        self._clock = VirtualClock() if clock is None else clock
        self.loop = kind(
            tasks,
            cluster,
            policy,
            self._devices,
            self._clock,
            start_cost_s=start_cost_s,
            observer=observer,
        )

    def result(self) -> Run:
        """Return the run, which has ended now."""
        loop = self.loop
        end_s = self._clock.now_s()
        for device in self._devices:
            device.advance(end_s)

        reused = loop.policy.reused
        return Run(
            policy=loop.policy.name,
            cluster=loop.cluster,
            tasks=tuple([task.spec for task in loop.tasks.values()]),
            record=loop.recorder.finish(end_s),
            device_energy_j=self._read_energy_j() - self._energy_j,
            planning_s=self._reset_s + loop.planning_s + reused.planning_s,
            predictor_calls=self._predictor.calls - self._calls_before + reused.predictor_calls,
            events=loop.events,
            provenance="+".join(sorted({device.provenance for device in self._devices})),
        )

    def _read_energy_j(self) -> FloatArray:
        return np.array([device.read().energy_j for device in self._devices])


@lru_cache(maxsize=10_000)
def _least_mib(workload: Workload) -> float:
    # A policy may give an inference task another inference batch size, so the smallest counts.
    return memory_mib(workload if workload.phase == "training" else replace(workload, batch_size=1))


def _check_memory(tasks: Sequence[Task], cluster: Cluster) -> None:
    fitting: dict[Workload, int] = {}
    for task in tasks:
        workload = task.workload
        if workload not in fitting:
            least_mib = _least_mib(workload)
            fitting[workload] = sum([gpu.memory_mib >= least_mib for gpu in cluster.gpus])
        if fitting[workload] < min((task.gpus, *task.widths)):
            found = f"task {task.id}, {workload}, for {task.gpus} GPUs, where {fitting[workload]} can hold it"
            advice = "Leave the task out, or take a larger cluster."
            raise InputError(found, f"a task that {cluster} can hold", advice, column="tasks")


def _check_gangs(tasks: Sequence[Task], policy: Policy) -> None:
    for task in tasks:
        if task.gpus == 1:
            continue
        model = models().get(task.workload.model)
        if model is not None and model.language:
            found = f"task {task.id}, {task.workload} on {task.gpus} GPUs"
            expected = "a language model on one GPU, since there is no law for one that is split over several"
            raise InputError(found, expected, "Take a larger GPU, or a smaller model.", column="gpus")
        if not policy.gangs and 1 not in task.widths:
            found = f"task {task.id}, which runs on {task.gpus} GPUs, under {policy.name}"
            advice = "Leave such tasks out, or take a policy that runs them, such as fifo, eaco or power-flow."
            raise InputError(found, "tasks on one GPU, since this policy runs no others", advice, column="gpus")


def _emulated(cluster: Cluster) -> list[Device]:
    # A GPU that runs nothing and whose clock is left to the card has no context and is parked. One whose clock a policy
    # holds, or that runs something, is not.
    known = default()
    return [EmulatedDevice(gpu, sleep_w=known.power[gpu.name].parked_w) for gpu in cluster.gpus]


def _abandon(loop: Loop) -> None:
    for gpu in loop.gpus:
        # The first failure is reported, not that of a device which fails again while it is stopped.
        with suppress(Exception):
            gpu.device.stop_all()


def _check_devices(cluster: Cluster, devices: Sequence[Device]) -> None:
    names = [device.gpu.name for device in devices]
    expected = [gpu.name for gpu in cluster.gpus]
    found, cards = ", ".join(names) or "no devices", f"one for each GPU of the cluster: {', '.join(expected)}"
    require("devices", found, names == expected, cards, "Give the devices in the cluster's order.")
