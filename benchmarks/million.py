"""Memory of a run of a stream of tasks: how much more it needs after the first 100,000 tasks.

`python benchmarks/million.py N` runs N tasks and prints the growth beyond 100,000 tasks, and the CPU time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
from bench_rows import Row, peak_mib, single_row

from heshare.lab.long_runs.run_stream import run_stream
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

GPUS, FEW, MANY = 1000, 100_000, 300_000
LOAD, MEAN_ITERATIONS, ITERATION_S = 0.9, 1000.0, 0.0054
"""About the time of an iteration on a V100, s; it only sets how many GPUs are busy."""


def short_tasks(n: int) -> Iterator[Task]:
    """Yield n short inference tasks on one GPU each, at random moments; on average nine of ten GPUs are busy."""
    rng, workload, arrival_s = np.random.default_rng(0), Workload("resnet50", 4), 0.0
    gap_s = MEAN_ITERATIONS * ITERATION_S / (GPUS * LOAD)
    for index in range(n):
        arrival_s += float(rng.exponential(gap_s))
        yield Task(index, workload, float(rng.uniform(0.5, 1.5)) * MEAN_ITERATIONS, arrival_s)


def peaks_mib(n: int) -> tuple[float, float]:
    """Run n tasks under FIFO; return the largest memory until the arrival of task `FEW`, and until the end, MiB."""
    first_mib = 0.0

    def watched() -> Iterator[Task]:
        nonlocal first_mib
        for index, task in enumerate(short_tasks(n)):
            if index == FEW:
                first_mib = peak_mib()
            yield task

    cluster = Cluster.parse(f"{GPUS}xV100")
    run_stream(watched(), cluster, make("fifo"), predictor=DevicePredictor(), rng=np.random.default_rng(0))
    return first_mib, peak_mib()


def results(n: int = MANY) -> list[Row]:
    """Return rows of the benchmark's list, measured in a process of its own; a million tasks are run by hand."""
    done = subprocess.run([sys.executable, __file__, str(n)], check=True, capture_output=True, text=True)
    extra_mib, first_mib, _ = map(float, done.stdout.split())
    return [single_row("million_tasks_extra_mib", extra_mib, "MiB", n), single_row("stream_peak_mib", first_mib, "MiB")]


if __name__ == "__main__":
    start_s = time.process_time()
    first_mib, last_mib = peaks_mib(int(sys.argv[1]))
    print(last_mib - first_mib, first_mib, time.process_time() - start_s)
