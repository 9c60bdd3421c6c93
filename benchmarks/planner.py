"""The paper's planner, `hs.plan`: wall time for 2,000 tasks on 100 GPUs, CPU time and peak memory for 1,000 on 8.

Both come after a small plan that compiles. Run it alone as `python benchmarks/planner.py`; it prints one JSON object
for each row, with the argument `1000` the rows of 1,000 tasks alone, whose memory is that of a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter, process_time

from bench_rows import Row, peak_mib, sample_row, single_row

import heshare

SMALL = (20, "2xT4,1xV100,1xA100")


def results(repeats: int = 1) -> list[Row]:
    """Return the times, s, and the peak memory, MiB; the median wall time where it repeats."""
    done = subprocess.run([sys.executable, __file__, "1000"], capture_output=True, text=True, check=True)
    wall_s = seconds(2_000, "50xT4,25xV100,25xA100", perf_counter, repeats)
    return [sample_row("plan_2000_s", wall_s, "s"), *map(json.loads, done.stdout.splitlines())]


def seconds(count: int, cluster: str, clock: Callable[[], float], repeats: int = 1) -> list[float]:
    """Return the time of each plan by a clock, s, each with a predictor of its own that has predicted nothing."""
    heshare.plan(*SMALL, predictor=heshare.load_predictor())
    tasks, found = heshare.task_set(count, seed=0), []
    for _ in range(repeats):
        predictor = heshare.load_predictor()
        start_s = clock()
        heshare.plan(tasks, cluster, predictor=predictor)
        found.append(clock() - start_s)
    return found


def thousand() -> list[Row]:
    """Return CPU time, s, and peak memory of this process, MiB, of a plan of 1,000 tasks on 8 GPUs."""
    rows = [sample_row("plan_1000_s", seconds(1_000, "4xT4,2xV100,2xA100", process_time), "s")]
    return [*rows, single_row("plan_1000_mib", peak_mib(), "MiB")]


if __name__ == "__main__":
    for row in thousand() if sys.argv[1:] == ["1000"] else results():
        print(json.dumps(row))
