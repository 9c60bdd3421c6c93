"""The structure of the package: contracts of imports, the size of what a plan and a run load, sizes of files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "heshare"
STAGES = ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running")
MOST_MODULES, MOST_LINES, MOST_FUNCTION_LINES = 18, 480, 50
MOST_LINES_OF_PLAN_AND_RUN = 9_340
PLAN_AND_RUN = """
import numpy as np
from heshare.devices.task_sizes import draw
from heshare.policies.registry import make
from heshare.prediction.forest import load_forest_predictor
from heshare.running.run import run
from heshare.world.cluster import Cluster
tasks, cluster = draw(3, rng=np.random.default_rng(0)), Cluster.parse("1xT4,1xA100")
for policy in ("random", "sched-only", "heshare:trade-off"):
    run(tasks, cluster, make(policy), predictor=load_forest_predictor(), rng=np.random.default_rng(0))
"""


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def lines(file: Path) -> int:
    return len(file.read_text("utf-8").splitlines())


def length(function: ast.FunctionDef) -> int:
    """Lines of the body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_imports_keep_the_contracts() -> None:
    # In a process of its own: it disables the loggers that other tests read.
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def loaded_by(program: str) -> list[Path]:
    """The files of the package that a program has imported at its end."""
    show = (
        "import sys\nprint(*[m.__file__ for name, m in sys.modules.items() if name.startswith('heshare')], sep='\\n')"
    )
    command = [sys.executable, "-c", f"{program}\n{show}"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return [Path(line).relative_to(PACKAGE) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_plan_and_a_run_load_the_stages_and_shared_pieces_alone() -> None:
    assert {file.parts[0] for file in loaded_by(PLAN_AND_RUN)} <= {*STAGES, "shared", "__init__.py"}


def test_planner_and_run_import_few_lines() -> None:
    loaded = loaded_by("import heshare.scheduling.planner, heshare.running.run")
    assert sum(lines(PACKAGE / file) for file in loaded) <= MOST_LINES_OF_PLAN_AND_RUN


def test_folders_and_files_stay_readable() -> None:
    folders = Counter(file.parent for file in sources() if file.name != "__init__.py")
    assert not [str(folder) for folder, count in folders.items() if count > MOST_MODULES]
    assert not [str(file) for file in sources() if lines(file) > MOST_LINES]


@pytest.mark.slow
def test_functions_stay_readable() -> None:
    assert not [
        f"{file}: {node.name}"
        for file in sources()
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and length(node) > MOST_FUNCTION_LINES
    ]
