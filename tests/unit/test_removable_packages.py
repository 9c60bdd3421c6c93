"""`lab`, `paper`, `ops`, `cli` and `testing` can be deleted: the stages still plan and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from unit.test_structure import CHECKOUT, PACKAGE, PLAN_AND_RUN, STAGES

REMOVABLE = ("lab", "paper", "ops", "cli", "testing")
ENTRY_MODULES = ("api.py", "arguments.py", "device_query.py", "gym.py")
"""Modules above the stages that import several of them."""
IMPORT_STAGES = f"""
import importlib, pkgutil
for stage in {STAGES!r}:
    package = importlib.import_module("heshare." + stage)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


@pytest.mark.slow
def test_stages_alone(tmp_path: Path) -> None:
    """In a copy without these packages a plan and a run work, and every module of the stages can be imported."""
    left_out = shutil.ignore_patterns("__pycache__", *REMOVABLE, *ENTRY_MODULES)
    shutil.copytree(PACKAGE, tmp_path / "heshare", ignore=left_out)
    for name in ("pyproject.toml", "data", "notebooks"):
        (tmp_path / name).symlink_to(CHECKOUT / name)

    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HESHARE_ROOT": str(tmp_path)}
    program = f"{PLAN_AND_RUN}\n{IMPORT_STAGES}\nprint(importlib.import_module('heshare').__file__)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "heshare" / "__init__.py")
