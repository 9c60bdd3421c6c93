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
from heshare.shared.errors import InputError
from heshare.testing.toy import ToyPredictor

FIRST = job("a", "sleep", "0.5", like="medium", expected_time_s=60, count=3)


def jobs(arrival_s=500):
    return jobs_of(FIRST, job("late", "sleep", "0.5", like="low", expected_time_s=10, arrival_s=arrival_s))


def plan(doubles, **changes):
    arguments = {"policy": "random:all-at-once", "devices": "nvml", "seed": 0, "allow_clocks": False, **changes}
    return dry_run(doubles.write(jobs()), doubles.folder / "run", predictor=ToyPredictor(), **arguments)


def test_dry_run_plans_every_job_and_changes_nothing(doubles):
    """With the times of their arrivals."""
    before = sorted(doubles.folder.rglob("*"))
    found = plan(doubles, allow_clocks=True)
    assert list(found.jobs["job"]) == ["a-0", "a-1", "a-2", "late"]
    assert (found.jobs["end_s"] > found.jobs["start_s"]).all()
    assert found.jobs["start_s"].iloc[-1] >= 500
    assert found.totals["energy_active_j"] > 0
    assert any("would be locked by" in note for note in found.notes)
    assert any("MPS daemon would be started" in note for note in found.notes)
    for call in ("nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"):
        assert doubles.fake.called(call) == 0
    assert doubles.traces() == []
    after = sorted(path for path in doubles.folder.rglob("*") if path.name not in ("jobs.yaml", "machine"))
    assert after == [path for path in before if path.name != "machine"]


@pytest.mark.slow
def test_dry_run_plans_as_the_run_decides_and_each_surveys_the_cards_once(doubles, monkeypatch):
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


def test_dry_run_refuses_what_the_run_would_refuse(doubles):
    doubles.fake.set("cores", 1)
    with pytest.raises(InputError, match="with 1 cores"):
        plan(doubles)
    done = CliRunner().invoke(app, ["jobs", "run", "--resume", "x", "--dry-run"])
    assert done.exit_code == 2
    assert "--dry-run" in done.stderr


def test_dry_run_names_rights_and_users_that_are_in_the_way(doubles, monkeypatch):
    lock = GpuLock(plan(doubles).jobs["gpu"].iloc[0])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("heshare.ops.executor.dry_run.may_set_clocks", lambda: False)
    doubles.fake.set("process_pid", 1)
    notes = "\n".join(plan(doubles, allow_clocks=True).notes)
    lock.close()
    doubles.fake.set("process_pid", 0)
    for text in (
        "another run has it now",
        "No MPS",
        "Clocks can be locked here only as root",
        "processes of others run on it: 1 (",
    ):
        assert text in notes


def test_dry_run_on_the_command_line(doubles):
    words = [
        "jobs",
        "run",
        str(doubles.write(jobs())),
        "--devices",
        "nvml:1",
        "--policy",
        "random",
        "--dry-run",
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert {row["gpu"] for row in result["jobs_list"]} == {"GPU-00000000-1111-2222-3333-444444444445"}
    assert "--allow-clocks was not given" in " ".join(result["notes"])
