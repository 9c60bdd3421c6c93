"""The structure of the package: contracts of imports, and what a plan and a run load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "heshare"
STAGES = ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running")
PLAN_AND_RUN = """
import numpy as np
from heshare.devices.task_sizes import draw
from heshare.policies.registry import make
from heshare.prediction.load import load_predictor
from heshare.running.run import run
from heshare.world.cluster import Cluster
tasks, cluster = draw(3, rng=np.random.default_rng(0)), Cluster.parse("1xT4,1xA100")
for policy in ("random", "sched-only", "heshare:trade-off"):
    run(tasks, cluster, make(policy), predictor=load_predictor(), rng=np.random.default_rng(0))
"""


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


DOORS = {"api.py", "arguments.py", "__init__.py"}


@pytest.mark.slow
def test_a_plan_and_a_run_of_the_api_load_the_stages_and_the_laboratory_alone() -> None:
    program = """
import heshare as hs
front = hs.plan(3, "1xT4,1xA100")
hs.evaluate(front.trade_off)
hs.run(3, "1xT4,1xA100", "sjf")
hs.gpus(), hs.models()
"""
    assert {file.parts[0] for file in loaded_by(program)} <= {*STAGES, "shared", "lab", *DOORS}
    explored = f"{program}hs.explore(front)"
    assert {file.parts[0] for file in loaded_by(explored)} >= {"paper"}


def test_the_package_imports_in_a_moment_and_names_load_when_they_are_used() -> None:
    assert {file.parts[0] for file in loaded_by("import heshare")} <= {"__init__.py", "shared"}
