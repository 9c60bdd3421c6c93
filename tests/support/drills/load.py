"""Many cards and many jobs on a stand-in machine: `python -m support.drills.load --cards 16 --jobs 3000`."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from support.drills.machine import Machine
from support.job_rows import job, jobs_of


def main() -> int:
    """Run jobs of 0.2 s; print how long it took, and what is wrong, which is exit code 1."""
    parser = argparse.ArgumentParser(prog="support.drills.load")
    parser.add_argument("--cards", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=3000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        folder = Path(name)
        machine = Machine(folder)
        os.environ["FAKENVML_FAIL"] = f"set:count={given.cards}"
        (folder / "jobs.yaml").write_text(jobs_of(job("a", "sleep", "0.2", count=given.jobs)), encoding="utf-8")

        begun_s = time.monotonic()
        run = machine.start("jobs", "run", "jobs.yaml", "--out", "run", "--policy", "random:all-at-once")
        code = run.wait()
        took_s = time.monotonic() - begun_s
        used = resource.getrusage(resource.RUSAGE_CHILDREN)

        wrong = [] if code == 0 else [f"exit code {code}: {machine.printed()}"]
        jobs, gpus = pd.read_csv(folder / "run" / "jobs.csv"), pd.read_csv(folder / "run" / "gpus.csv")
        if (jobs["outcome"] != "completed").any() or len(jobs) != given.jobs or jobs["attempts"].sum() != given.jobs:
            wrong.append("not every job has completed at its first attempt")
        parts_j = gpus[["completed_j", "lost_j", "idle_j"]].sum(axis=1)
        for energies_j in (parts_j, gpus["counter_j"]):
            worst_j = float((energies_j - gpus["energy_j"]).abs().max())
            if worst_j > 0.01:
                wrong.append(f"energies differ by {worst_j:.3f} J")
        wrong += machine.left_behind()

    size_mib = used.ru_maxrss / 1024
    sys.stdout.write(
        f"{given.jobs} jobs on {given.cards} cards in {took_s:.0f} s ({given.jobs / took_s:.1f} jobs/s), "
        f"{used.ru_utime + used.ru_stime:.0f} s of CPU time, at most {size_mib:.0f} MiB in a process\n"
    )
    sys.stdout.write("".join(f"{text}\n" for text in wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
