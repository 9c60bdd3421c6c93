"""The Makefile: its list of targets, and the Python that it chooses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from heshare.shared.processes import SAME_BYTES


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


def test_targets(checkout: Path, makefile: str) -> None:
    """`make` lists every target, and pins what notebooks and `heshare calibrate` pin."""
    exported = dict(re.findall(r"(?m)^export (\w+) := (.+)$", makefile))
    assert exported.items() >= SAME_BYTES.items()

    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)$", makefile)
    done = make(checkout)
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"(?m)^  make ([a-z-]+) +\S", done.stdout)
    assert sorted(listed) == sorted(set(phony.split()) - {"FORCE"})


def test_live(checkout: Path) -> None:
    """`make live` measures GPUs of this machine, or with STAND_IN rehearses in a folder of its own; both draw."""
    for argument, module, figures in (
        ("LIVE=--allow-clocks", "heshare live", "figures"),
        ("STAND_IN=2xH100", "support.live_rehearsal --cluster 2xH100", "build/rehearsal/figures"),
    ):
        done = make(checkout, "--dry-run", "--assume-old=.venv/.ready", "live", argument)
        assert done.returncode == 0, done.stderr
        assert f"-m {module} --figures {figures} " in done.stdout


@pytest.mark.parametrize(("code", "variable"), [(1, "CONDA_PREFIX"), (0, "VIRTUAL_ENV")])
def test_active_environment(code: int, variable: str, checkout: Path, tmp_path: Path) -> None:
    """The Python of an active environment is used if it can import heshare, and that of .venv otherwise."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
    python.chmod(0o755)

    done = make(checkout, "--dry-run", "--assume-old=.venv/.ready", "test", **{variable: str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert (f'"{python}" -m pytest' in done.stdout) == (code == 0)
    assert (".venv/bin/python -m pytest" in done.stdout) == (code != 0)
