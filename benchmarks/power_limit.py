"""Cost of a power limit for the policy: CPU time per event on 64 GPUs, with and without a limit.

`python benchmarks/power_limit.py` prints the rows. The limit is so high that the runs are the same; one that binds adds
the predictions of other clocks.
"""

from __future__ import annotations

import time

from bench_rows import Row, sample_row

import heshare as hs
from heshare.lab.limits import within_limit
from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.policies.registry import make
from heshare.running.run import run
from heshare.world.cluster import Cluster

GPUS, JOBS, REPEATS = 64, 1_000, 3


def results() -> list[Row]:
    """Return `power_limit_event_ms`: what a limit adds to the processor time of an event, ms."""
    added = []
    for repetition in range(REPEATS):
        free, limited = (_event_ms(repetition, limit_w) for limit_w in (None, 300.0 * GPUS))
        added.append(limited - free)
    return [sample_row("power_limit_event_ms", added, "ms")]


def _event_ms(repetition: int, limit_w: float | None) -> float:
    streams, cluster = Repetition(repetition, 0), Cluster.parse(f"{GPUS}xV100")
    tasks, _ = venus_tasks(JOBS, rng=streams.rng(TASKS), gpus=GPUS, load=0.9)
    policy = within_limit(make("fifo-packed"), limit_w)
    began_s = time.process_time()
    done = run(tasks, cluster, policy, predictor=hs.load_predictor(), rng=streams.rng(POLICY))
    return 1e3 * (time.process_time() - began_s) / done.events


if __name__ == "__main__":
    print(results())
