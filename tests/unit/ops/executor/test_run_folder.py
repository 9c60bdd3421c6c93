"""The folder of a run: others can read nothing in it, and the output of a job has a limit."""

from __future__ import annotations

import os
import stat

import pytest
from support.run_entries import journal_lines

SECRET = "correct-horse-battery-staple"
JOBS = """\
jobs:
  - name: a
    command: [sh, -c, "{command}"]
    like: resnet50:8
    iterations: 10
    environment: {{TOKEN: {secret}}}
"""


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_private(doubles, open_umask):
    """Others can read nothing of a run, and no command line has a secret."""
    command = (
        "find $XDG_STATE_HOME -type f -perm /077 > readable; cat /proc/[0-9]*/cmdline > lines 2> gone; echo $TOKEN"
    )
    result = doubles.run(JOBS.format(command=command, secret=SECRET))
    assert result.complete
    run = doubles.folder / "run"
    assert (run / "outputs" / "a.1.log").read_text() == f"{SECRET}\n"
    assert SECRET in (run / "journal.jsonl").read_text()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (run, *run.rglob("*"))}
    assert modes == {
        "run": 0o700, "outputs": 0o700,
        **dict.fromkeys(("journal.jsonl", "a.1.log", "jobs.csv", "gpus.csv", "report.txt"), 0o600),
    }  # fmt: skip
    assert (doubles.folder / "readable").read_text() == ""
    assert SECRET.encode() not in (doubles.folder / "lines").read_bytes()


def test_output_limit(doubles):
    """A job whose output is too large is ended and charged; what it wrote is kept."""
    text = JOBS.format(command="while :; do seq 100000; sleep 0.05; done", secret="x") + "    output_mib: 1\n"
    (row,) = doubles.run(text).jobs.to_dict("records")
    assert row["outcome"] == "failed"
    assert "output_mib" in row["reason"]
    (end,) = [line["end"] for line in journal_lines(doubles.folder / "run") if "end" in line]
    assert end["charged"]
    assert (doubles.folder / "run" / "outputs" / "a.1.log").stat().st_size > 2**20
