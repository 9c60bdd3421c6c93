"""`heshare profile` and `calibrate`: times, refused options, kernel traces and written tables."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.cli.options import parse_duration_s
from heshare.ops.recording import regenerate_profiles
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.shared.processes import SAME_BYTES
from heshare.world.catalogue import paper_models


@pytest.mark.parametrize(("text", "duration_s"), [("900", 900), ("90s", 90), ("1.5h", 5400), (" 2m ", 120)])
def test_durations(text: str, duration_s: float) -> None:
    """Durations are in seconds, minutes or hours."""
    assert parse_duration_s(text) == duration_s


@pytest.mark.parametrize("text", ["", "-5m", "15 minutes", "1e3"])
def test_wrong_durations(text: str) -> None:
    """Other forms of a duration are refused."""
    with pytest.raises(InputError, match="such as 90s, 15m or 2h"):
        parse_duration_s(text)


def test_missing_options(tmp_path: Path) -> None:
    """`profile` needs a device and a folder."""
    assert CliRunner().invoke(app, ["profile", "--out", str(tmp_path)]).exit_code == 2
    assert CliRunner().invoke(app, ["profile", "--device", "emulated:T4"]).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_recorded_again(tmp_path: Path) -> None:
    """A second recording of the same budget adds nothing."""
    command = ["profile", "--device", "emulated:T4", "--budget", "1m", "--repeats", "1", "--out", str(tmp_path)]
    tables = []
    for _ in range(2):
        assert CliRunner().invoke(app, command).exit_code == 0
        tables.append((tmp_path / "T4" / "profile.csv").read_bytes())
    assert tables[0] == tables[1]
    assert tables[0].count(b"\n") > 5


def test_short_budget(tmp_path: Path) -> None:
    """A budget without time for a visit is refused, and nothing is written."""
    command = ["profile", "--device", "emulated:L4", "--budget", "1s", "--out", str(tmp_path / "profiles")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "found 1 s; expected time for idle power and one visit: 12.5 s and more" in done.stderr
    assert not list(tmp_path.iterdir())


def test_kernels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels alone are traced without a recording."""
    asked: dict[str, Any] = {}

    def record_device(device: str, out: Path, **options: Any) -> Path:
        asked.update(options, device=device)
        return out / "A100" / "kernels.csv"

    monkeypatch.setattr("heshare.ops.recording.kernel_recorder.record_device", record_device)
    words = "profile --kernels only --repeats 3 --device nvml:0 --workload llama3_8b --json --out"
    done = CliRunner().invoke(app, [*words.split(), str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"kernels": str(tmp_path / "A100" / "kernels.csv")}
    assert asked["model_names"] == [*paper_models(), "llama3_8b"]
    assert (asked["device"], asked["repeats"]) == ("nvml:0", 3)


@pytest.mark.slow
def test_calibrate_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`calibrate --profiles` writes a table for each GPU of the paper."""
    few = partial(regenerate_profiles.regenerate, samples=3)
    monkeypatch.setattr("heshare.cli.profile_commands.regenerate", few)
    result = CliRunner().invoke(app, ["calibrate", "--profiles", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    written = [Path(path) for path in json.loads(result.stdout)["profiles"]]
    assert written == [tmp_path / gpu / "profile.csv" for gpu in ("T4", "V100", "A100")]
    manifest = json.loads(written[0].with_name("manifest.json").read_text(encoding="utf-8"))
    assert manifest["command"] == "heshare calibrate --profiles"


def test_calibrate_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """`calibrate` prints the tables of errors, coverage, laboratories, what moves constants, and language models."""
    import pandas as pd

    names = ("errors", "coverage", "laboratories", "moved", "language_errors")
    tables = {name: pd.read_csv(files.data("calibration", f"{name}.csv")) for name in names}
    # By the name in the command, which is bound when its module is imported.
    monkeypatch.setattr("heshare.cli.profile_commands.recalibrate", lambda progress: dict(tables))
    for name, value in SAME_BYTES.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["calibrate"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("\n") > sum(map(len, tables.values()))
    document = json.loads(CliRunner().invoke(app, ["calibrate", "--json"]).stdout)
    assert set(document) == {*names}


def test_calibrate_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`calibrate` starts itself again with the variables that decide its last bits."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    started = []
    monkeypatch.setattr(subprocess, "call", lambda command, env: started.append((command, env)) or 3)
    assert CliRunner().invoke(app, ["calibrate", "--json"]).exit_code == 3
    ((command, environment),) = started
    assert command[1:] == ["-m", "heshare", "calibrate", "--json"]
    assert environment.items() >= SAME_BYTES.items()
