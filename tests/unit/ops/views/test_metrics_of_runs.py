"""Metrics of runs: the file of `--metrics`, what is refused, equal to the report at the end; they never end a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.job_rows import job, jobs_of
from support.run_entries import ended, run_of, sampled, session, started, state_of
from support.waiting import until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.executor.outcome import run_outcome
from heshare.ops.jobs.entries import Account
from heshare.ops.views.run_meter import RunMeter, parse_target, write_textfile
from heshare.shared import extras
from heshare.shared.errors import InputError


def test_metrics_at_the_end_of_a_resumed_run_are_those_of_its_report(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 2003.0)  # what has ended is shown for a while
    first = session(1995.0), started("a-0", "a-1"), ended("a-0", energy_j=30.0, energy_model_j=20.0)
    killed = sampled(2.0, Account(80.0, 10.0, {"a-1": 40.0}, model_shares_j={"a-1": 50.0}))
    second = session(2000.0), started("a-1"), ended("a-1", energy_j=25.0, energy_model_j=25.0)
    state = state_of(run_of(2), *first, killed, *second, sampled(3.0, Account(35.0, 10.0)))
    meter = RunMeter("run", tmp_path / "run.prom")
    meter.state = state
    found = {}
    for family in text_string_to_metric_families(generate_latest(meter).decode()):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name in ("job_name", "way", "state")}
            found[sample.name, *sorted(labels.values())] = sample.value
    outcome = run_outcome(state)
    gpu, jobs = outcome.gpus.loc[0], outcome.jobs.set_index("job")
    for name, column in (("", "energy_j"), ("idle_", "idle_j"), ("lost_", "lost_j")):
        assert found[f"heshare_gpu_{name}energy_joules_total",] == gpu[column]
    for way, column in (("equal", "energy_j"), ("model", "energy_model_j")):
        assert found["heshare_job_energy_joules_total", "a-0", way] == jobs.loc["a-0", column]
    assert found["heshare_jobs", "completed"] == 2


def test_a_full_disk_and_a_defect_of_the_file_end_no_run(tmp_path, monkeypatch):
    told = []
    meter = RunMeter("run", tmp_path / "run.prom", tell=lambda event, text: told.append(event))
    assert told.pop() == "metrics"
    monkeypatch.setattr("os.fchmod", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    meter.close()
    meter.close()
    assert told == ["metrics-failed"]
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    monkeypatch.setattr("heshare.ops.views.run_meter.families", lambda *_, **__: 1 / 0)
    meter.close()
    meter.close()
    assert told == ["metrics-failed", "metrics-failed"]


@pytest.mark.slow
def test_command_that_is_terminated_leaves_the_totals_in_its_file(doubles):
    doubles.write(jobs_of(job("j", "sleep", "60")))
    file = doubles.folder / "night.prom"
    words = ["jobs", "run", "jobs.yaml", "--devices", "nvml:0", "--policy", "random", "--log", "json", "--metrics"]
    command = [sys.executable, "-m", "heshare", *words, str(file)]
    with subprocess.Popen(command, cwd=doubles.folder, stderr=subprocess.PIPE, text=True) as run:
        assert until(lambda: file.exists() and "heshare_job_mps_share_ratio" in file.read_text())
        assert 'heshare_run_active{run="jobs-run"} 1.0' in file.read_text()
        run.terminate()
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 143
    assert 'heshare_run_active{run="jobs-run"} 0.0' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644
    assert "heshare_job_mps_share_ratio" not in file.read_text()
    assert [json.loads(line)["event"] for line in errors.splitlines()][:2] == ["metrics", "begin"]


CLI = CliRunner()


def test_a_file_ends_with_prom(tmp_path):
    assert parse_target(str(tmp_path / "run.prom")) == tmp_path / "run.prom"
    (tmp_path / "folder.prom").mkdir()
    for wrong in ("run.txt", "9400", str(tmp_path / "folder.prom"), "h:9400"):
        with pytest.raises(InputError, match=r"expected a file FILE\.prom"):
            parse_target(wrong)


def test_textfile_is_replaced_whole_and_nothing_else_ends_with_prom(tmp_path, monkeypatch):
    path = tmp_path / "run.prom"
    write_textfile(path, b"first\n")
    seen = []
    replace = Path.replace

    def replace_seen(self, target):
        seen.extend(sorted(file.name for file in tmp_path.glob("*.prom")))
        assert path.read_bytes() == b"first\n"
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_seen)
    write_textfile(path, b"second\n")
    assert seen == ["run.prom"]
    assert path.read_bytes() == b"second\n"
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(30, "read-only")))
    with pytest.raises(OSError, match="read-only"):
        write_textfile(path, b"third\n")
    assert [file.name for file in tmp_path.iterdir()] == ["run.prom"]
    assert path.read_bytes() == b"second\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metrics", "x.txt"], "found 'x.txt'; expected a file FILE.prom"),
        (["--metrics", "127.0.0.1:9400"], "found '127.0.0.1:9400'; expected a file FILE.prom"),
        (["--dry-run", "--metrics", "x.prom"], "--metrics with --dry-run"),
        (["--metrics", "/dev/null/x.prom"], "/dev/null, which is a file"),
    ],
)
def test_run_refuses_metrics_that_mean_nothing(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    done = CLI.invoke(app, ["jobs", "run", "jobs.yaml", "--policy", "sjf", *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(extras.__dict__, "find_spec", lambda name: None if name == "prometheus_client" else name)
    done = CLI.invoke(app, ["jobs", "run", "jobs.yaml", "--metrics", "x.prom"])
    assert done.exit_code == 2
    assert "pip install 'heshare[metrics]'" in done.stderr
