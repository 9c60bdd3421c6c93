"""The executor decides as the event loop does in virtual time: its own time here jumps, and workers end by it."""

from __future__ import annotations

import numpy as np
import pytest
from support.counting_worker import ToyLauncher, ToyWorker

from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.executor import execute
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.host import Host
from heshare.ops.executor.job_tasks import remaining_tasks
from heshare.ops.executor.local_gpus import planned_cluster, select_gpus
from heshare.ops.executor.run_observer import journalled
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import Decision
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.jobs.run_state import job_states
from heshare.policies.heshare import HeShare
from heshare.policies.registry import make
from heshare.running.clock import VirtualClock
from heshare.running.observer import Observer
from heshare.running.run import run
from heshare.scheduling.settings import Settings
from heshare.testing.toy import ToyPredictor

SCALE_S = 12.0
"""How long a run takes in the executor's time, s: much longer than the time between two polls of a GPU."""
MODELS = ("resnet50", "mobilenet", "vgg16", "gpt2", "resnet18", "densenet121", "resnet101", "bert_large")


class Decisions(Observer):
    def __init__(self):
        self.decisions = []

    def on_decision(self, event, actions):
        self.decisions.append((event.kind.name.lower(), event.tasks, event.gpu, tuple(actions)))


def small_heshare(_name):
    return HeShare("trade-off", Settings(generations=6, population=12))


JOBS = "jobs:\n" + "".join(
    f"  - {{name: job{index}, workload: '{MODELS[index % 8]}:8', iterations: {97 * (2 * index + 3)}}}\n"
    for index in range(12)
)


class Workers(ToyLauncher):
    """Starts workers without processes, each of which takes the time of its task, s."""

    def __init__(self, clock, takes_s):
        self._clock, self._takes_s = clock, takes_s

    def start(self, task_id, workload, mps_pct, iterations, *, gpu_uuid):
        return ToyWorker(self._takes_s[task_id] / iterations, iterations, now_s=self._clock.now_s)


class VirtualHost(Host):
    """This machine, in virtual time, with workers that take known times."""

    def __init__(self, takes_s):
        self._clock, self._takes_s = VirtualClock(), takes_s

    def clock(self):
        return self._clock

    def models_lack(self):
        return ""

    def models(self, mps, outputs):
        return Workers(self._clock, self._takes_s)

    def wait(self, descriptors, timeout_s):
        self._clock.wait_until(self._clock.now_s() + timeout_s)
        return []


@pytest.mark.parametrize("policy", [pytest.param("heshare", marks=pytest.mark.slow), "random"])
def test_same_decisions(doubles, monkeypatch, policy):
    """The executor decides as the event loop does in virtual time: it is the same loop over other devices."""
    factory = small_heshare if policy == "heshare" else make
    monkeypatch.setattr(execute, "make", factory)
    tasks, _ = remaining_tasks(job_states(read_jobs(doubles.write(JOBS))))
    cluster = planned_cluster(select_gpus("nvml", Host()).uuids, Host(), clocks=True)
    virtual = Decisions()
    done = run(
        tasks,
        cluster,
        FaultTolerantPolicy(factory(policy)),
        predictor=ToyPredictor(),
        rng=np.random.default_rng(np.random.SeedSequence(0).spawn(1)[-1]),
        devices=[EmulatedDevice(gpu) for gpu in cluster.gpus],
        observer=virtual,
    )
    host = VirtualHost(done.execution_s * SCALE_S / done.makespan_s)
    assert doubles.run(JOBS, policy=policy, devices="nvml", clocks=True, host=host).complete
    rows = [row for row in run_journal.read(doubles.folder / "run") if isinstance(row, Decision)]
    decisions = [(row.event, row.jobs, row.gpu, row.actions) for row in rows]
    assert journal_form(virtual.decisions) == decisions
    assert len(decisions) > 8


def journal_form(decisions):
    """Decisions as a journal writes them."""
    key = "job{}".format
    return [
        (kind, tuple(key(task) for task in tasks), gpu, tuple(journalled(action, key) for action in actions))
        for kind, tasks, gpu, actions in decisions
    ]
