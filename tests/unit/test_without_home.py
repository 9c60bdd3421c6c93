"""A user without a home folder, for whom the package cannot be written, as in containers and hardened services."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heshare.shared import files

# This user may read everything, as the Python of the tests may be in root's home, and write nothing.
NOBODY = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "--inh-caps=+dac_read_search")
NOBODY += ("--ambient-caps=+dac_read_search",)
PROGRAM = """
import json, os
from typer.testing import CliRunner
from heshare.cli import app
from heshare.devices.board_power import voltage

def say(command):
    done = CliRunner().invoke(app, command.split())
    return done.exit_code, done.stdout, done.stderr

said = {name: say(name) for name in ("restore", "doctor", "plan --tasks 2 --cluster 1xT4 --quiet")}
os.environ["XDG_STATE_HOME"] = os.environ["TMPDIR"]
said["with a folder"] = say("restore")
voltage(900.0, 700.0, 0.8, 1000.0)
said["compiled"] = voltage._cache.cache_path
print(json.dumps(said))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter and write; skips the test where this one may not be another user."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("no right to be another user")
    if subprocess.run([*NOBODY, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to be another user")

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.mark.slow
def test_commands(folder: Path) -> None:
    """Commands name the variable of a folder that they cannot write; compiled functions lie in a temporary folder."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(files.PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder),
    }
    command = [*NOBODY, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)

    code, _, errors = said["restore"]
    assert code == 2
    assert "XDG_STATE_HOME" in errors
    assert errors.count("\n") == 1

    code, output, errors = said["doctor"]
    assert code in (0, 1)  # 1 where there is no GPU
    assert "XDG_STATE_HOME" in output
    assert errors == ""

    code, _, errors = said["plan --tasks 2 --cluster 1xT4 --quiet"]
    assert code == 0
    assert "XDG_CACHE_HOME" in errors

    assert said["with a folder"][0] == 0
    assert said["compiled"].startswith(f"{folder}/heshare-numba-")
    assert not list(folder.glob("heshare-numba-*")), "removed at the end of the process"
