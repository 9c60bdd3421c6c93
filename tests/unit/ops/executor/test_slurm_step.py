"""A run as a step of a Slurm job, whose end Slurm announces by SIGTERM, and the next job, which continues it."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest
from support.command_runs import PATIENCE_S, CommandMachine
from support.job_rows import job, jobs_of

SRUN = """#!/bin/sh
# As srun with `#SBATCH --signal=TERM@120`: the step is a child, and gets SIGTERM before the time is over.
"$@" &
step=$!
until [ -e "$END" ]; do
  kill -0 $step 2>/dev/null || break
  sleep 0.05
done
[ -e "$END" ] && sleep 1 && kill -TERM $step
wait $step
"""


@pytest.mark.slow
def test_a_run_ends_in_order_before_its_slurm_job_and_the_next_one_completes_it(tmp_path_factory):
    """Every job completes once; the report of the first session is there when its Slurm job ends."""
    machine = CommandMachine(tmp_path_factory.mktemp("s"))
    (machine.folder / "bin" / "srun").write_text(SRUN)
    (machine.folder / "bin" / "srun").chmod(0o755)
    machine.environment |= {"END": str(machine.folder / "end"), "CUDA_VISIBLE_DEVICES": "0"}
    once = "[ -e {0}.long ] || { touch {0}.long end; sleep 600; }; echo {0} >> done.txt"
    rows = [job(f"quick{index}", "sh", "-c", f"echo quick{index} >> done.txt") for index in range(3)]
    rows += [job(name, "sh", "-c", once.replace("{0}", name)) for name in ("a", "b")]
    (machine.folder / "jobs.yaml").write_text(jobs_of(*rows))

    first = machine.start("jobs", "run", "jobs.yaml", "--out", "run", "--policy", "random", before=("srun",))
    _, errors = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 128 + signal.SIGTERM, errors
    report = (machine.folder / "run" / "report.txt").read_text()
    assert "SIGTERM: jobs are ended, the GPUs are released" in report
    assert "sessions: 1" in report
    (machine.folder / "end").unlink()

    # What the next job of the queue runs; it is not ended early.
    for name in ("a", "b"):
        (machine.folder / f"{name}.long").touch()
    second = machine.start("jobs", "run", "--resume", "run", "--json", before=("srun",))
    output, errors = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, errors
    result = json.loads(output)
    assert (result["completed"], result["left"], result["sessions"]) == (5, 0, 2)
    done = Counter((machine.folder / "done.txt").read_text().split())
    assert done == dict.fromkeys(("quick0", "quick1", "quick2", "a", "b"), 1)
    parts = ("completed_j", "lost_j", "idle_j")
    assert sum(result[name] for name in parts) == pytest.approx(result["energy_j"])
