"""Time of the paper's planner, `hs.plan`, for 2,000 tasks on 100 GPUs, after a small plan that compiles.

Run it alone as `python benchmarks/planner.py`; it prints one JSON object for each row.
"""

from __future__ import annotations

import json
from time import perf_counter

from bench_rows import Row, sample_row

import heshare

TASKS = 2_000
CLUSTER = "50xT4,25xV100,25xA100"
SMALL = (20, "2xT4,1xV100,1xA100")


def results(repeats: int = 1) -> list[Row]:
    """Return the median wall time of a plan, each with a predictor of its own that has predicted nothing, s."""
    heshare.plan(*SMALL, predictor=heshare.load_predictor())
    tasks = heshare.task_set(TASKS, seed=0)
    times_s = []
    for _ in range(repeats):
        predictor = heshare.load_predictor()
        start_s = perf_counter()
        heshare.plan(tasks, CLUSTER, predictor=predictor)
        times_s.append(perf_counter() - start_s)
    return [sample_row("plan_2000_s", times_s, "s")]


if __name__ == "__main__":
    for row in results():
        print(json.dumps(row))
