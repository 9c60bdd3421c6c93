"""Folders that the workers of pytest-xdist share, and the smoke run of the notebooks that many tests look at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest

from heshare.shared.files import root

READS = "reads.txt"
"""The log of `support/audit/sitecustomize.py`, beside the outputs of a smoke run."""


def made_once(paths: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a new folder once a function has filled it: the first worker calls it, the others wait."""
    base = paths.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    done, failed = (folder.with_name(f"{name}-{end}") for end in ("done", "failed"))
    try:
        folder.mkdir()
    except FileExistsError:
        while not done.exists():
            assert not failed.exists(), f"{name} failed in another worker"
            sleep(0.2)
        return folder
    try:
        make(folder)
    except BaseException:
        failed.touch()
        raise
    done.touch()
    return folder


def smoke(out: Path, seed: str) -> Path:
    """Run all notebooks and the claims, in processes of their own with that hash seed."""
    audit = os.pathsep.join(filter(None, [str(root() / "tests/support/audit"), os.environ.get("PYTHONPATH")]))
    reads = {"PYTHONPATH": audit, "READS_LOG": str(out.parent / READS), "READS_ROOT": str(root())}
    environment = {**os.environ, **reads, "PYTHONHASHSEED": seed}
    words = ["notebook", "run", "--all", "--profile", "smoke", "--jobs", "2", "--page"]
    done = subprocess.run(
        [sys.executable, "-m", "heshare", *words, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=out.parent,
    )
    assert done.returncode == 0, done.stderr
    return out
