"""Metrics of runs: the file of `--metrics`, what is refused, equal to the report at the end; they never end a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics import parser as openmetrics
from support.job_rows import job, jobs_of
from support.waiting import until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.views.run_meter import RunMeter, parse_target, write_textfile
from heshare.shared import extras
from heshare.shared.errors import InputError

JOBS = jobs_of(job("pair", "sleep", "1.6", count=2), job("bad", "sh", "-c", "sleep 0.5; exit 3"))


def samples(families):
    """The values by name and labels; the label `run` is left out, since all have it."""
    found = {}
    for family in families:
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("run") == "run"
            found[sample.name, tuple(sorted(labels.items()))] = sample.value
    return found


def scrape(meter):
    text = exposition.generate_latest(meter).decode()
    return samples(openmetrics.text_string_to_metric_families(text))


class ScrapedMeter(RunMeter):
    """A meter whose metrics are looked at after each entry."""

    def __init__(self, *given):
        super().__init__(*given)
        self.scraped = []

    def __call__(self, entry):
        super().__call__(entry)
        self.scraped.append(scrape(self))


@pytest.mark.slow
def test_metrics_of_a_run_never_fall_and_end_at_its_report(doubles):
    meter = ScrapedMeter("run", doubles.folder / "run.prom")
    outcome = doubles.run(JOBS, devices="nvml", clocks=True, policy="drill", meter=meter)
    scraped, last = meter.scraped, scrape(meter)
    meter.close()
    assert len(scraped) > 5
    for before, after in zip(scraped, [*scraped[1:], last], strict=True):
        for key, value in before.items():
            if key[0].endswith("_total"):
                assert after[key] >= value, key
    names = {name for one in scraped for name, _ in one}
    assert {"heshare_job_power_watts", "heshare_job_mps_share_ratio", "heshare_gpu_clock_requested_hertz"} <= names
    check_powers(scraped)
    gpus, jobs = outcome.gpus.set_index("gpu"), outcome.jobs.set_index("job")
    for index, uuid in enumerate(gpus["uuid"]):
        labels = (("gpu", str(index)), ("uuid", uuid))
        for name, column in (("", "energy_j"), ("idle_", "idle_j"), ("lost_", "lost_j")):
            assert last[f"heshare_gpu_{name}energy_joules_total", labels] == pytest.approx(gpus.loc[index, column])
    for key in ("pair-0", "pair-1"):
        for way, column in (("equal", "energy_j"), ("model", "energy_model_j")):
            labels = (("gpu", str(jobs.loc[key, "gpu"])), ("job_name", key), ("way", way))
            assert last["heshare_job_energy_joules_total", labels] == pytest.approx(jobs.loc[key, column])
    assert last["heshare_jobs", (("state", "completed"),)] == 2
    assert last["heshare_faults_total", (("kind", "job-crash"),)] == 1


def check_powers(scraped):
    """The powers of the jobs of a GPU add up to its power, in both ways."""
    for way in ("equal", "model"):
        checked = 0
        for found in scraped:
            power_w = defaultdict(float)
            for (name, labels), value in found.items():
                if name == "heshare_job_power_watts" and dict(labels)["way"] == way:
                    power_w[dict(labels)["gpu"]] += value
            assert all(total_w == pytest.approx(100.0) for total_w in power_w.values())
            checked += len(power_w)
        assert checked


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
