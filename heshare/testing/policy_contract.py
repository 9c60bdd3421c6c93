"""Contract tests of a policy: subclass `PolicyContract` and provide the fixture `policy`."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from traceback import extract_tb
from typing import Any

import numpy as np

from heshare.devices.device import Device
from heshare.devices.emulated_device import EmulatedDevice
from heshare.policies.policy import Policy, Traits, check_arguments
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.running.timeline import task_intervals
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

try:
    import pytest
except ModuleNotFoundError:  # `check_policy` works without it
    fixture: Callable[[Any], Any] = staticmethod
else:
    fixture = pytest.fixture

MODELS = ("mobilenet", "resnet50", "gpt2", "densenet121", "resnet50", "bert_large")


class PolicyContract:
    """Contract tests of a policy. Subclass it as `TestMyPolicy` with a fixture that returns the policy.

    `check_policy` returns the docstrings of the tests, so each is a sentence about the policy.

    Attributes:
        cluster: GPUs of several types, so that a run shows whether the policy distinguishes them.
        size: number of tasks in a set.
        seed: of every run.
    """

    cluster = Cluster.parse("2xT4,V100,A100")
    size = 8
    seed = 7

    @fixture
    def policy(self) -> Policy:
        """The policy under test."""
        raise NotImplementedError("Provide a fixture `policy` that returns the policy.")

    def predictor(self) -> Predictor:
        """Return the policy's predictor: the device model of the emulated devices."""
        return DevicePredictor()

    def devices(self, cluster: Cluster) -> list[Device]:
        """Return fresh devices for a cluster."""
        return [EmulatedDevice(gpu) for gpu in cluster.gpus]

    def tasks(self, *, every_s: float = 0.0, together: int = 1) -> tuple[Task, ...]:
        """Return a task set in which `together` tasks arrive at a time, every `every_s` seconds."""
        return tuple(
            Task(index, Workload(MODELS[index % len(MODELS)], 4), 2_000.0 * (1 + index), every_s * (index // together))
            for index in range(self.size)
        )

    def go(self, policy: Policy, tasks: tuple[Task, ...], cluster: Cluster | None = None) -> Run:
        """Run the policy on a task set, and return the run."""
        cluster = cluster or self.cluster
        return run(
            tasks,
            cluster,
            policy,
            predictor=self.predictor(),
            rng=np.random.default_rng(self.seed),
            devices=self.devices(cluster),
        )

    def test_runs_each_task_once(self, policy: Policy) -> None:
        """Tasks that arrive at once: every task completes once, and no two intervals of a task overlap."""
        check_run(self.go(policy, self.tasks()))

    def test_runs_tasks_that_arrive_later(self, policy: Policy) -> None:
        """Tasks that arrive in groups of four while earlier ones run: each starts after its arrival."""
        result = self.go(policy, self.tasks(every_s=60.0, together=4))
        check_run(result)
        arrival_s = np.array([task.arrival_s for task in result.tasks])
        assert all(interval.start_s >= arrival_s[interval.task] for interval in result.record.intervals)

    def test_runs_on_one_gpu(self, policy: Policy) -> None:
        """One GPU: every task completes once."""
        check_run(self.go(policy, self.tasks()[:5], Cluster(self.cluster.gpus[:1])))

    def test_runs_one_task(self, policy: Policy) -> None:
        """A task set of one task: it completes."""
        check_run(self.go(policy, self.tasks()[:1]))

    def test_forgets_between_runs(self, policy: Policy) -> None:
        """The same seed gives the same timeline, also if the policy object was used in other runs before."""
        first = self.go(policy, self.tasks())
        self.go(policy, self.tasks()[:5], Cluster(self.cluster.gpus[::-1]))
        again = self.go(policy, self.tasks())
        assert again.record == first.record

    def test_does_what_it_declares(self, policy: Policy) -> None:
        """Its traits (Table I) are those that its runs show."""
        observed = self.observed(policy)
        assert observed == policy.traits, f"it declares {policy.traits}; its runs show {observed}"

    def observed(self, policy: Policy) -> Traits:
        """Return the traits that runs show: the policy sets clocks, shares GPUs, distinguishes types of GPU.

        A policy that places by type uses other indices when the same GPUs are in another order. One that does not puts
        each task that it starts before any completes on the same index in both orders. (A later one may follow a task
        that has just completed, and on a faster GPU that task completes earlier.)
        """
        result = self.go(policy, self.tasks())
        reversed_result = self.go(policy, self.tasks(), Cluster(self.cluster.gpus[::-1]))
        gpus, reversed_gpus = placement(result, early=True), placement(reversed_result, early=True)
        return Traits(
            frequency=any(segment.requested_mhz is not None for segment in result.record.segments),
            multi_task=any(len(segment.residents) > 1 for segment in result.record.segments),
            heterogeneous=any(gpus[task] != reversed_gpus[task] for task in gpus.keys() & reversed_gpus.keys()),
        )


def placement(result: Run, *, early: bool = False) -> dict[int, int]:
    """Return the first GPU of each task, by task id; with `early`, of those that began before any task left a GPU."""
    latest_first = sorted(result.record.intervals, key=lambda interval: -interval.start_s)
    before_s = min(interval.end_s for interval in latest_first) if early else math.inf
    return {interval.task: interval.gpu for interval in latest_first if interval.start_s < before_s}


def check_run(result: Run) -> None:
    """Assert the invariants of every run.

    Each task completes exactly once and never runs on two GPUs at once; JCT = waiting + execution (Eq. 8); the energy
    of the timeline is that of the devices; memory and MPS clients are never exceeded; segments of a GPU have no gap.
    """
    _check_tasks(result)
    np.testing.assert_allclose(result.jct_s, result.waiting_s + result.execution_s, rtol=1e-9, atol=1e-9)
    assert (result.waiting_s >= -1e-9).all()
    assert (result.execution_s > 0).all()
    np.testing.assert_allclose(result.gpu_energy_cluster_j, result.device_energy_j, rtol=1e-9)
    assert (result.gpu_energy_active_j <= result.gpu_energy_cluster_j * (1 + 1e-12)).all()
    _check_segments(result)


def _check_tasks(result: Run) -> None:
    stays = task_intervals(result.record.intervals)
    for task in result.tasks:
        ordered = sorted((stay for stay in stays if stay.task == task.id), key=lambda stay: (stay.start_s, stay.end_s))
        assert [interval.outcome for interval in ordered].count("completed") == 1
        assert ordered[-1].outcome == "completed"
        assert ordered[0].start_s >= task.arrival_s
        assert all(before.end_s <= after.start_s for before, after in pairwise(ordered))
    done = np.zeros(len(result.tasks))
    for interval in result.record.intervals:
        done[interval.task] += interval.iterations
    np.testing.assert_allclose(done, [task.iterations for task in result.tasks], rtol=1e-9)


def _check_segments(result: Run) -> None:
    for index, gpu in enumerate(result.cluster.gpus):
        segments = [segment for segment in result.record.segments if segment.gpu == index]
        assert segments[0].start_s == 0.0
        assert segments[-1].end_s == result.makespan_s
        assert all(before.end_s == after.start_s for before, after in pairwise(segments))
        intervals = [interval for interval in result.record.intervals if interval.gpu == index]
        for segment in segments:
            assert len(segment.residents) <= gpu.mps_clients
            present = [each for each in intervals if each.start_s < segment.end_s and each.end_s > segment.start_s]
            assert {interval.task for interval in present} >= {task for task, _, _ in segment.residents}
        # Tasks that load use memory and begin no segment, so memory use grows only at the begin of an interval.
        for moment_s in {interval.start_s for interval in intervals}:
            used_mib = [
                memory_mib(replace(result.tasks[each.task].workload, batch_size=each.batch_size))
                for each in intervals
                if each.start_s <= moment_s < each.end_s
            ]
            assert sum(used_mib) <= gpu.memory_mib * (1 + 1e-12)


def check_policy(make: Callable[[], Policy]) -> list[str]:
    """Run the contract tests on a policy without pytest.

    Args:
        make: returns a new policy; called once for every test.

    Returns:
        A sentence for each test that it passed.

    Raises:
        AssertionError: a test fails; the message names the policy and the test, and what was found.
        InputError: `make` requires arguments; it may be a policy object by mistake.
    """
    check_arguments(make, "none, for a function that returns a policy", 0, "check_policy")
    contract = PolicyContract()
    passed = []
    for name in sorted(vars(PolicyContract)):
        if name.startswith("test_"):
            test, policy = getattr(contract, name), make()
            sentence = " ".join(str(test.__doc__).split())
            try:
                test(policy)
            except AssertionError as error:
                # Without pytest an assertion has no message; its source line says what was expected.
                failed = str(error).strip() or extract_tb(error.__traceback__)[-1].line
                raise AssertionError(f"{policy.name} does not keep to {name}: {sentence} But {failed}") from error
            passed.append(sentence)
    return passed
