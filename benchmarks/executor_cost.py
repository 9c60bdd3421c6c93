"""CPU time of a whole run on real GPUs, and time of its decisions: one number a line, over stand-ins for two GPUs.

`PYTHONPATH=tests python benchmarks/executor_cost.py --minutes 5` runs `heshare jobs run` with sleeping jobs that arrive
one by one, and reads `/proc/PID/stat` of every process of the run that is neither a job nor an MPS daemon.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from support import kill_drill
from support.run_entries import journal_lines

EVERY_S, SLEEP_S = 2.0, 7
"""Time between two arrivals, and of each job, s."""

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(machine: Path) -> Iterator[tuple[int, str, float]]:
    """Yield each process of the runs on a stand-in machine that is no job: its id, its part, and its CPU time, s."""
    mark = f"{kill_drill.MARK}={machine}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            if mark not in environment or any(entry.startswith(b"HESHARE_JOB=") for entry in environment):
                continue
            words = (process / "cmdline").read_bytes().decode().split("\0")
            fields = (process / "stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        part = _part(words)
        if part:
            yield int(process.name), part, (int(fields[11]) + int(fields[12])) / _TICKS


def _part(words: list[str]) -> str:
    """Return which part of the run a command line is; empty for an MPS daemon."""
    if "-m" not in words:
        return "child" if any("multiprocessing" in word for word in words) else ""
    module = words[words.index("-m") + 1]
    return "executor" if module == "heshare" and "run" in words else module.rpartition(".")[2]


def measure(machine: Path, minutes: float, policy: str) -> dict[str, float]:
    """Run jobs for so many minutes; return shares of a core, %, by part, and times of decisions, ms."""
    environment = {**os.environ, **kill_drill.prepare(machine), "FAKENVML_FAIL": "set:count=2"}
    count = max(int(60.0 * minutes / EVERY_S), 1)
    lines = [
        f"- {{name: j{index}, command: [sleep, '{SLEEP_S}'], like: 'mobilenet:1', iterations: 1, "
        f"arrival_s: {EVERY_S * index}}}"
        for index in range(count)
    ]
    (machine / "jobs.yaml").write_text("jobs:\n" + "\n".join(lines), encoding="utf-8")
    words = ["jobs", "run", "jobs.yaml", "--devices", "nvml", "--policy", policy, "--allow-clocks", "--out", "run"]
    with (machine / "printed").open("wb") as printed:
        command = [sys.executable, "-m", "heshare", *words]
        run = subprocess.Popen(command, cwd=machine, env=environment, stdout=printed, stderr=printed)
        outputs = machine / "run" / "outputs"
        while run.poll() is None and not list(outputs.glob("*")):
            time.sleep(0.05)
        first: dict[int, float] = {}
        latest: dict[int, tuple[str, float]] = {}
        began_s = until_s = time.monotonic()
        while run.poll() is None:
            for pid, part, now_s in cpu_s(machine):
                first.setdefault(pid, now_s if time.monotonic() - began_s < 1.0 else 0.0)
                latest[pid], until_s = (part, now_s), time.monotonic()
            time.sleep(1.0)
    if run.returncode != 0:
        raise RuntimeError((machine / "printed").read_text("utf-8"))
    spent_s: dict[str, float] = defaultdict(float)
    for pid, (part, now_s) in latest.items():
        spent_s[part] += now_s - first[pid]
    shares = {f"{part}_core_pct": 100.0 * one_s / (until_s - began_s) for part, one_s in sorted(spent_s.items())}
    decided = [entry["decision"] for entry in journal_lines(machine / "run") if "decision" in entry]
    took_ms = [1e3 * (one["decided_s"] - one["t"]) for one in decided]
    return {
        "wall_s": until_s - began_s,
        "start_cpu_s": sum(first.values()),
        **shares,
        "all_core_pct": sum(shares.values()),
        "decisions": len(took_ms),
        "decision_ms": statistics.median(took_ms),
        "decision_ms_largest": max(took_ms),
    }


def main() -> None:
    """Measure in a new machine, and print one number a line."""
    parser = argparse.ArgumentParser(description="CPU time of a run, over stand-ins for two GPUs.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--policy", default="morak")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        for what, value in measure(Path(name), arguments.minutes, arguments.policy).items():
            print(f"{what} {value:.3f}")


if __name__ == "__main__":
    main()
