"""Times of single stages: an estimate, a row of a trace, a task set, a plan, a run of 60 tasks, and 1,000 such runs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench_rows import Row, sample_row, single_row

import heshare
from heshare.world.job_trace import read_trace

TRACE_ROWS = 20_000
ESTIMATES = 500
REPEATS = 5
RUNS = 1_000
CLUSTER = "4xT4,2xV100,2xA100"


def trace_file(folder: str) -> Path:
    """Return the file of a trace of `TRACE_ROWS` jobs, one every second."""
    path = Path(folder) / "trace.csv"
    rows = (
        f"{i},2020-09-{1 + i // 86400:02d} {i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d},300,1"
        for i in range(TRACE_ROWS)
    )
    path.write_text("\n".join(["job_id,submit_time,duration_s,gpu_num", *rows]), encoding="utf-8")
    return path


def many_estimates() -> None:
    """Estimate times and power of two residents with the device model, `ESTIMATES` times."""
    for i in range(ESTIMATES):
        heshare.estimate("V100-SXM2", [f"resnet50:{1 + i % 32}@50", "vgg19:8@50"])


def cases(folder: str) -> dict[str, tuple[Callable[[], object], int]]:
    """Return the timed cases by name: a call and the number of units that it processes."""
    trace = trace_file(folder)
    tasks = heshare.task_set(60)
    predictor = heshare.load_predictor()
    return {
        "estimate": (many_estimates, ESTIMATES),
        "trace_row": (lambda: read_trace(trace), TRACE_ROWS),
        "task_set_60": (lambda: heshare.task_set(60), 1),
        "plan_60": (lambda: heshare.plan(tasks, CLUSTER, predictor=predictor), 1),
        "run_random_60": (lambda: heshare.run(tasks, CLUSTER, "random:all-at-once", predictor=predictor), 1),
    }


def timed_s(call: Callable[[], object], repeats: int) -> list[float]:
    """Return the wall time of each of `repeats` calls, after one for warm-up, s."""
    call()
    times_s = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - start_s)
    return times_s


def compare_again_and_again() -> None:
    """Run 60 tasks under `random:all-at-once`, with metrics, `RUNS` times; estimates are kept after the first."""
    tasks, predictor = heshare.task_set(60), heshare.load_predictor()
    for _ in range(RUNS):
        heshare.run(tasks, CLUSTER, "random:all-at-once", predictor=predictor).summary()


def results() -> list[Row]:
    """Return the time of each case for each unit, and of the repeated comparison."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            sample_row(name, [taken_s / things for taken_s in timed_s(call, REPEATS)], "s")
            for name, (call, things) in cases(folder).items()
        ]
    start_s = time.perf_counter()
    compare_again_and_again()
    return [*rows, single_row("thousand_runs_s", time.perf_counter() - start_s, "s", RUNS)]
