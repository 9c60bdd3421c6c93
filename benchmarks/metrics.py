"""Cost of the metrics of a run (`heshare jobs run --metrics`) with stand-in GPUs and real processes.

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
    """Return how much more of a core a run of `JOBS` jobs takes when it writes its metrics, %."""
    from heshare.ops.views.run_meter import RunMeter

    for name in ("without", "with"):
        (folder / name).mkdir()
    without_pct = core_pct(folder / "without")
    meter = RunMeter("bench", folder / "with" / "run.prom")
    try:
        with_pct = core_pct(folder / "with", meter=meter)
    finally:
        meter.close()
    return with_pct - without_pct


def scrapes_ms() -> list[float]:
    """Return the CPU time of writing as many jobs as are ever shown with two GPUs of 48 clients, ms."""
    from prometheus_client.openmetrics.exposition import generate_latest
    from support.run_entries import ended, run_of, session, started, state_of

    from heshare.ops.jobs.entries import Account, Sample
    from heshare.ops.jobs.run_state import MOST_LEFT
    from heshare.ops.views.run_meter import RunMeter

    jobs = [f"job-{number}" for number in range(96)]
    halves = [dict.fromkeys(jobs[index::2], 10.0) for index in range(2)]
    accounts = [Account(480.0, 0.0, half, half, sm_mhz=900.0, power_w=300.0) for half in halves]
    over = [ended(f"over-{number}", energy_model_j=1.0) for number in range(MOST_LEFT)]
    starts = [started(*half, gpu=index, mps_pct=10) for index, half in enumerate(halves)]
    meter, took_ms = RunMeter("bench", Path("unused.prom")), []
    meter.state = state_of(run_of(1000), session(time.time(), 2), *over, *starts, Sample(1.0, tuple(accounts)))
    for _ in range(SCRAPES):
        began_s = time.process_time()
        generate_latest(meter)  # type: ignore[no-untyped-call]
        took_ms.append(1e3 * (time.process_time() - began_s))
    return took_ms


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rows = [single_row("metrics_core_pct", added_core_pct(Path(sys.argv[1])), "%", JOBS)]
        print(json.dumps([*rows, sample_row("metrics_scrape_ms", scrapes_ms(), "ms")]))
    else:
        print(json.dumps(results(), indent=2))
