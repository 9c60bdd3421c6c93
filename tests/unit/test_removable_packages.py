"""`lab`, `paper`, `ops`, `cli` and `testing` can be deleted: plans, runs and the stages' tests still work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from unit.test_structure import CHECKOUT, PACKAGE, PLAN_AND_RUN, STAGES

LAB = sorted(path.name for path in (PACKAGE / "lab").iterdir() if (path / "__init__.py").exists())
REMOVABLE = [*[f"lab/{name}" for name in LAB], "paper", "ops", "cli", "testing"]
ENTRY_MODULES = ("api.py", "arguments.py", "device_query.py")
"""Modules above the stages that import several of them."""
USES_REMOVABLE = re.compile(r"import heshare as hs|registry import .*\b(make|policies)\b|\bregistry\.|time-slice")
"""What a test writes that plans or runs with policies or ways of sharing of a removable package, without an import."""


@pytest.mark.slow
def test_stages_alone(tmp_path: Path) -> None:
    """Without all these packages the stages' tests pass; without each in turn a plan and a run work, and stages import.

    One copy of the package, one after the other, with what is compiled of it.
    """
    shutil.copytree(PACKAGE, tmp_path / "heshare")
    for name in ("pyproject.toml", "data", "notebooks", "tests"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    for name in ENTRY_MODULES:
        (tmp_path / "heshare" / name).unlink()
    with Parent(tmp_path) as parent:
        work_without(parent, REMOVABLE, *stage_tests(tmp_path))
        for name in REMOVABLE:
            work_without(parent, [name])


PROGRAM = f"""
import json, os, sys, traceback
import numba.np.arraymath, numpy, pandas, scipy.optimize, scipy.stats, sklearn.ensemble, yaml
def work(words):
    exec({PLAN_AND_RUN!r}, {{}})
    print("ran", flush=True)
    import importlib, pkgutil, pytest
    for stage in {STAGES!r}:
        package = importlib.import_module("heshare." + stage)
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    return int(pytest.main(words)) if words else 0
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1), os.dup2(log, 2)
            code = work(json.loads(line))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Parent:
    """A process with the libraries and none of the package, whose children plan, run and then test."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __enter__(self) -> Parent:
        environment = {**os.environ, "PYTHONPATH": str(self.root), "HESHARE_ROOT": str(self.root)}
        command = [sys.executable, "-c", PROGRAM]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, cwd=self.root, env=environment, text=True, **pipes)
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.communicate()

    def run(self, words: list[str]) -> tuple[int, str]:
        """The exit code of a child, and what it said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline()), (self.root / "log").read_text("utf-8")


def stage_tests(root: Path) -> list[str]:
    """The words of pytest that run the tests of the stages that use no removable package."""
    modules = [f"heshare.{name.removesuffix('.py').replace('/', '.')}" for name in (*REMOVABLE, *ENTRY_MODULES)]
    files = [file for stage in STAGES for file in (CHECKOUT / "tests/unit" / stage).glob("test_*.py")]
    tests = [str(root / file.relative_to(CHECKOUT)) for file in sorted(files) if not uses(file, modules)]
    assert len(tests) >= 20, "most tests of the stages use no removable package"
    return ["-q", "-p", "no:cacheprovider", "-m", "not slow", "-n0", *tests]


def work_without(parent: Parent, names: list[str], *words: str) -> None:
    """Move packages away; plan, run, import the stages and run tests, if any; move the packages back."""
    root = parent.root
    for name in names:
        (root / "away" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "heshare" / name).rename(root / "away" / name)
    code, output = parent.run(list(words))
    assert code == 0, f"without {', '.join(names)}: {output[-3000:]}"
    assert output.startswith("ran\n")
    sys.stdout.write(f"without {', '.join(names)}: {output.strip().rpartition(chr(10))[2]}\n")
    for name in names:
        (root / "away" / name).rename(root / "heshare" / name)


def uses(file: Path, modules: list[str]) -> bool:
    """Return whether a test, or what it imports from `support`, names one of some modules or their policies."""
    text = file.read_text("utf-8")
    helpers = re.findall(r"from support\.(\w+) import|from support import ([\w, ]+)", text)
    names = {name.strip().split(" as ")[0] for one, many in helpers for name in (one, *many.split(",")) if name.strip()}
    for name in names:
        helper = CHECKOUT / "tests" / "support" / f"{name}.py"
        text += helper.read_text("utf-8") if helper.exists() else ""
    return bool(USES_REMOVABLE.search(text)) or any(re.search(rf"{module}\b", text) for module in modules)
