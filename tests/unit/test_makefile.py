"""The Makefile: its list of targets, and the Python that it chooses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def makefile(checkout: Path) -> str:
    return (checkout / "Makefile").read_text("utf-8")


def make(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("make")
    if program is None:
        pytest.skip("no make on this machine")
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [program, "--no-print-directory", *arguments],
        cwd=checkout,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_make_lists_every_target(checkout: Path, makefile: str) -> None:
    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)$", makefile)
    done = make(checkout)
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"(?m)^  make ([a-z-]+) +\S", done.stdout)
    assert sorted(listed) == sorted(set(phony.split()) - {"FORCE"})
    assert {"help", "figures", "test", "smoke", "bench", "live", "calibrate", "lint", "lock", "clean"} <= set(listed)


def test_make_does_not_use_a_conda_environment_without_heshare(checkout: Path, tmp_path: Path) -> None:
    """Its Python cannot import heshare, so make falls back to .venv."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    done = make(checkout, "--dry-run", "--assume-old=.venv/.ready", "test", CONDA_PREFIX=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert ".venv/bin/python -m pytest" in done.stdout
    assert str(tmp_path) not in done.stdout


def test_make_uses_an_active_environment_with_heshare(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    python.chmod(0o755)
    done = make(checkout, "--dry-run", "test", VIRTUAL_ENV=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f'"{python}" -m pytest' in done.stdout
    assert "-m venv" not in done.stdout


def test_make_without_a_python_reports_it(makefile: str, tmp_path: Path) -> None:
    """In a folder without .venv and with no Python on the path, make reports what is missing and builds nothing."""
    (tmp_path / "Makefile").write_text(makefile, encoding="utf-8")
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_text("", encoding="utf-8")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "rm"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = make(tmp_path, "test", PATH=f"{tools}") if shutil.which("make") else pytest.skip("no make")
    assert done.returncode == 2
    assert "found no Python 3.11 or later" in done.stderr
    assert not (tmp_path / ".venv").exists()
