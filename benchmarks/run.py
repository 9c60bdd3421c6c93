"""Benchmarks of all stages: medians of repeats, written as a JSON list of name, value, unit and n.

Run it as `make bench`. Times depend on the machine, so no test compares them.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import executor
import growth
import online
import optimum
import search
import venus

import heshare
from heshare.files import write_text
from heshare.world.helios_trace import stream_jobs

TRACE_ROWS = 20_000
ESTIMATES = 500


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
    cluster = "4xT4,2xV100,2xA100"
    return {
        "estimate": (many_estimates, ESTIMATES),
        "trace_row": (lambda: sum(1 for _ in stream_jobs(trace)), TRACE_ROWS),
        "task_set_60": (lambda: heshare.task_set(60), 1),
        "plan_60": (lambda: heshare.plan(tasks, cluster, predictor=predictor), 1),
        "run_random_60": (lambda: heshare.run(tasks, cluster, "random", predictor=predictor), 1),
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


def main() -> None:
    """Time every case and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10, help="task sets that the searches are compared on")
    arguments = parser.parse_args()
    results = executor.results() + optimum.exact() + optimum.bound()
    with tempfile.TemporaryDirectory() as folder:
        for name, (call, things) in cases(folder).items():
            median_s = statistics.median(timed_s(call, arguments.repeats))
            results.append({"name": name, "value": median_s / things, "unit": "s", "n": arguments.repeats})
    results += search.results(arguments.seeds)
    results += growth.growth()
    results += venus.results()
    results += online.results()
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    for result in results:
        print(f"{result['name']:22s} {result['value']:14.6g} {result['unit']}")
    write_text(arguments.out, json.dumps([{**one, "machine": machine} for one in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
