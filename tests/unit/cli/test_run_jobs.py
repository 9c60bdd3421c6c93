"""`heshare jobs run` and `heshare restore`, over stand-ins for NVML and MPS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import asdict

import pandas as pd
import pytest
from support.command_runs import PATIENCE_S, CommandMachine
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.state.state_file import ProcessLocation
from heshare.shared.processes import started_at

RUN = CliRunner()
JOBS = """\
jobs:
  - {name: quick, command: [sh, -c, "echo hello"], like: resnet50:8, iterations: 2000, count: 2}
  - {name: long, command: [sh, -c, "until [ -e go ]; do sleep 0.1; done"], like: medium, expected_time_s: 5}
"""


@pytest.mark.slow
def test_resumed_after_ctrl_c(tmp_path_factory):
    """Those that had completed do not run again."""
    machine = CommandMachine(tmp_path_factory.mktemp("m"))
    (machine.folder / "jobs.yaml").write_text(JOBS)
    first = machine.start_run("--allow-clocks")
    machine.wait_for(lambda: [end["outcome"] for end in machine.entries("end")].count("completed") == 2)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 128 + signal.SIGINT
    assert b"heshare jobs run --resume jobs-run" in errors
    assert list((machine.folder / "state" / "heshare").glob("*")) == []

    (machine.folder / "go").touch()
    second = machine.start("jobs", "run", "--resume", "jobs-run", "--json")
    output, errors = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, errors
    result = json.loads(output)
    assert (result["completed"], result["sessions"], result["attempts"]) == (3, 2, 4)
    assert b"0 failed; 100 W now" in errors
    assert (machine.run / "outputs" / "quick-1.1.log").read_text() == "hello\n"


def test_emulated_jobs(tmp_path):
    """Jobs on emulated GPUs start no process, and their energies add up."""
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS)
    words = ["run", "--tasks", str(path), "--policy", "random", "--cluster", "1xT4,1xA100", "--json"]
    done = RUN.invoke(app, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["job"] for row in result["rows"]] == ["quick-0", "quick-1", "long"]
    assert result["provenance"] == "emulated"
    assert not (tmp_path / "outputs").exists()

    tasks = pd.read_csv(tmp_path / "tasks.csv")
    timeline = pd.read_csv(tmp_path / "timeline.csv")
    busy_j = timeline["energy_j"][timeline["tasks"] > 0].sum()
    assert tasks["job"].tolist() == ["quick-0", "quick-1", "long"]
    assert tasks["energy_j"].sum() == pytest.approx(busy_j, rel=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("long, command: [sh,", "long, command: [no-such-program,", "the program 'no-such-program'"),
        ("name: long", "name: quick-1", "two jobs called"),
    ],
)
@pytest.mark.parametrize("devices", ["emulated", "nvml"])
def test_bad_jobs(tmp_path, devices, old, new, message):
    """The same jobs are refused on emulated and on real GPUs."""
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS.replace(old, new))
    words = ["jobs", "run", str(path), "--devices", "nvml"] if devices == "nvml" else ["run", "--tasks", str(path)]
    done = RUN.invoke(app, [*words, "--policy", "random"])
    assert done.exit_code == 2
    assert message in done.stderr


def test_restore(tmp_path, monkeypatch):
    """`restore` ends the processes of a run that was killed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    token = f"{os.getpid():032d}"  # no other run of these tests has it
    gone = subprocess.Popen(["sleep", "0"])
    started = started_at(gone.pid)
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, "HESHARE_RUN": token}, start_new_session=True)
    gone.wait()
    place = {"place": asdict(ProcessLocation.here()), "pid": gone.pid, "started": started, "locks": True}
    path = tmp_path / "state" / "heshare" / f"run-{token}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"token": token, "folder": "some-run", "gpus": [], **place}))
    done = RUN.invoke(app, ["restore"])
    monkeypatch.setattr("tempfile.tempdir", None)
    assert done.exit_code == 0
    assert "some-run" in done.stdout
    assert left.wait(timeout=120) == -signal.SIGTERM
    assert not path.exists()
