"""One drill: `python -m support.drills executor --kills 200 --seed 1` prints its faults, which are exit code 1."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.clock_service import ServiceProcess
from support.drills.machine import Machine, RunFolder, kill
from support.waiting import until

RUN_S = 300.0
"""The longest wait for a run, s; a machine under load takes a minute to start Python."""


class Drill:
    """Runs on one machine, in which something is killed again and again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.machine, self.rng = Machine(folder), np.random.default_rng(seed)
        self.service = ServiceProcess(folder / "clocks")

    def strike(self, kind: str, kills: int) -> list[str]:
        """Kill so often; return what was wrong after a kill or at the end of a run."""
        hit: Callable[[RunFolder, subprocess.Popen[bytes]], list[str] | None] = getattr(self, kind)
        faults, runs = [], 0
        while kills > 0:
            run = RunFolder(self.machine.folder / f"run{runs}")
            run.write(self.rng, retries=10 * (kind == "worker"))
            over, runs = False, runs + 1
            while not over:
                executor = self.machine.start(*run.words("--policy", "morak", "--allow-clocks"))
                while kills > 0 and executor.poll() is None:
                    time.sleep(2.0 * float(self.rng.random()))
                    wrong = hit(run, executor) if executor.poll() is None else None
                    kills -= wrong is not None
                    faults += wrong or []
                over = executor.wait(RUN_S) >= 0
            if executor.returncode != 0:
                faults.append(f"exit code {executor.returncode}: {self.machine.printed()}")
            faults += run.faults() + self.machine.left_behind()
        return faults

    def executor(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str]:
        """Kill the executor alone."""
        kill([executor.pid])
        executor.wait()
        return self._restored()

    def both(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str] | None:
        """Kill it with its watchdog and clock services; `heshare restore` cleans up."""
        helpers = [pid for pid, part, _ in self.machine.processes() if part in ("watchdog", "clock_service")]
        if not helpers:
            return None
        kill([int(pid) for pid in self.rng.permutation([executor.pid, *helpers])])
        executor.wait()
        code = self.machine.start("restore").wait(RUN_S)
        return self._restored() + [f"heshare restore exits with {code}: {self.machine.printed()}"] * (code != 0)

    def worker(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str] | None:
        """Kill the process of a job, which is retried."""
        jobs = [(pid, job) for pid, _, job in self.machine.processes() if job]
        if not jobs:
            return None
        pid, job = jobs[int(self.rng.integers(len(jobs)))]
        ended = run.outcomes(job)
        kill([pid])
        noted = until(lambda: len(run.outcomes(job)) > len(ended) or executor.poll() is not None)
        return [] if noted else [f"no end of {job} in the journal"]

    def clocks(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str]:
        """Kill the clock service of the machine, at times with the executor, and start it again."""
        until(lambda: self.machine.locked() or executor.poll() is not None)
        self.service.kill()
        alone = self.rng.random() < 0.5
        if not alone:
            kill([executor.pid])
            executor.wait()
        self.service.begin()
        settled = until(lambda: self.machine.locked() == bool(self.service.notes))
        wrong = ["the notes of the service and the locked clocks differ"] * (not settled)
        return wrong + ([] if alone else self._restored())

    def _restored(self) -> list[str]:
        until(lambda: not self.machine.left_behind())
        return self.machine.left_behind()


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.drills", description="Kill parts of runs at random moments.")
    parser.add_argument("kind", choices=("executor", "both", "worker", "clocks"))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        drill = Drill(Path(name), given.seed)
        if given.kind == "clocks":
            os.environ["HESHARE_CLOCKS"] = str(drill.service.begin().socket)
        faults = drill.strike(given.kind, given.kills)
        if given.kind == "clocks":
            drill.service.end()
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
