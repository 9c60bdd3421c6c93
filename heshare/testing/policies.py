"""What every policy must do: subclass `PolicyContract` and provide the fixture `policy`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from heshare.devices.device import Device
from heshare.devices.emulated import EmulatedDevice
from heshare.policies.policy import Policy, Traits
from heshare.prediction.predictor import Predictor
from heshare.prediction.truth import DevicePredictor
from heshare.running.accounts import stretches
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

MODELS = ("resnet50", "mobilenet", "bert_large", "vgg19", "densenet121", "gpt2")


class PolicyContract:
    """Subclass it as `TestMyPolicy` with a fixture `policy` that returns a policy.

    Attributes:
        cluster: what the policy is run on; of several types, so that it shows whether it cares.
        size: tasks in a set.
        seed: of every run.
    """

    cluster = Cluster.parse("2xT4,V100,A100")
    size = 8
    seed = 7

    @pytest.fixture
    def policy(self) -> Policy:
        """The policy."""
        raise NotImplementedError("Provide a fixture `policy` that returns the policy.")

    def predictor(self) -> Predictor:
        """What the policy believes: here, the truth."""
        return DevicePredictor()

    def devices(self, cluster: Cluster) -> list[Device]:
        """Fresh devices for a cluster."""
        return [EmulatedDevice(gpu) for gpu in cluster.gpus]

    def tasks(self, *, every_s: float = 0.0, together: int = 1) -> tuple[Task, ...]:
        """A task set; `together` tasks arrive at a time, every `every_s` seconds."""
        return tuple(
            Task(index, Workload(MODELS[index % len(MODELS)], 4), 2_000.0 * (1 + index), every_s * (index // together))
            for index in range(self.size)
        )

    def go(self, policy: Policy, tasks: tuple[Task, ...], cluster: Cluster | None = None) -> Run:
        """Run the policy."""
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
        """All at once: every task completes once, and nothing overlaps on paper."""
        check_run(self.go(policy, self.tasks()))

    def test_runs_tasks_that_arrive_later(self, policy: Policy) -> None:
        """Groups of four, the later ones while the first still run."""
        result = self.go(policy, self.tasks(every_s=60.0, together=4))
        check_run(result)
        arrival_s = np.array([task.arrival_s for task in result.tasks])
        assert (np.array([each.start_s >= arrival_s[each.task] for each in result.record.intervals])).all()

    def test_runs_on_one_gpu(self, policy: Policy) -> None:
        """There is nothing to place, and everything to order."""
        check_run(self.go(policy, self.tasks()[:5], Cluster(self.cluster.gpus[:1])))

    def test_runs_one_task(self, policy: Policy) -> None:
        """The smallest task set."""
        check_run(self.go(policy, self.tasks()[:1]))

    def test_forgets_between_runs(self, policy: Policy) -> None:
        """The same seed gives the same timeline, also from a policy that has run before."""
        first = self.go(policy, self.tasks())
        self.go(policy, self.tasks()[:5], Cluster(self.cluster.gpus[::-1]))
        again = self.go(policy, self.tasks())
        assert again.record == first.record

    def test_does_what_it_declares(self, policy: Policy) -> None:
        """Table I: its traits are what its runs show."""
        assert self.observed(policy) == policy.traits

    def observed(self, policy: Policy) -> Traits:
        """What the policy does on the contract's cluster: clocks it set, tasks it ran at once, GPUs it preferred.

        A policy that places by type puts tasks elsewhere when the same GPUs stand in another order; one that does not
        care about types puts each task that it starts before any completes, in both orders, on the GPU with the same
        number. (A later one may go where a task has just completed, and on a faster GPU it completes earlier.)
        """
        result = self.go(policy, self.tasks())
        turned = self.go(policy, self.tasks(), Cluster(self.cluster.gpus[::-1]))
        there, then = placement(result, early=True), placement(turned, early=True)
        return Traits(
            frequency=any(segment.requested_mhz is not None for segment in result.record.segments),
            multi_task=any(len(segment.residents) > 1 for segment in result.record.segments),
            heterogeneous=any(there[task] != then[task] for task in there.keys() & then.keys()),
        )


def placement(result: Run, *, early: bool = False) -> dict[int, int]:
    """The GPU on which each task first ran, by task id; `early`: of those that began before any task left a GPU."""
    ordered = sorted(result.record.intervals, key=lambda each: -each.start_s)
    first_s = min(each.end_s for each in ordered) if early else math.inf
    return {each.task: each.gpu for each in ordered if each.start_s < first_s}


def check_run(result: Run) -> None:
    """Assert what holds for every run, whatever the policy.

    Each task completes exactly once and never runs in two places; JCT = waiting + execution (Eq. 8); the timeline's
    energy is the devices' own; memory and MPS clients are never exceeded; segments of a GPU leave no gap.
    """
    _check_tasks(result)
    np.testing.assert_allclose(result.jct_s, result.waiting_s + result.execution_s, rtol=1e-9, atol=1e-9)
    assert (result.waiting_s >= -1e-9).all()
    assert (result.execution_s > 0).all()
    np.testing.assert_allclose(result.gpu_energy_cluster_j, result.device_energy_j, rtol=1e-9)
    assert (result.gpu_energy_active_j <= result.gpu_energy_cluster_j * (1 + 1e-12)).all()
    _check_segments(result)


def _check_tasks(result: Run) -> None:
    by_task: dict[int, list[tuple[float, float, str]]] = {task.id: [] for task in result.tasks}
    done = np.zeros(len(result.tasks))
    for each in result.record.intervals:
        done[each.task] += each.iterations
    for each in stretches(result.record.intervals):
        by_task[each.task].append((each.start_s, each.end_s, each.outcome))
    for task in result.tasks:
        stays = sorted(by_task[task.id])
        assert [outcome for _, _, outcome in stays].count("completed") == 1
        assert stays[-1][2] == "completed"
        assert stays[0][0] >= task.arrival_s
        assert all(end_s <= start_s for (_, end_s, _), (start_s, *_) in pairwise(stays))
    np.testing.assert_allclose(done, [task.iterations for task in result.tasks], rtol=1e-9)


def _check_segments(result: Run) -> None:
    sizes = {(each.task, each.gpu, each.start_s): each.batch_size for each in result.record.intervals}
    for index, gpu in enumerate(result.cluster.gpus):
        rows = [segment for segment in result.record.segments if segment.gpu == index]
        assert rows[0].start_s == 0.0
        assert rows[-1].end_s == result.makespan_s
        assert all(before.end_s == after.start_s for before, after in pairwise(rows))
        stays = [each for each in result.record.intervals if each.gpu == index]
        for segment in rows:
            assert len(segment.residents) <= gpu.mps_clients
            there = [each for each in stays if each.start_s < segment.end_s and each.end_s > segment.start_s]
            assert {each.task for each in there} >= {task for task, _, _ in segment.residents}
            # A task that was moved and kept this GPU has several stays in a stretch in which nothing changed here.
            held_mib = {
                each.task: memory_mib(
                    replace(result.tasks[each.task].workload, batch_size=sizes[each.task, index, each.start_s])
                )
                for each in there
            }
            assert sum(held_mib.values()) <= gpu.memory_mib * (1 + 1e-12)


def check_policy(make: Callable[[], Policy]) -> list[str]:
    """Hold a policy to the contract without pytest.

    Args:
        make: makes the policy, anew for every part of the contract.

    Returns:
        What it was held to, a sentence each.

    Raises:
        AssertionError: it breaks a part of the contract.
    """
    contract = PolicyContract()
    held = []
    for name in sorted(vars(PolicyContract)):
        if name.startswith("test_"):
            test = getattr(contract, name)
            test(make())
            held.append(" ".join(str(test.__doc__).split()))
    return held
