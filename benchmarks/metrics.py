"""Cost of the metrics of a run (`heshare run --metrics`) at one scrape a second, with stand-in GPUs and real processes.

`python benchmarks/metrics.py` prints the results as JSON. Measured in a process of its own, as `executor.py` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_rows import Row, sample_row, single_row
from executor import JOBS, core_pct

SCRAPER = """
import sys, time, urllib.request
accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
while True:
    with urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=accept)) as answer:
        answer.read()
    time.sleep(1.0)
"""
SCRAPES = 40


def results() -> list[Row]:
    """Return `metrics_core_pct` and `metrics_scrape_ms`; an empty list without a C compiler, for the stand-in."""
    from support.fakenvml import compiler
    from support.kill_drill import prepare

    if compiler() is None:
        return []
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        here = Path(__file__).resolve()
        path = os.pathsep.join(map(str, (here.parents[1], here.parents[1] / "tests")))
        environment = {**os.environ, **prepare(Path(name)), "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, str(here), name], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    found: list[Row] = json.loads(done.stdout)
    return found


def added_core_pct(folder: Path) -> float:
    """Return how much more of a core a run of `JOBS` jobs takes when it is scraped once a second, %."""
    from heshare.ops.metrics.metrics_target import HttpAddress
    from heshare.ops.metrics.run_meter import RunMeter

    for name in ("without", "with"):
        (folder / name).mkdir()
    without_pct = core_pct(folder / "without")
    meter = RunMeter("bench", HttpAddress("127.0.0.1", 0))
    scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, f"http://127.0.0.1:{meter.port}/metrics"])
    try:
        with_pct = core_pct(folder / "with", meter=meter)
    finally:
        scraper.kill()
        scraper.wait()
        meter.close()
    return with_pct - without_pct


def scrapes_ms() -> list[float]:
    """Return the CPU time of scrapes of as many jobs as are ever shown with two GPUs of 48 clients, ms."""
    from prometheus_client.openmetrics.exposition import generate_latest

    from heshare.ops.metrics.run_meter import TallyCollector
    from heshare.ops.metrics.run_tally import MOST_LEFT, RunTally

    tally, jobs = RunTally(), [f"job-{number}" for number in range(96)]
    gpus = [{"uuid": f"GPU-{index}", "name": "A100", "sharing": "mps"} for index in range(2)]
    tally.add({"run": {"policy": "random", "jobs": [{"count": 1000}]}})
    tally.add({"session": {"at": time.time(), "gpus": gpus}})
    for number in range(MOST_LEFT):
        end = {"job": f"over-{number}", "gpu": 0, "end_s": 0.0, "outcome": "completed", "iterations": 1.0}
        tally.add({"end": {**end, "energy_j": 1.0, "energy_model_j": 1.0}})
    starts = [["start", job, number % 2, 10, None] for number, job in enumerate(jobs)]
    tally.add({"decision": {"t": 0.0, "decided_s": 0.0, "actions": starts}})
    accounts = []
    for index in range(2):
        shares_j = dict.fromkeys(jobs[index::2], 10.0)
        account = {"energy_j": 480.0, "idle_j": 0.0, "power_w": 300.0, "sm_mhz": 900.0}
        accounts.append({**account, "shares_j": shares_j, "model_shares_j": shares_j})
    tally.add({"sample": {"t": 1.0, "gpus": accounts}})
    collector, took_ms = TallyCollector(tally, "bench", active=True), []
    for _ in range(SCRAPES):
        began_s = time.process_time()
        generate_latest(collector)
        took_ms.append(1e3 * (time.process_time() - began_s))
    return took_ms


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rows = [single_row("metrics_core_pct", added_core_pct(Path(sys.argv[1])), "%", JOBS)]
        print(json.dumps([*rows, sample_row("metrics_scrape_ms", scrapes_ms(), "ms")]))
    else:
        print(json.dumps(results(), indent=2))
