"""`heshare jobs run` with standard streams that are closed: jobs run, and the exit code is theirs."""

from __future__ import annotations

import subprocess
import sys

import pytest

JOBS = "jobs:\n  - {name: a, command: ['true'], like: 'resnet50:8', iterations: 10, count: 2}\n"


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_streams_completes(doubles, closed) -> None:
    file, folder = doubles.write(JOBS), doubles.folder / "run"
    words = [sys.executable, "-m", "heshare", "jobs", "run", str(file), "--policy", "fifo", "--out", str(folder)]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert (folder / "jobs.csv").read_text().count(",completed,") == 2
    assert doubles.traces() == []
