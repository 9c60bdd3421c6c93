"""Gangs whose equal GPUs are led by the first give the same runs as gangs each of whose GPUs is told everything."""

import numpy as np
import pytest

from heshare.devices.emulated import EmulatedDevice
from heshare.policies.policy import Kind, Migrate, Pause, SetClock, Start, Wait
from heshare.running.draw import venus
from heshare.running.run import run
from heshare.testing.policies import check_run
from heshare.testing.toy import Told, ToyPredictor
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTER = Cluster.parse("6xV100,2xV100-SXM2")


class Alone(EmulatedDevice):
    """Never leaves its account to another one."""

    def same_as(self, other, /):
        return False


def restless(seed, looks):
    """A policy that starts, pauses, migrates and clocks by lot, and sometimes looks at GPUs."""
    rng = np.random.default_rng(seed)
    where = {}

    def decide(event, view):
        if looks and rng.random() < 0.5:
            assert all(gpu.power_w > 0 for gpu in view.gpus)
        for task_id in event.tasks:
            where.pop(task_id, None)
        load = [sum(gpu in gpus for gpus in where.values()) for gpu in range(8)]
        actions = []
        running = {one.task.id: one for gpu in view.gpus for one in gpu.running.values()} if looks else {}
        for task in list(view.waiting)[:2]:
            order = np.argsort(np.array(load) + rng.random(8) * (1.5 if rng.random() < 0.3 else 0.1))
            if max(load[gpu] for gpu in order[: task.gpus]) > 10:
                break
            gpus = [int(gpu) for gpu in order[: task.gpus]]
            load = [one + (index in gpus) for index, one in enumerate(load)]
            where[task.id] = gpus
            actions.append(Start(task.id, gpus[0], also=tuple(gpus[1:])))
        if event.kind is Kind.TICK and running and rng.random() < 0.5:
            one = running[int(rng.choice(sorted(running)))]
            move = Migrate(one.task.id, one.gpus[-1], also=one.gpus[:-1])
            if rng.random() < 0.5:
                actions.append(move)
            elif not any(action.task == one.task.id for action in actions):
                actions.append(Pause(one.task.id))
                del where[one.task.id]
        if rng.random() < 0.2:
            actions.append(SetClock(int(rng.integers(8)), [None, 1380, 900][int(rng.integers(3))]))
        waits = bool(view.waiting) or bool(running)
        return [*actions, Wait(view.now_s + 500.0)] if waits else actions

    return Told(decide)


def both(policy, tasks, **options):
    found = []
    for kind in (EmulatedDevice, Alone):
        first = {gpu: kind(gpu) for gpu in CLUSTER.kinds}
        devices = [kind(gpu, twin=first[gpu]) for gpu in CLUSTER.gpus]
        options["devices"] = devices
        result = run(tasks, CLUSTER, policy(), predictor=ToyPredictor(), rng=np.random.default_rng(0), **options)
        check_run(result)
        found.append(result)
    return found


def check(led, told):
    for one, other in ((led.intervals, told.intervals), (led.timeline, told.timeline)):
        assert (
            one.drop(columns=["energy_j"], errors="ignore")
            .select_dtypes(exclude="float")
            .equals(other.drop(columns=["energy_j"], errors="ignore").select_dtypes(exclude="float"))
        )
        np.testing.assert_allclose(one.select_dtypes("float"), other.select_dtypes("float"), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(led.device_energy_j, told.device_energy_j, rtol=1e-9)


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("start_cost_s", [0.0, 30.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_restless_policy(seed, start_cost_s, looks):
    jobs, _ = venus(40, rng=np.random.default_rng(seed), gpus=5, load=1.5)
    kinds = [Workload("gavel_resnet18", size, phase="training") for size in (16, 64)]
    tasks = [
        Task(i, kinds[i % 2], min(job.iterations, 50_000.0), job.arrival_s, job.gpus) for i, job in enumerate(jobs)
    ]
    check(*both(lambda: restless(seed, looks), tasks, start_cost_s=start_cost_s))
