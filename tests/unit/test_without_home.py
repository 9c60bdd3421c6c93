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
import json, os, sys
from typer.testing import CliRunner
from heshare.cli import app
from heshare.devices.crowding import _overlap

def say(command):
    done = CliRunner().invoke(app, [command])
    return done.exit_code, done.stdout, done.stderr

said = {"restore": say("restore"), "doctor": say("doctor")}
os.environ["XDG_STATE_HOME"] = os.environ["TMPDIR"]
said["with a folder"] = say("restore")
_overlap(1.0, 2.0)
said["compiled"] = _overlap._cache.cache_path
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


def as_nobody(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user without a home, in a folder that it cannot write."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(files.PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder),
    }
    command = [*NOBODY, sys.executable, *words]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_commands(folder: Path) -> None:
    """Commands that need a state folder name the variable to set; compiled functions lie in a temporary folder."""
    said = json.loads(as_nobody(folder, "-c", PROGRAM).stdout)

    code, _, errors = said["restore"]
    assert code == 2
    assert "XDG_STATE_HOME" in errors
    assert errors.count("\n") == 1

    code, output, errors = said["doctor"]
    assert code in (0, 1)  # 1 where there is no GPU
    assert "XDG_STATE_HOME" in output
    assert errors == ""

    assert said["with a folder"][0] == 0
    assert said["compiled"].startswith(f"{folder}/heshare-numba-")
    assert not list(folder.glob("heshare-numba-*")), "removed at the end of the process"


@pytest.mark.slow
def test_plan_warns_once(folder: Path) -> None:
    """A plan whose trained model cannot be cached warns once and names the variable to set."""
    words = ("-m", "heshare", "plan", "--tasks", "2", "--cluster", "1xT4", "--quiet")
    errors = as_nobody(folder, *words).stderr
    assert errors.count("cannot be written") == 1
    assert "XDG_CACHE_HOME" in errors
