"""The event loop makes the same decisions in the same order in virtual time and on stand-ins for GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from support.counting_worker import ToyLauncher

from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.executor import execute
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.job_tasks import JobHistory, assigned_jobs, remaining_tasks
from heshare.ops.executor.run_observer import journalled
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import Decision
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.nvml_device import NvmlDevice
from heshare.policies.cached_planner import CachedPlanner
from heshare.policies.heshare import HeShare
from heshare.policies.registry import make
from heshare.running.actions import Observer
from heshare.running.run import run
from heshare.scheduling.settings import Settings
from heshare.testing.toy import ToyPredictor
from heshare.world.cluster import Cluster

SCALES_S = (3.0, 12.0)
"""How long a run takes in wall time; on a machine too busy to start processes in order, again with longer jobs."""
MODELS = ("resnet50", "mobilenet", "vgg16", "gpt2", "resnet18", "densenet121", "resnet101", "bert_large")


class Decisions(Observer):
    def __init__(self):
        self.decisions = []

    def on_decision(self, event, actions):
        self.decisions.append((event.kind.name.lower(), event.tasks, event.gpu, tuple(actions)))


def small_heshare(_name):
    return HeShare("trade-off", planner=CachedPlanner(Settings(generations=6, population=12)))


def job_file_text(waits_s):
    lines = ["jobs:"]
    for index, wait_s in enumerate(waits_s):
        lines += [
            f"  - {{name: job{index}, command: [sleep, '{wait_s:.3f}'], like: '{MODELS[index % 8]}:8',",
            f"     iterations: {100 * (index + 2)}}}",
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("policy", ["heshare", "random"])
def test_execute_decides_as_the_event_loop_does_in_virtual_time(doubles, monkeypatch, policy):
    factory = small_heshare if policy == "heshare" else make
    monkeypatch.setattr(execute, "make", factory)
    tasks, _ = remaining_tasks(assigned_jobs(read_jobs(doubles.write(job_file_text([1.0] * 12)))), JobHistory())
    gpus = []
    for index in range(2):
        with NvmlDevice(index, ToyLauncher()) as card:
            gpus.append(card.gpu)
    virtual = Decisions()
    done = run(
        tasks,
        Cluster(tuple(gpus)),
        FaultTolerantPolicy(factory(policy)),
        predictor=ToyPredictor(),
        rng=np.random.default_rng(np.random.SeedSequence(0).spawn(1)[-1]),
        devices=[EmulatedDevice(gpu) for gpu in gpus],
        observer=virtual,
    )
    for scale_s in SCALES_S:
        # In wall time each job takes as long as it did there, on another scale.
        decisions = live_decisions(doubles, policy, done.execution_s * scale_s / done.makespan_s, f"run-{scale_s:g}")
        if decisions == journal_form(virtual.decisions):
            break
    assert journal_form(virtual.decisions) == decisions
    assert len(decisions) > 8


def live_decisions(doubles, policy, waits_s, into):
    """The decisions of a run with real processes."""
    assert doubles.run(job_file_text(waits_s), policy=policy, devices="nvml", clocks=True, into=into).complete
    rows = [row for row in run_journal.read(doubles.folder / into) if isinstance(row, Decision)]
    return [(row.event, row.jobs, row.gpu, row.actions) for row in rows]


def journal_form(decisions):
    """Decisions as a journal writes them."""
    key = "job{}".format
    return [
        (kind, tuple(key(task) for task in tasks), gpu, tuple(journalled(action, key) for action in actions))
        for kind, tasks, gpu, actions in decisions
    ]
