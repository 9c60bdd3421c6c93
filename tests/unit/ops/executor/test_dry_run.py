"""A dry run on real GPUs: the plan and what a run would do, without starting or changing anything."""

from __future__ import annotations

import json

import pytest
from support.job_rows import job, jobs_of
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.executor.dry_run import dry_run
from heshare.ops.executor.gpu_lock import GpuLock
from heshare.ops.nvml.card_reader import CardReader
from heshare.testing.toy import ToyPredictor

FIRST = job("a", "sleep", "0.5", like="medium", expected_time_s=60, count=3)


def jobs(arrival_s=500):
    return jobs_of(FIRST, job("late", "sleep", "0.5", like="low", expected_time_s=10, arrival_s=arrival_s))


def plan(doubles, **changes):
    arguments = {"policy": "random:all-at-once", "devices": "nvml", "seed": 0, "allow_clocks": False, **changes}
    return dry_run(doubles.write(jobs()), doubles.folder / "run", predictor=ToyPredictor(), **arguments)


def test_plans_every_job(doubles):
    """A dry run plans every job at its arrival and changes nothing on the machine."""
    before = sorted(doubles.folder.rglob("*"))
    found = plan(doubles, allow_clocks=True)
    assert list(found.jobs["job"]) == ["a-0", "a-1", "a-2", "late"]
    assert (found.jobs["end_s"] > found.jobs["start_s"]).all()
    assert found.jobs["start_s"].iloc[-1] >= 500
    assert found.totals["energy_active_j"] > 0
    for call in ("nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"):
        assert doubles.fake.called(call) == 0
    assert doubles.traces() == []
    after = sorted(path for path in doubles.folder.rglob("*") if path.name not in ("jobs.yaml", "machine"))
    assert after == [path for path in before if path.name != "machine"]


@pytest.mark.slow
def test_plans_as_run(doubles, monkeypatch):
    """A dry run places jobs as the run then does; each surveys the cards once."""
    asked, ask = [], CardReader.ask

    def spy(reader, which, name, *given):
        asked.append(name)
        return ask(reader, which, name, *given)

    monkeypatch.setattr(CardReader, "ask", spy)
    found = plan(doubles)
    assert asked.count("survey") == 1
    done = doubles.run(jobs(arrival_s=1), devices="nvml")
    assert asked.count("survey") == 2
    uuids = done.gpus["uuid"]
    first = {row["job"]: uuids[row["gpu"]] for row in done.jobs.to_dict("records") if row["job"] != "late"}
    assert first == {row["job"]: row["gpu"] for row in found.jobs.to_dict("records") if row["job"] != "late"}


def test_obstacles(doubles, monkeypatch):
    """A dry run names missing rights, another run and processes of others."""
    lock = GpuLock(plan(doubles).jobs["gpu"].iloc[0])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("heshare.ops.executor.dry_run.may_set_clocks", lambda: False)
    doubles.fake.set("process_pid", 1)
    notes = "\n".join(plan(doubles, allow_clocks=True).notes)
    lock.close()
    doubles.fake.set("process_pid", 0)
    for text in ("another run", "No MPS", "only as root", "processes of others"):
        assert text in notes


def test_command_line(doubles):
    """`jobs run --dry-run --json` prints the plan; with `--resume` it is refused."""
    options = ["--devices", "nvml:1", "--policy", "random", "--dry-run", "--json"]
    done = CliRunner().invoke(app, ["jobs", "run", str(doubles.write(jobs())), *options])
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert {row["gpu"] for row in result["jobs_list"]} == {"GPU-00000000-1111-2222-3333-444444444445"}
    assert "--allow-clocks" in " ".join(result["notes"])

    refused = CliRunner().invoke(app, ["jobs", "run", "--resume", "x", "--dry-run"])
    assert refused.exit_code == 2
    assert "--dry-run" in refused.stderr
