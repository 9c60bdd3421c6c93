"""The outcome of a run from its journal: its report on a full disk."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import contextmanager

import pandas as pd
import pytest
from support.run_entries import ended, run_of, session, started

from heshare.ops.executor import execute
from heshare.ops.jobs.run_journal import RunJournal
from heshare.testing.toy import ToyPredictor

REPORT = ["gpus.csv", "jobs.csv", "report.txt"]


def complete_journal(count):
    entries = [run_of(count), session(0.0)]
    for index in range(count):
        job = "a" if count == 1 else f"a-{index}"
        entries += [started(job, t=float(index)), ended(job, start_s=float(index), end_s=index + 1.0)]
    return entries


def write_journal(folder, entries):
    journal = RunJournal(folder, entries[0])
    for entry in entries[1:]:
        journal.append(entry)
    journal.close()


@contextmanager
def no_room():
    """No file may grow: the stand-in for a full disk that needs no rights."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def private_mounts():
    asked = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"]
    return os.geteuid() == 0 and subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("stale", [False, True])
def test_a_report_that_cannot_be_written_is_a_warning_and_leaves_no_half_file(tmp_path, stale):
    write_journal(tmp_path, complete_journal(3))
    if stale:
        (tmp_path / "jobs.csv").write_text("before")
    with no_room():
        outcome = execute.resume(tmp_path, predictor=ToyPredictor())
    assert outcome.complete
    assert outcome.unwritten == (
        f"{tmp_path}: the report could not be written (File too large). The journal has every result: make "
        f"room, then write it with heshare jobs run --resume {tmp_path}."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv"] * stale + ["journal.jsonl"]
    assert not stale or (tmp_path / "jobs.csv").read_text() == "before"
    assert execute.resume(tmp_path, predictor=ToyPredictor()).unwritten == ""
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "journal.jsonl") == REPORT
    assert (tmp_path / "jobs.csv").read_text().count("completed") == 3


def test_a_report_on_a_disk_that_is_full_is_written_once_there_is_room(tmp_path):
    if not private_mounts():
        pytest.skip("needs the right to mount a small disk in a mount namespace of its own")
    write_journal(tmp_path / "kept", complete_journal(3))
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    run = f"{sys.executable} -m heshare jobs run --resume {disk}"
    script = (
        f"mount -t tmpfs -o size=64k,mode=0700 none {disk}; cp {tmp_path}/kept/journal.jsonl {disk}; "
        f"cat /dev/zero > {disk}/filler 2> /dev/null; {run}; echo code $?; ls -A {disk}; "
        f"rm {disk}/filler; {run} > /dev/null; echo code $?; ls -A {disk}; tail -n 1 {disk}/jobs.csv"
    )
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    done = subprocess.run(unshare, capture_output=True, text=True, timeout=240, check=False)
    assert done.stderr.count("could not be written (No space left on device)") == 1
    assert "Traceback" not in done.stderr
    lines = done.stdout[done.stdout.index("code 0") :].splitlines()
    assert lines[:3] == ["code 0", "filler", "journal.jsonl"]
    assert lines[3:8] == ["code 0", "gpus.csv", "jobs.csv", "journal.jsonl", "report.txt"]
    assert lines[8].startswith("a-2,completed")


def test_a_journal_without_the_second_way_of_dividing_energy_is_reported_and_resumed(tmp_path):
    entries = [*complete_journal(2)[:-2], started("a-1"), ended("a-1", "failed: crash")]
    entries += [started("a-1"), ended("a-1")]
    write_journal(tmp_path, entries)
    assert execute.resume(tmp_path, predictor=ToyPredictor()).complete
    jobs = pd.read_csv(tmp_path / "jobs.csv").set_index("job")
    assert jobs["energy_j"].tolist() == [1.0, 1.0]
    assert jobs["lost_j"].tolist() == [0.0, 1.0]
    assert jobs["energy_model_j"].isna().all()
    assert jobs["lost_model_j"].isna().tolist() == [False, True]
    assert "NaN: an older version wrote the journal" in (tmp_path / "report.txt").read_text()
