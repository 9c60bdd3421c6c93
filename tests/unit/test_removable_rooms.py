"""Each room can be deleted: a plan and a run still work, and the tests of the stages that do not use it pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from unit.test_structure import CHECKOUT, PACKAGE, PLAN_AND_RUN, STAGES

LAB = sorted(path.name for path in (PACKAGE / "lab").iterdir() if (path / "__init__.py").exists())
ROOMS = [*[f"lab/{name}" for name in LAB], "paper", "ops", "cli", "testing"]
DOORS = ("api.py", "arguments.py", "device_query.py", "lab/compile_all.py")
"""Modules above the stages that import several rooms."""
USES_A_ROOM = re.compile(r"import heshare as hs|registry import .*\b(make|policies)\b|\bregistry\.|time-slice")
"""What a test writes that plans or runs with policies or ways of sharing of a room, without an import."""


@pytest.mark.slow
def test_stages_work_without_any_room(tmp_path: Path) -> None:
    """With all rooms deleted the stages' tests pass; with each deleted in turn they import, and a plan and a run work.

    One copy of the package, one after the other, with what is compiled of it. One process plans, runs and then tests.
    """
    shutil.copytree(PACKAGE, tmp_path / "heshare")
    for name in ("pyproject.toml", "data", "notebooks", "tests"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    for name in DOORS:
        (tmp_path / "heshare" / name).unlink()
    work_without(tmp_path, ROOMS)
    for room in ROOMS:
        work_without(tmp_path, [room], "--collect-only")


def work_without(root: Path, rooms: list[str], *options: str) -> None:
    """Take rooms away; plan, run and run the tests of the stages that use no room; put the rooms back."""
    for room in rooms:
        (root / "away" / room).parent.mkdir(parents=True, exist_ok=True)
        (root / "heshare" / room).rename(root / "away" / room)
    modules = [f"heshare.{name.removesuffix('.py').replace('/', '.')}" for name in (*ROOMS, *DOORS)]
    files = [file for stage in STAGES for file in (CHECKOUT / "tests/unit" / stage).glob("test_*.py")]
    tests = [str(root / file.relative_to(CHECKOUT)) for file in sorted(files) if not uses(file, modules)]
    assert len(tests) >= 20, "most tests of the stages use no room"
    words = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "-n0", *options, *tests]
    program = f"{PLAN_AND_RUN}\nprint('ran')\nimport pytest, sys\nsys.exit(pytest.main({words!r}))"
    environment = {**os.environ, "PYTHONPATH": str(root), "HESHARE_ROOT": str(root)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"without {', '.join(rooms)}: {(done.stdout + done.stderr)[-3000:]}"
    assert done.stdout.startswith("ran\n")
    sys.stdout.write(f"without {', '.join(rooms)}: {done.stdout.strip().rpartition(chr(10))[2]}\n")
    for room in rooms:
        (root / "away" / room).rename(root / "heshare" / room)


def uses(file: Path, modules: list[str]) -> bool:
    """Return whether a test, or what it imports from `support`, names one of some modules or the policies of rooms."""
    text = file.read_text("utf-8")
    helpers = re.findall(r"from support\.(\w+) import|from support import ([\w, ]+)", text)
    names = {name.strip().split(" as ")[0] for one, many in helpers for name in (one, *many.split(",")) if name.strip()}
    for name in names:
        helper = CHECKOUT / "tests" / "support" / f"{name}.py"
        text += helper.read_text("utf-8") if helper.exists() else ""
    return bool(USES_A_ROOM.search(text)) or any(re.search(rf"{module}\b", text) for module in modules)
