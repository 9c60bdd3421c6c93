"""Speed of the policy `marginal`: one decision at 1,000 GPUs with 200 waiting tasks, and the half-year of Venus.

`python benchmarks/marginal.py` prints the rows; `--whole` runs all 125,000 jobs of the half-year, else the first 2,500.

A decision: to 1,000 GPUs of three types, 1,000 tasks of Table IV arrive at once and then one every 0.4 s, so that more
than 200 wait and `look`, 200, are considered. Each arrival or completion is one decision with the view that the loop
gives, timed from the call of `decide` to its last action. Counted are decisions for which no set was new to the
predictor and at least 200 tasks waited: those are warm.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
from bench_rows import Row, sample_row, single_row
from venus import GPUS, KIND, tasks_of

from heshare.devices.task_sizes import time_alone_s
from heshare.lab.long_runs.run_long import run_long
from heshare.lab.plus.marginal.marginal_policy import Marginal
from heshare.policies.policy import Action, Event, View
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import begin, complete
from heshare.world.catalogue import paper_models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTER = "400xT4,300xV100,300xA100"
AT_ONCE, EVERY_S, EVENTS, WAITING = 1_000, 0.4, 400, 200
WHOLE, PART = 125_000, 2_500


class EnoughEventsError(Exception):
    """Ends a run after enough events."""


class TimedMarginal(Marginal):
    """Marginal that notes the wall time of each warm decision with enough waiting tasks, s."""

    def __init__(self, predictor: DevicePredictor) -> None:
        super().__init__()
        self._predictor = predictor
        self.events = 0
        self.times_s: list[float] = []

    def decide(self, event: Event, view: View) -> Iterable[Action]:  # type: ignore[override]
        """Decide, and note the time."""
        waiting, calls, start_s = len(view.waiting), self._predictor.calls, time.perf_counter()
        actions = list(super().decide(event, view))
        spent_s = time.perf_counter() - start_s
        self.events += 1
        if waiting >= WAITING and calls == self._predictor.calls:
            self.times_s.append(spent_s)
        if self.events == EVENTS:
            raise EnoughEventsError
        return actions


def stream(seed: int = 0) -> list[Task]:
    """Return tasks of some minutes alone: many at once, then one after the other."""
    rng = np.random.default_rng(seed)
    workloads = [Workload(name, size) for name in paper_models() for size in (4, 8)]
    tasks = []
    for index in range(AT_ONCE + EVENTS):
        workload = workloads[rng.integers(len(workloads))]
        iterations = float(rng.lognormal(5.0, 1.0)) / time_alone_s(workload)
        tasks.append(Task(index, workload, iterations, max(index - AT_ONCE, 0) * EVERY_S))
    return tasks


def decisions_s() -> list[float]:
    """Return the wall time of each warm decision of the stream, s."""
    predictor = DevicePredictor()
    policy = TimedMarginal(predictor)
    state = begin(stream(), Cluster.parse(CLUSTER), policy, predictor=predictor, rng=np.random.default_rng(0))
    with suppress(EnoughEventsError):
        complete(state)
    return policy.times_s


def venus_s(jobs: int) -> float:
    """Return the wall time of the first jobs of Venus under `marginal`, with checkpoints, s."""
    tasks = tasks_of(jobs)
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.perf_counter()
        run_long(
            tasks,
            Cluster.parse(f"{GPUS}x{KIND}"),
            make("marginal"),
            predictor=DevicePredictor(),
            rng=np.random.default_rng(0),
            checkpoint=Path(folder) / "checkpoint",
        )
        return time.perf_counter() - start_s


def results(*, whole: bool = False) -> list[Row]:
    """Return rows of the benchmark's list; `venus_marginal_s` is that of the whole half-year, else `_part_s`."""
    times_ms = [1e3 * time_s for time_s in decisions_s()]
    jobs = WHOLE if whole else PART
    name = "venus_marginal_s" if whole else "venus_marginal_part_s"
    return [
        sample_row("marginal_decide_ms", times_ms, "ms"),
        single_row("marginal_decide_worst_ms", max(times_ms), "ms", len(times_ms)),
        single_row(name, venus_s(jobs), "s", jobs),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Speed of the policy marginal.")
    parser.add_argument("--whole", action="store_true", help="all jobs of the half-year of Venus")
    for row in results(whole=parser.parse_args().whole):
        print(f"{row['name']:26s} {row['value']:14.6g} {row['unit']}")
