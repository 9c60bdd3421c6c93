"""Speed of the event loop: half a year of Venus under FIFO, growth with the number of tasks, and ratio to SimPy.

Before each program is timed, garbage is collected, and the objects that imports and earlier programs keep are left out
of later collections: a program of its own would not have them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import simpy_fifo
from bench_rows import Row, sample_row, single_row

from heshare.devices.device_model import Estimate, co_run
from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

GPUS, KIND = 1000, "V100"
SIZES = (8_000, 16_000, 32_000, 64_000, 125_000)
SIMPY_TASKS = 20_000


def tasks_of(n: int) -> tuple[Task, ...]:
    """Return the first n jobs of a half-year like that of Venus."""
    return venus_tasks(n, rng=np.random.default_rng(0), gpus=GPUS)[0]


def loop_s(tasks: tuple[Task, ...], *, progress: bool = False) -> float:
    """Return the wall time of the event loop on a task set under FIFO, s."""
    cluster, policy = Cluster.parse(f"{GPUS}x{KIND}"), make("fifo")
    predictor, rng = DevicePredictor(), np.random.default_rng(0)
    gc.collect()
    gc.freeze()
    start_s = time.perf_counter()
    run(tasks, cluster, policy, predictor=predictor, rng=rng, progress=progress)
    return time.perf_counter() - start_s


def simpy_s(program: Callable[..., object], tasks: tuple[Task, ...]) -> float:
    """Return the wall time of a SimPy program on the same task set, s."""

    @cache
    def estimate(workloads: tuple[Workload, ...]) -> Estimate:
        return co_run(gpu(KIND), [Resident(workload) for workload in workloads])

    gc.collect()
    gc.freeze()
    start_s = time.perf_counter()
    program(tasks, GPUS, estimate)
    return time.perf_counter() - start_s


def growth_s() -> dict[int, float]:
    """Return the wall time of the event loop for each number of tasks, s."""
    every = {n: tasks_of(n) for n in SIZES}
    loop_s(every[SIZES[0]])
    return {n: min(loop_s(every[n]) for _ in range(1 if n > SIZES[2] else 2)) for n in SIZES}


def results(repeats: int = 5) -> list[Row]:
    """Return rows of the benchmark's list; compared programs run in turn, one ratio a repeat."""
    grown_s = growth_s()
    some = tasks_of(SIMPY_TASKS)
    times_s = [
        (loop_s(some), simpy_s(simpy_fifo.by_device, some), simpy_s(simpy_fifo.by_job, some)) for _ in range(repeats)
    ]
    exponent = float(np.polyfit(np.log(list(grown_s)), np.log(list(grown_s.values())), 1)[0])
    return [
        single_row("venus_fifo_s", grown_s[SIZES[-1]], "s", SIZES[-1]),
        single_row("loop_exponent", exponent, n=len(SIZES)),
        sample_row("loop_vs_simpy", (device_s / ours_s for ours_s, device_s, _ in times_s)),
        sample_row("loop_vs_simpy_by_job", (job_s / ours_s for ours_s, _, job_s in times_s)),
    ]


if __name__ == "__main__":
    for row in results():
        print(f"{row['name']:22s} {row['value']:14.6g} {row['unit']}")
