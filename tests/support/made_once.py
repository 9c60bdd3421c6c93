"""Folders that the workers of pytest-xdist share: the first one fills them, the others wait."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest


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
