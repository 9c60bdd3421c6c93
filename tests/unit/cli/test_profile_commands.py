"""`heshare profile`, `trace-kernels` and `regenerate-profiles`: times, refused options and written tables."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.cli.options import parse_duration_s
from heshare.lab.calibration import calibrate
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.shared.processes import SAME_BYTES


@pytest.mark.parametrize(("text", "duration_s"), [("900", 900), ("90s", 90), ("1.5h", 5400), (" 2m ", 120)])
def test_parse_duration_s_reads_seconds_minutes_and_hours(text: str, duration_s: float) -> None:
    assert parse_duration_s(text) == duration_s


@pytest.mark.parametrize("text", ["", "0m", "-5m", "15 minutes", "1e3"])
def test_parse_duration_s_refuses_other_forms(text: str) -> None:
    with pytest.raises(InputError, match="such as 90s, 15m or 2h"):
        parse_duration_s(text)


def test_profile_needs_a_device_and_a_folder(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["profile", "--out", str(tmp_path)]).exit_code == 2
    assert CliRunner().invoke(app, ["profile", "--device", "emulated:T4"]).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_profile_reuses_a_recorded_budget(tmp_path: Path) -> None:
    command = ["profile", "--device", "emulated:T4", "--budget", "1m", "--repeats", "1", "--out", str(tmp_path)]
    tables = []
    for _ in range(2):
        assert CliRunner().invoke(app, command).exit_code == 0
        tables.append((tmp_path / "T4" / "profile.csv").read_bytes())
    assert tables[0] == tables[1]
    assert tables[0].count(b"\n") > 5


def test_trace_kernels_needs_a_live_gpu_and_a_known_model(tmp_path: Path) -> None:
    for options in (["--device", "emulated:A100"], ["--model", "resnet999"]):
        result = CliRunner().invoke(app, ["trace-kernels", *options, "--out", str(tmp_path)])
        assert result.exit_code == 2
        assert "heshare: " in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_regenerate_profiles_writes_a_table_for_each_emulated_gpu(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["regenerate-profiles", "--samples", "3", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0
    written = [Path(path) for path in json.loads(result.stdout)["profiles"]]
    assert written == [tmp_path / gpu / "profile.csv" for gpu in ("T4", "V100", "A100")]
    manifest = json.loads(written[0].with_name("manifest.json").read_text(encoding="utf-8"))
    assert manifest["command"] == "heshare regenerate-profiles"


def test_calibrate_prints_errors_coverage_and_laboratories(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("errors", "coverage", "laboratories")
    tables = {name: pd.read_csv(files.data("calibration", f"{name}.csv")) for name in names}
    monkeypatch.setattr(calibrate, "recalibrate", lambda: dict(tables))
    for name, value in SAME_BYTES.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["calibrate"])
    assert done.exit_code == 0, done.stderr
    for text in ("How often the stated intervals hold", "Errors on each public record"):
        assert text in done.stdout
    document = json.loads(CliRunner().invoke(app, ["calibrate", "--json"]).stdout)
    assert set(document) == {*names}


def test_calibrate_pins_what_decides_its_last_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    started = []
    monkeypatch.setattr(subprocess, "call", lambda command, env: started.append((command, env)) or 3)
    assert CliRunner().invoke(app, ["calibrate", "--json"]).exit_code == 3
    ((command, environment),) = started
    assert command[1:] == ["-m", "heshare", "calibrate", "--json"]
    assert environment.items() >= SAME_BYTES.items()
