"""What it takes to start and to end the processes of jobs on this machine, measured on its own, before any policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from heshare.devices.loading import Loading
from heshare.errors import DeviceError
from heshare.prediction.predictor import Predictor
from heshare.running.live.cards import LiveCard
from heshare.running.live.journal import Loaded, loaded
from heshare.running.live.measuring import Bench
from heshare.world.task import Task

PROBE = "random"
"""Predicts nothing, and starts as many at once as the memory holds."""
_AHEAD_S = 3.0


def measure(bench: Bench, card: LiveCard, tasks: Sequence[Task], predictor: Predictor) -> Loading:
    """Start the jobs of a task set together, one iteration each, and one alone after another one has ended.

    The first start of all fills the machine's disk cache and is not used.

    Raises:
        DeviceError: a job did not complete.
        Interrupted: a signal asked for the end.
    """
    short = [replace(one, iterations=1) for one in tasks]
    device = f"nvml:{card.uuid}"
    for again in ("cold", "warm"):
        together = _first(list(loaded(bench.run(f"start-{again}", short, PROBE, device))))
    ahead, behind = _pair(tasks, card, predictor)
    first, second = list(loaded(bench.run("start-one", [ahead, behind], PROBE, device)))
    one_s = second.begun_s - second.asked_s
    others = len(together.jobs) - 1
    more_s = (together.begun_s - together.asked_s - one_s) / others if others else 0.0
    return Loading(one_s, max(0.0, more_s), max(0.0, second.asked_s - first.ended_s))


def _pair(tasks: Sequence[Task], card: LiveCard, predictor: Predictor) -> tuple[Task, Task]:
    """Two jobs of the most common model size: the second arrives while the first one works, and waits for it."""
    workload = sorted(tasks, key=lambda one: one.iterations)[len(tasks) // 2].workload
    alone_s = float(predictor.solo([workload], card.gpu).time_s[0, 0])
    return Task(0, workload, math.ceil(_AHEAD_S / alone_s)), Task(1, workload, 1, 0.2)


def _first(groups: Sequence[Loaded]) -> Loaded:
    if not groups:
        raise DeviceError("No job was started. See the outputs of the runs called start-*.")
    return min(groups, key=lambda one: one.asked_s)
