"""A user without a home folder, for whom the package cannot be written, as in containers and hardened services."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from heshare.shared import files

# This user may read everything, as the Python of the tests may be in root's home, and write nothing.
NOBODY = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "--inh-caps=+dac_read_search")
NOBODY += ("--ambient-caps=+dac_read_search",)
CACHE = "from heshare.devices.crowding import _overlap; _overlap(1.0, 2.0); print(_overlap._cache.cache_path)"


@cache
def can_be_nobody():
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*NOBODY, "true"], capture_output=True, check=False).returncode == 0


def as_nobody(*words, **environment):
    """Run Python as a user without a home, in a folder that it cannot write."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(files.PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*NOBODY, sys.executable, *words]
    return subprocess.run(command, env={**given, **environment}, cwd="/", capture_output=True, text=True, check=False)


@pytest.fixture
def folder():
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.mark.skipif(not can_be_nobody(), reason="no right to be another user")
def test_commands_without_a_home_say_what_to_set(folder):
    restore = as_nobody("-m", "heshare", "restore")
    assert restore.returncode == 2
    assert restore.stderr.startswith("heshare: User 12345 has no home folder")
    assert "Set XDG_STATE_HOME to a folder that it can write" in restore.stderr
    assert restore.stderr.count("\n") == 1
    doctor = as_nobody("-m", "heshare", "doctor")
    assert doctor.returncode in (0, 1)  # 1 where there is no GPU
    assert "Set XDG_STATE_HOME" in doctor.stdout
    assert doctor.stderr == ""
    restore = as_nobody("-m", "heshare", "restore", XDG_STATE_HOME=str(folder))
    assert (restore.returncode, restore.stderr) == (0, "")


@pytest.mark.skipif(not can_be_nobody(), reason="no right to be another user")
def test_compiled_functions_without_a_home_are_kept_in_a_folder_of_the_process(folder):
    done = as_nobody("-c", CACHE, TMPDIR=str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{folder}/heshare-numba-")
    assert list(folder.iterdir()) == [], "it goes with the process"


@pytest.mark.slow
@pytest.mark.skipif(not can_be_nobody(), reason="no right to be another user")
def test_a_plan_without_a_home_says_that_the_model_is_trained_every_time(folder):
    words = ("-m", "heshare", "plan", "--tasks", "2", "--cluster", "1xT4", "--quiet")
    done = as_nobody(*words, TMPDIR=str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be written") == 1
    assert "XDG_CACHE_HOME names another folder" in done.stderr
