"""Runs as an operator sees and steers them: lost and closed streams, events, status, drain, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from support import kill_drill
from support.fakenvml import FakeNvml, compiler
from support.job_rows import job, jobs_of
from support.waiting import until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.jobs import run_journal
from heshare.ops.views.run_view import RunView

CLI = CliRunner()


@pytest.fixture
def machine(tmp_path_factory):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("s")
    return folder, {**os.environ, **kill_drill.prepare(folder)}


def jobs_file(machine, *commands, **more):
    """Write jobs `j0` and so on; `more` are fields of the last one."""
    rows = [job(f"j{number}", "sh", "-c", command) for number, command in enumerate(commands[:-1])]
    rows.append(job(f"j{len(rows)}", "sh", "-c", commands[-1], **more))
    (machine[0] / "jobs.yaml").write_text(jobs_of(*rows))


def start(machine, *options, **streams):
    folder, environment = machine
    words = ["jobs", "run", "jobs.yaml", "--devices", "nvml", "--policy", "random:all-at-once", *options]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen([sys.executable, "-m", "heshare", *words], cwd=folder, env=environment, **streams)


def wait_for(condition):
    assert until(condition, 120.0)


def started(machine, count):
    outputs = machine[0] / "jobs-run" / "outputs"
    return lambda: outputs.exists() and len(list(outputs.iterdir())) >= count


@pytest.mark.slow
def test_run_goes_on_when_the_reader_of_stderr_and_stdout_has_gone(machine):
    jobs_file(machine, "sleep 1.5", "sleep 1.5")
    run = start(machine)
    wait_for(started(machine, 2))
    run.stderr.close()
    run.stdout.close()
    assert run.wait(120) == 0


@pytest.mark.slow
def test_json_log_tells_failures_lost_gpus_and_refused_clocks(machine):
    folder, environment = machine
    jobs_file(machine, "sleep 2", "sleep 2", "exit 3")
    environment["FAKENVML_FAIL"] = "nvmlDeviceSetGpuLockedClocks=4,set:count=2"
    run = start(machine, "--log", "json", "--allow-clocks")
    wait_for(started(machine, 2))
    FakeNvml(folder / "lib" / "libnvidia-ml.so.1")  # builds the state that the processes share
    losing = {**environment, "FAKENVML_FAIL": "set:lost0=1"}
    subprocess.run([sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"], env=losing, check=True)
    _, errors = run.communicate(timeout=120)
    events = [json.loads(line) for line in errors.decode().splitlines()]
    by_name = {event["event"]: event for event in events}
    assert {"begin", "clocks-refused", "job-failed", "gpu-lost", "progress"} <= by_name.keys()
    assert any(event["text"].startswith("--allow-clocks is refused on every GPU") for event in events)
    assert by_name["gpu-lost"]["gpu"] == kill_drill.UUID
    assert by_name["job-failed"]["job"] == "j2"
    assert "exit code 3" in by_name["job-failed"]["text"]
    assert all(event["time"][:4].isdecimal() for event in events)
    assert run.returncode == 1


@pytest.mark.slow
def test_status_and_stop_of_a_run_that_goes_on(machine):
    folder, _ = machine
    jobs_file(machine, "true", "sleep 30")
    run = start(machine)
    wait_for(lambda: (folder / "jobs-run" / run_journal.NAME).exists())
    wait_for(lambda: RunView(folder / "jobs-run").state.counts()["completed"] == 1)
    found = json.loads(CLI.invoke(app, ["jobs", "status", str(folder / "jobs-run"), "--json"]).stdout)
    assert (found["alive"], found["pid"], found["request"]) == (True, run.pid, "")
    assert found["counts"] == {"waiting": 0, "running": 1, "completed": 1, "failed": 0}
    assert [(row["job"], row["gpu"]) for row in found["running"]] == [("j1", kill_drill.UUID)]
    text = CLI.invoke(app, ["jobs", "status", str(folder / "jobs-run")]).stdout
    assert f"runs, process {run.pid}" in text
    assert CLI.invoke(app, ["jobs", "stop", str(folder / "jobs-run")]).exit_code == 0
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 128 + signal.SIGTERM
    assert b"SIGTERM: jobs are ended" in errors
    again = CLI.invoke(app, ["jobs", "stop", str(folder / "jobs-run")])
    assert again.exit_code == 2
    assert "a run without an executor" in again.stderr
    after = RunView(folder / "jobs-run")
    assert (after.alive, after.state.counts()["waiting"], after.state.running) == (False, 1, {})
    assert "continue with: heshare jobs run --resume" in after.text(time.time())
    assert not (folder / "jobs-run" / "control").exists()


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.slow
def test_drain_starts_nothing_more_has_one_exit_code_and_resume_continues(machine, left):
    folder, environment = machine
    jobs_file(machine, "sleep 1.5", *["true"] * left, arrival_s=5 * left)
    run = start(machine)
    wait_for(started(machine, 1))
    assert CLI.invoke(app, ["jobs", "drain", str(folder / "jobs-run")]).exit_code == 0
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 128 + signal.SIGTERM
    assert b"nothing more is started" in errors
    counts = {"waiting": left, "running": 0, "completed": 1, "failed": 0}
    assert RunView(folder / "jobs-run").state.counts() == counts
    status = CLI.invoke(app, ["jobs", "status", str(folder / "jobs-run")]).stdout
    assert ("is complete" in status) == (left == 0)
    words = [sys.executable, "-m", "heshare", "jobs", "run", "--resume", "jobs-run", "--json"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False, timeout=120)
    result = json.loads(done.stdout)
    assert (done.returncode, result["completed"], result["attempts"]) == (0, 1 + left, 1 + left)


@pytest.mark.slow
def test_control_file_of_another_user_or_through_a_link_is_ignored(machine):
    folder, _ = machine
    jobs_file(machine, "sleep 2.5")
    run = start(machine, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(started(machine, 1))
    (folder / "stop").write_text("stop\n")
    (folder / "jobs-run" / "control").symlink_to(folder / "stop")
    time.sleep(1.2)
    (folder / "jobs-run" / "control").unlink()
    if os.geteuid() == 0:
        (folder / "stop").rename(folder / "jobs-run" / "control")
        os.chown(folder / "jobs-run" / "control", 12345, 12345)
    assert run.wait(120) == 0


@pytest.mark.parametrize("command", ["status", "drain", "stop"])
def test_steering_refuses_a_folder_without_a_run(tmp_path, command):
    done = CLI.invoke(app, ["jobs", command, str(tmp_path)])
    assert done.exit_code == 2
    assert "no journal of a run" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_streams_completes(machine, closed) -> None:
    folder, environment = machine
    jobs_file(machine, "true", "true")
    words = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "heshare", "jobs", "run", "jobs.yaml"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert (folder / "jobs-run" / "jobs.csv").read_text().count(",completed,") == 2
