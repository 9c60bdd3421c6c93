"""What it takes to start and to end the processes of jobs on this machine, measured on its own, before any policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from heshare.devices.loading import Loading
from heshare.errors import DeviceError
from heshare.prediction.predictor import Predictor
from heshare.running.live.cards import LiveCard
from heshare.running.live.jobs import PREFIX
from heshare.running.live.journal import Entry, Loaded, loaded
from heshare.running.live.measuring import Bench
from heshare.world.task import Task

TOGETHER = "random"
"""Predicts nothing, and starts as many at once as the memory holds."""
ALONE = "heshare:trade-off(batching=single,clock_scope=none,generations=2,population=12)"
"""Starts one after the other."""
_TURNS = 8


def measure(
    bench: Bench, card: LiveCard, tasks: Sequence[Task], predictor: Predictor, *, warm_s: float = 0.0
) -> Loading:
    """Start the jobs of a task set, one iteration each: all of them together, then some one after the other.

    The first start of all fills the machine's disk cache and is not used.

    Args:
        bench: where.
        card: the GPU to start them on.
        tasks: the task set.
        predictor: tells how long the one iteration takes.
        warm_s: how long workers warm up; what they were told, not measured.

    Raises:
        DeviceError: a job did not complete.
        Interrupted: a signal asked for the end.
    """
    short = [replace(one, iterations=1) for one in tasks]
    device = f"nvml:{card.uuid}"
    for again in ("cold", "warm"):
        together = _in_order(bench.run(f"start-{again}", short, TOGETHER, device))[0]
    alone = _in_order(bench.run("start-alone", short[:_TURNS], ALONE, device))
    one_s = median(one.begun_s - one.asked_s for one in alone)
    others = len(together.jobs) - 1
    more_s = (together.begun_s - together.asked_s - one_s) / others if others else 0.0
    gaps_s = [after.asked_s - before.ended_s for before, after in pairwise(alone)]
    iteration_s = predictor.solo([tasks[_number(one)].workload for one in alone], card.gpu).time_s[:, 0]
    exits_s = [one.ended_s - one.begun_s - float(each) for one, each in zip(alone, iteration_s, strict=True)]
    return Loading(
        one_s, max(0.0, more_s), max(0.0, median(exits_s)), max(0.0, median(gaps_s or [0.0])), min(warm_s, one_s)
    )


def _number(one: Loaded) -> int:
    return int(one.jobs[0].removeprefix(PREFIX))


def _in_order(entries: Sequence[Entry]) -> list[Loaded]:
    found = sorted(loaded(entries), key=lambda one: one.asked_s)
    if not found:
        raise DeviceError("No job was started. See the outputs of the runs called start-*.")
    return found
