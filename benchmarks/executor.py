"""What the executor costs, over the doubles, with real processes: its share of a core, and from decision to start.

Once with the GPUs of this machine, once with those of a host that it reaches through Dask (this machine again). All is
measured in a process of its own, which meets the stand-ins in the place of a driver: `python benchmarks/executor.py`
prints it as JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

JOBS = 48
WINDOW_S = 8.0
GROUPS, GROUP = 15, 4


def results() -> list[dict[str, Any]]:
    """`executor_core_pct` (while 48 jobs run) and `decision_to_start_ms` (journal's sync included, median, largest).

    The same with `hosts_` in front through Dask; there the clocks agree to half a round trip.
    Nothing where there is no C compiler to build the stand-in with.
    """
    from support.fakenvml import compiler
    from support.kill_drill import prepare

    if compiler() is None:
        return []
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        here = Path(__file__).resolve()
        environment = {**os.environ, **prepare(Path(name)), "PYTHONPATH": str(here.parents[1])}
        done = subprocess.run(
            [sys.executable, str(here), name], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def core_pct(folder: Path, hosts: str | None = None) -> float:
    """CPU time of this process over wall time while `JOBS` jobs run, %; the jobs' and the watchdog's is not in it."""
    from heshare.gpu.executor import execute
    from heshare.testing.toy import ToyPredictor

    file = folder / "many.yaml"
    wait_s = WINDOW_S + 4.0
    entry = f"{{name: a, command: [sleep, '{wait_s}'], like: 'mobilenet:1', iterations: 100, count: {JOBS}}}"
    file.write_text(f"jobs: [{entry}]")
    marks: list[tuple[float, float]] = []

    def watch() -> None:
        while len(list(folder.glob("**/outputs/a-*.log"))) < JOBS:
            time.sleep(0.05)
        time.sleep(1.0)
        for _ in range(2):
            marks.append((time.monotonic(), time.process_time()))
            time.sleep(WINDOW_S)

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = execute.execute(
        file, folder / "many", policy="random", devices="nvml", hosts=hosts, predictor=ToyPredictor()
    )
    watcher.join()
    assert result.complete
    (from_s, cpu_from_s), (to_s, cpu_to_s) = marks
    return 100.0 * (cpu_to_s - cpu_from_s) / (to_s - from_s)


def starts_ms(folder: Path, hosts: str | None = None) -> list[float]:
    """From each decision to the moment at which each process that it asked for had been started, ms."""
    from heshare.gpu.executor import execute, run_journal
    from heshare.testing.toy import ToyPredictor

    lines = [
        f"- {{name: g{group}, command: ['true'], like: 'mobilenet:1', iterations: 1, count: {GROUP}, "
        f"arrival_s: {1.0 + 0.3 * group}}}"
        for group in range(GROUPS)
    ]
    file = folder / "groups.yaml"
    file.write_text("jobs:\n" + "\n".join(lines))
    run = folder / "groups"
    result = execute.execute(file, run, policy="random", devices="nvml", hosts=hosts, predictor=ToyPredictor())
    assert result.complete
    entries = run_journal.read(run)
    decided_s = {
        action[1]: one["decision"]["decided_s"]
        for one in entries
        if "decision" in one
        for action in one["decision"]["actions"]
        if action[0] == "start"
    }
    return [1e3 * (one["end"]["began_s"] - decided_s[one["end"]["job"]]) for one in entries if "end" in one]


def measured(folder: Path, prefix: str = "", hosts: str | None = None) -> list[dict[str, Any]]:
    """All figures, with the GPUs of this machine or of hosts."""
    pct, waits_ms = core_pct(folder, hosts), starts_ms(folder, hosts)
    return [
        {"name": f"{prefix}executor_core_pct", "value": pct, "unit": "%", "n": JOBS},
        {
            "name": f"{prefix}decision_to_start_ms",
            "value": statistics.median(waits_ms),
            "unit": "ms",
            "n": len(waits_ms),
        },
        {"name": f"{prefix}decision_to_start_ms_largest", "value": max(waits_ms), "unit": "ms", "n": len(waits_ms)},
    ]


def main(folder: Path) -> None:
    """Measure, and print what was found."""
    from support.dask_cluster import Cluster, scheduler

    found = measured(folder)
    there = folder / "there"
    there.mkdir()
    with scheduler(there) as address:
        cluster = Cluster(address, there)
        cluster.join("host", uuid="GPU-bbbbbbbb-1111-2222-3333-444444444440")
        try:
            cluster.joined(1)
            found += measured(there, "hosts_", address)
        finally:
            cluster.end()
    print(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        print(json.dumps(results(), indent=2))
