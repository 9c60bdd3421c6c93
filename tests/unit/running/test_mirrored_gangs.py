"""Mirrored gangs, whose first GPU alone runs on its device, give the same runs as gangs that run on all devices."""

import numpy as np
import pytest

from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.policies.policy import EventKind, Migrate, Pause, SetClock, Start, Wait
from heshare.running.run import run
from heshare.testing.policy_contract import check_run
from heshare.testing.toy import ScriptedPolicy, ToyPredictor
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTER = Cluster.parse("6xV100,2xV100-SXM2")


class NeverMirrored(EmulatedDevice):
    """A device that mirrors no other."""

    def can_mirror(self, others, /):
        return False


def random_policy(seed, reads_view):
    """Return a policy that starts, pauses, migrates and sets clocks at random, and sometimes reads the GPUs' views."""
    rng = np.random.default_rng(seed)
    where = {}

    def decide(event, view):
        if reads_view and rng.random() < 0.5:
            assert all(gpu.power_w > 0 for gpu in view.gpus)
        for task_id in event.tasks:
            where.pop(task_id, None)
        load = [sum(gpu in gpus for gpus in where.values()) for gpu in range(8)]
        actions = []
        running = {task.task.id: task for gpu in view.gpus for task in gpu.running.values()} if reads_view else {}
        for task in list(view.waiting)[:2]:
            order = np.argsort(np.array(load) + rng.random(8) * (1.5 if rng.random() < 0.3 else 0.1))
            if max(load[gpu] for gpu in order[: task.gpus]) > 10:
                break
            gpus = [int(gpu) for gpu in order[: task.gpus]]
            load = [count + (index in gpus) for index, count in enumerate(load)]
            where[task.id] = gpus
            actions.append(Start(task.id, gpus[0], also=tuple(gpus[1:])))
        if event.kind is EventKind.TICK and running and rng.random() < 0.5:
            task = running[int(rng.choice(sorted(running)))].task
            gpus = running[task.id].gpus
            move = Migrate(task.id, gpus[-1], also=gpus[:-1])
            if rng.random() < 0.5:
                actions.append(move)
            elif not any(action.task == task.id for action in actions):
                actions.append(Pause(task.id))
                del where[task.id]
        if rng.random() < 0.2:
            actions.append(SetClock(int(rng.integers(8)), [None, 1380, 900][int(rng.integers(3))]))
        waits = bool(view.waiting) or bool(running)
        return [*actions, Wait(view.now_s + 500.0)] if waits else actions

    return ScriptedPolicy(decide)


def both(policy, tasks, **options):
    """Return the run with mirrored gangs and the one without."""
    results = []
    for kind in (EmulatedDevice, NeverMirrored):
        devices = [kind(gpu) for gpu in CLUSTER.gpus]
        options["devices"] = devices
        result = run(tasks, CLUSTER, policy(), predictor=ToyPredictor(), rng=np.random.default_rng(0), **options)
        check_run(result)
        results.append(result)
    return results


def check(mirrored, separate):
    for table, other in ((mirrored.intervals, separate.intervals), (mirrored.timeline, separate.timeline)):
        assert (
            table.drop(columns=["energy_j"], errors="ignore")
            .select_dtypes(exclude="float")
            .equals(other.drop(columns=["energy_j"], errors="ignore").select_dtypes(exclude="float"))
        )
        np.testing.assert_allclose(table.select_dtypes("float"), other.select_dtypes("float"), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(mirrored.device_energy_j, separate.device_energy_j, rtol=1e-9)


@pytest.mark.parametrize("reads_view", [False, True])
@pytest.mark.parametrize("start_cost_s", [0.0, 30.0])
@pytest.mark.parametrize("seed", range(3))
def test_mirrored_gangs_give_the_same_run_under_a_random_policy(seed, start_cost_s, reads_view):
    jobs, _ = venus_tasks(40, rng=np.random.default_rng(seed), gpus=5, load=1.5)
    kinds = [Workload("gavel_resnet18", size, phase="training") for size in (16, 64)]
    tasks = [
        Task(i, kinds[i % 2], min(job.iterations, 50_000.0), job.arrival_s, job.gpus) for i, job in enumerate(jobs)
    ]
    check(*both(lambda: random_policy(seed, reads_view), tasks, start_cost_s=start_cost_s))


def test_views_of_all_gpus_of_a_gang_show_its_power_after_loading():
    powers_w = []

    def decide(event, view):
        powers_w.append([view.gpus[index].power_w for index in (0, 1)])
        if view.waiting:
            return [Start(0, 0, also=(1,)), Wait(10.0), Wait(60.0)]
        return []

    task = Task(0, Workload("resnet50", 16), 50_000.0, gpus=2)
    both(lambda: ScriptedPolicy(decide), [task], start_cost_s=30.0)
    mirrored, separate = powers_w[: len(powers_w) // 2], powers_w[len(powers_w) // 2 :]
    assert mirrored == separate
    assert mirrored[2][1] > mirrored[1][1], "it loads at 10 s and runs at 60 s"
