"""`heshare profile`: times as people write them, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.cli.recording import seconds
from heshare.errors import InputError


@pytest.mark.parametrize(("text", "spend_s"), [("900", 900), ("90s", 90), ("15m", 900), ("1.5h", 5400), (" 2m ", 120)])
def test_times_are_read(text: str, spend_s: float) -> None:
    assert seconds(text) == spend_s


@pytest.mark.parametrize("text", ["", "0", "0m", "-5m", "15 minutes", "m", "1e3", "inf"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="such as 90s, 15m or 2h"):
        seconds(text)


def test_device_and_folder_are_needed(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["profile", "--out", str(tmp_path)]).exit_code == 2
    assert CliRunner().invoke(app, ["profile", "--device", "emulated:T4"]).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_a_budget_is_recorded_and_gone_on_with(tmp_path: Path) -> None:
    command = ["profile", "--device", "emulated:T4", "--budget", "1m", "--repeats", "1", "--out", str(tmp_path)]
    tables = []
    for _ in range(2):
        assert CliRunner().invoke(app, command).exit_code == 0
        tables.append((tmp_path / "T4" / "profile.csv").read_bytes())
    assert tables[0] == tables[1]
    assert tables[0].count(b"\n") > 5
