"""Overhead of the executor with stand-in GPUs and real processes: its share of a core, and the delay of starts.

All is measured in a separate process that loads the stand-ins instead of a driver. `python benchmarks/executor.py`
prints the results as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench_rows import Row, sample_row, single_row

JOBS = 48
WINDOW_S = 4.0
GROUPS, GROUP = 15, 4


def results() -> list[Row]:
    """Return `executor_core_pct` (while 48 jobs run) and `decision_to_start_ms` (median and largest, with the journal).

    The list is empty without a C compiler, which builds the stand-in.
    """
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


def core_pct(folder: Path, **options: Any) -> float:
    """Return the CPU time of this process over wall time while `JOBS` jobs run, %, without its children.

    Args:
        folder: where the run is made.
        options: of the executor.
    """
    from heshare.ops.executor import execute
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
        marks.append((time.monotonic(), time.process_time()))
        time.sleep(WINDOW_S)
        marks.append((time.monotonic(), time.process_time()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = execute.execute(
        file, folder / "many", policy="random:all-at-once", devices="nvml", predictor=ToyPredictor(),
        options=execute.ExecutorOptions(**options),
    )  # fmt: skip
    watcher.join()
    assert result.complete
    (from_s, cpu_from_s), (to_s, cpu_to_s) = marks
    return 100.0 * (cpu_to_s - cpu_from_s) / (to_s - from_s)


def starts_ms(folder: Path) -> list[float]:
    """Return the time from each decision to the start of each of its processes, ms."""
    from heshare.ops.executor import execute
    from heshare.testing.toy import ToyPredictor

    lines = [
        f"- {{name: g{group}, command: ['true'], like: 'mobilenet:1', iterations: 1, count: {GROUP}, "
        f"arrival_s: {1.0 + 0.3 * group}}}"
        for group in range(GROUPS)
    ]
    file = folder / "groups.yaml"
    file.write_text("jobs:\n" + "\n".join(lines))
    run = folder / "groups"
    result = execute.execute(file, run, policy="random:all-at-once", devices="nvml", predictor=ToyPredictor())
    assert result.complete
    from support.run_entries import journal_lines

    entries = journal_lines(run)
    decided_s = {
        action[1]: one["decision"]["decided_s"]
        for one in entries
        if "decision" in one
        for action in one["decision"]["actions"]
        if action[0] == "start"
    }
    return [1e3 * (one["end"]["began_s"] - decided_s[one["end"]["job"]]) for one in entries if "end" in one]


def main(folder: Path) -> None:
    """Measure, and print the results."""
    pct, waits_ms = core_pct(folder), starts_ms(folder)
    found = [
        single_row("executor_core_pct", pct, "%", JOBS),
        sample_row("decision_to_start_ms", waits_ms, "ms"),
        single_row("decision_to_start_ms_largest", max(waits_ms), "ms", len(waits_ms)),
    ]
    print(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        print(json.dumps(results(), indent=2))
