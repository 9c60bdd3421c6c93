"""The event loop has one body: the same decisions, in the same order, in virtual time and on (stand-in) GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.emulated import EmulatedDevice
from heshare.devices.live import NvmlDevice
from heshare.policies.guarded import Guarded
from heshare.policies.heshare import HeShare, Planner
from heshare.policies.registry import make
from heshare.running import execute, ledger
from heshare.running.attendant import in_words
from heshare.running.jobs import History, copies, left
from heshare.running.observer import Observer
from heshare.running.run import run
from heshare.scheduling.settings import Settings
from heshare.testing.toy import ToyPredictor
from heshare.testing.workers import ToyLauncher
from heshare.world.cluster import Cluster
from heshare.world.jobfile import read_jobs

SCALES_S = (3.0, 12.0)
"""How long a run takes in wall time; on a machine too busy to start processes in order, again with longer jobs."""
MODELS = ("resnet50", "mobilenet", "vgg16", "gpt2", "resnet18", "densenet121", "resnet101", "bert_large")


class Heard(Observer):
    def __init__(self):
        self.decisions = []

    def decided(self, event, actions):
        self.decisions.append((event.kind.name.lower(), event.tasks, event.gpu, tuple(actions)))


def small(_name):
    return HeShare("trade-off", planner=Planner(Settings(generations=6, population=12)))


def text(waits_s):
    lines = ["jobs:"]
    for index, wait_s in enumerate(waits_s):
        lines += [
            f"  - {{name: job{index}, command: [sleep, '{wait_s:.3f}'], like: '{MODELS[index % 8]}:8',",
            f"     iterations: {100 * (index + 2)}}}",
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("policy", ["heshare", "random"])
def test_the_same_decisions_in_virtual_and_in_wall_time(doubles, monkeypatch, policy):
    factory = small if policy == "heshare" else make
    monkeypatch.setattr(execute, "make", factory)
    tasks, _ = left(copies(read_jobs(doubles.write(text([1.0] * 12)))), History())
    gpus = []
    for index in range(2):
        with NvmlDevice(index, ToyLauncher()) as card:
            gpus.append(card.gpu)
    virtual = Heard()
    done = run(
        tasks,
        Cluster(tuple(gpus)),
        Guarded(factory(policy)),
        predictor=ToyPredictor(),
        rng=np.random.default_rng(np.random.SeedSequence(0).spawn(1)[-1]),
        devices=[EmulatedDevice(gpu) for gpu in gpus],
        observer=virtual,
    )
    for scale_s in SCALES_S:
        # In wall time each job takes as long as it did there, on a scale of our own.
        told = live(doubles, policy, done.execution_s * scale_s / done.makespan_s, f"run-{scale_s:g}")
        if told == words(virtual.decisions):
            break
    assert words(virtual.decisions) == told
    assert len(told) > 8


def live(doubles, policy, waits_s, into):
    """The decisions of a run with real processes."""
    assert doubles.run(text(waits_s), policy=policy, devices="nvml", clocks=True, into=into).complete
    told = [one["decision"] for one in ledger.read(doubles.folder / into) if "decision" in one]
    return [(one["event"], one["jobs"], one["gpu"], one["actions"]) for one in told]


def words(decisions):
    """Decisions as a journal writes them."""
    key = "job{}".format
    return [
        (kind, [key(task) for task in tasks], gpu, [in_words(action, key) for action in actions])
        for kind, tasks, gpu, actions in decisions
    ]
