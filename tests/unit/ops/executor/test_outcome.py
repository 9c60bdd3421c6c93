"""The outcome of a run from its journal: its report on a full disk, and the time that it takes for many jobs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from heshare.ops.executor import execute
from heshare.ops.executor.job_file import JobSpec
from heshare.ops.executor.job_tasks import specs_to_json
from heshare.ops.executor.outcome import run_outcome
from heshare.ops.executor.run_journal import RunJournal
from heshare.testing.toy import ToyPredictor
from heshare.world.workload import Workload

REPORT = ["gpus.csv", "jobs.csv", "report.txt"]
GPU = {"uuid": "GPU-1", "name": "A100", "planned_mhz": "210-1410", "sharing": "mps"}


def run_entry(count):
    spec = JobSpec("a", ("true",), Workload("resnet50", 8), 10.0, None, count, None, 0, 500.0, Path("/"), (), 0.0, 2)
    return {"run": {"policy": "random", "devices": [], "seed": 0, "jobs": specs_to_json([spec])}}


def session_entry(at=0.0, **more):
    return {"session": {"at": at, "pid": 1, "gpus": [GPU], "counters_j": [0.0], "token": "t", **more}}


def start_entry(job, at_s=0.0):
    return {"decision": {"t": at_s, "actions": [["start", job, 0, 50, None]]}}


def end_entry(job, start_s=0.0, end_s=1.0, outcome="completed"):
    return {
        "end": {
            "job": job, "gpu": 0, "outcome": outcome, "start_s": start_s, "end_s": end_s, "energy_j": 1.0,
            "iterations": 10.0, "charged": False, "again": False, "exit_code": 0, "sm_mhz": 1000.0, "limits": [],
            "log": "", "reason": "",
        }
    }  # fmt: skip


def complete_journal(count):
    entries = [run_entry(count), session_entry()]
    for index in range(count):
        job = "a" if count == 1 else f"a-{index}"
        entries += [start_entry(job, float(index)), end_entry(job, float(index), index + 1.0)]
    return entries


def write_journal(folder, entries):
    journal = RunJournal(folder, entries[0]["run"])
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
        f"room, then write it with heshare run --resume {tmp_path}."
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
    run = f"{sys.executable} -m heshare run --resume {disk}"
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
    entries = [*complete_journal(2)[:-2], start_entry("a-1"), end_entry("a-1", outcome="failed: crash")]
    entries += [start_entry("a-1"), end_entry("a-1")]
    write_journal(tmp_path, entries)
    assert execute.resume(tmp_path, predictor=ToyPredictor()).complete
    jobs = pd.read_csv(tmp_path / "jobs.csv").set_index("job")
    assert jobs["energy_j"].tolist() == [1.0, 1.0]
    assert jobs["lost_j"].tolist() == [0.0, 1.0]
    assert jobs["energy_model_j"].isna().all()
    assert jobs["lost_model_j"].isna().tolist() == [False, True]
    assert "NaN: an older version wrote the journal" in (tmp_path / "report.txt").read_text()


def test_run_outcome_of_many_jobs_takes_time_in_proportion():
    entries = complete_journal(20_000)
    began_s = time.perf_counter()
    outcome = run_outcome(entries)
    # 0.3 s; it was 14 s when every job looked through the ends of all.
    assert time.perf_counter() - began_s < 6.0
    assert outcome.totals["completed"] == 20_000
