"""One drill: `python -m support.drills executor --kills 200 --seed 1` prints its faults, which are exit code 1."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.drills.machine import Machine, RunFolder, kill
from support.waiting import until

RUN_S = 300.0
"""The longest wait for a run, s; a machine under load takes a minute to start Python."""
KINDS = ("executor", "both", "cleanup", "reader", "supervisor", "worker")


class Drill:
    """Runs on one machine, in which something is killed again and again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.machine, self.rng = Machine(folder), np.random.default_rng(seed)

    def run(self, kind: str, kills: int) -> list[str]:
        """Kill so often; return what was wrong after a kill or at the end of a run."""
        hit: Callable[[RunFolder, subprocess.Popen[bytes]], list[str] | None] = getattr(self, kind)
        faults, runs = [], 0
        while kills > 0:
            run = RunFolder(self.machine.folder / f"run{runs}")
            run.write(self.rng, retries=10)
            over, runs, before_j = False, runs + 1, self.machine.counter_j()
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
            faults += run.faults() + run.energy_faults(self.machine.counter_j() - before_j)
            faults += self._restored()
        return faults

    def executor(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str]:
        """Kill the executor alone; its cleanup process gives everything back."""
        kill([executor.pid])
        executor.wait()
        return self._restored()

    def both(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str] | None:
        """Kill it with its cleanup process and its reader; `heshare restore` cleans up."""
        helpers = self.machine.pids("cleanup") + self.machine.pids("reader_process")
        if not helpers:
            return None
        kill([int(pid) for pid in self.rng.permutation([executor.pid, *helpers])])
        executor.wait()
        code = self.machine.start("restore").wait(RUN_S)
        return self._restored() + [f"heshare restore exits with {code}: {self.machine.printed()}"] * (code != 0)

    def cleanup(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str] | None:
        """Kill the cleanup process alone, which is replaced."""
        return self._replaced("cleanup", executor)

    def reader(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str] | None:
        """Kill the process that calls NVML, which is replaced; before its session a run is refused without it."""
        begun = any("session" in entry for entry in run.entries())
        return self._replaced("reader_process", executor) if begun else None

    def supervisor(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str] | None:
        """Kill what is above a job, which ends with it."""
        pids = self.machine.pids("supervisor")
        if not pids:
            return None
        jobs = {job for _, _, job in self.machine.processes() if job}
        return self._failed(run, executor, int(self.rng.choice(pids)), jobs)

    def worker(self, run: RunFolder, executor: subprocess.Popen[bytes]) -> list[str] | None:
        """Kill the process of a job, which is retried."""
        jobs = [(pid, job) for pid, _, job in self.machine.processes() if job]
        if not jobs:
            return None
        pid, job = jobs[int(self.rng.integers(len(jobs)))]
        return self._failed(run, executor, pid, {job})

    def _failed(self, run: RunFolder, executor: subprocess.Popen[bytes], pid: int, jobs: set[str]) -> list[str]:
        """Kill a process; one of these jobs ends by that."""
        ended = sum(len(run.outcomes(job)) for job in jobs)
        kill([pid])
        noted = until(lambda: sum(len(run.outcomes(job)) for job in jobs) > ended or executor.poll() is not None, RUN_S)
        return [] if noted else [f"no end of {' or '.join(sorted(jobs))} in the journal"]

    def _replaced(self, part: str, executor: subprocess.Popen[bytes]) -> list[str] | None:
        before = self.machine.pids(part)
        if not before:
            return None
        kill(before)
        replaced = until(lambda: set(self.machine.pids(part)) - set(before) or executor.poll() is not None, RUN_S)
        return [] if replaced else [f"no {part} in the place of the one that was killed"]

    def _restored(self) -> list[str]:
        until(lambda: not self.machine.left_behind())
        return self.machine.left_behind()


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.drills", description="Kill parts of runs at random moments.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        faults = Drill(Path(name), given.seed).run(given.kind, given.kills)
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
