"""The units of docs/systemd: systemd accepts them, they are hardened, and their commands and options are there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

from heshare.cli import app
from heshare.ops.clocks.service_clock import SERVICE_SOCKET

PROGRAM = "/opt/heshare/bin/heshare"


@pytest.fixture
def units(checkout: Path) -> Path:
    return checkout / "docs" / "systemd"


def directives(unit: Path) -> dict[str, str]:
    """The directives of a unit, the last of each."""
    lines = [line.partition("=") for line in unit.read_text("utf-8").splitlines() if re.match(r"[A-Z]\w+=", line)]
    return {name: value for name, _, value in lines}


def test_units_name_commands_and_options_that_are_there(units: Path) -> None:
    commands = typer.main.get_command(app)
    found = []
    for unit in sorted(units.glob("*.service")):
        for text in re.findall(rf"{PROGRAM} ([^;']+)", unit.read_text("utf-8")):
            name, *words = text.split()
            command = commands.get_command(None, name)
            if name in ("jobs", "slurm"):
                command = command.get_command(None, words[0])
            options = {option for one in command.params for option in one.opts}
            assert {word for word in words if word.startswith("--")} <= options, text
            found.append(name)
    assert found == ["clock-service", "jobs", "jobs", "restore", "slurm"]


def test_units_of_the_clock_service_belong_together(units: Path) -> None:
    socket, service = directives(units / "heshare-clocks.socket"), directives(units / "heshare-clocks.service")
    assert socket["ListenStream"] == SERVICE_SOCKET
    assert socket["SocketMode"] == "0660"
    assert service["CapabilityBoundingSet"] == "CAP_SYS_ADMIN"
    assert f"/var/lib/{service['StateDirectory']}" in service["ExecStart"]
    run = directives(units / "heshare-run@.service")
    assert run["User"] != "root"
    assert run["CapabilityBoundingSet"] == run["AmbientCapabilities"] == ""
    assert (run["Type"], run["KillMode"]) == ("exec", "mixed")
    for names in (service, run):
        # They restrict devices to those that they name, and shut out the GPUs.
        assert not names.keys() & {"ProtectClock", "PrivateDevices", "DeviceAllow", "DevicePolicy"}


def test_systemd_accepts_the_units(units: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze")
    for unit in units.iterdir():
        text = unit.read_text("utf-8").replace(PROGRAM, shutil.which("true") or "/bin/true")
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    for unit in sorted(tmp_path.iterdir()):
        done = subprocess.run([program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
        named = [line for line in done.stderr.splitlines() if "heshare" in line]
        assert (done.returncode, named) == (0, []), unit.name


@pytest.mark.parametrize(("unit", "most"), [("heshare-clocks.service", 25), ("heshare-run@.service", 50)])
def test_systemd_rates_the_units_as_hardened(units: Path, unit: str, most: int) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze")
    command = [program, "security", "--offline=true", f"--threshold={most}", "--no-pager", str(units / unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 and "unrecognized option" in done.stderr:
        pytest.skip("this systemd cannot rate a file")
    assert done.returncode == 0, done.stdout[-300:]
