"""The structure of the package: contracts of imports, and what an import, a plan and a run load.

Two processes answer all questions: one for the command line, one for plans and runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "heshare"
STAGES = ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running")
NUMERIC = {"joblib", "matplotlib", "numba", "numpy", "pandas", "pymoo", "scipy", "seaborn", "sklearn"}
"""Libraries that take long to import."""
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
TIME_SLICES = """
import heshare as hs
from heshare.world.catalogue import gpu
from heshare.world.workload import parse_resident
pair = (parse_resident("resnet50:8@time-slice"), parse_resident("vgg19:8@time-slice"))
assert hs.load_predictor().co_run([pair], gpu("V100"), [None]).time_s.min() > 0
"""
LIBRARY = """
front = hs.plan(3, "1xT4,1xA100")
hs.evaluate(front.trade_off)
hs.run(3, "1xT4,1xA100", "sjf")
hs.gpus(), hs.models()
"""
COMMAND = """
from heshare.cli import app
app("plan --tasks 2 --cluster 1xT4,1xA100".split(), standalone_mode=False)
"""
CONTRACTS = """
from importlinter.cli import lint_imports
assert lint_imports(no_cache=True) == 0
"""
SHOW = """
import json, sys
files = [module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "heshare"]
print("LOADED", json.dumps([files, sorted(sys.modules)]), flush=True)
"""


def loaded_after(*steps: str) -> list[tuple[set[str], set[str]]]:
    """Return what one new process has imported after each step: parts of the package, and numeric libraries."""
    program = "".join(f"{step}\n{SHOW}" for step in steps)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    found = []
    for line in done.stdout.splitlines():
        if line.startswith("LOADED "):
            files, modules = json.loads(line.removeprefix("LOADED "))
            parts = {Path(file).relative_to(PACKAGE).parts[0] for file in files}
            found.append((parts, NUMERIC & set(modules)))
    return found


def test_package_and_contracts() -> None:
    """`import heshare` and the command line load no numeric library; imports keep the contracts of `pyproject.toml`."""
    package, command_line, _ = loaded_after("import heshare", "import heshare.cli", CONTRACTS)
    parts, libraries = package
    assert parts <= {"__init__.py", "shared"}
    assert libraries == set()
    assert command_line[1] == set()


@pytest.mark.slow
def test_plan_and_run() -> None:
    """A plan and a run load the stages and shared parts; those of the library also `lab`, and charts `paper`."""
    stages, predictor, library, explored = loaded_after(PLAN_AND_RUN, TIME_SLICES, LIBRARY, "hs.explore(front)")
    entry_modules = {"api.py", "arguments.py", "__init__.py"}
    assert stages[0] <= {*STAGES, "shared", "__init__.py"}
    assert predictor[0] <= {*STAGES, "shared", "lab", *entry_modules}
    assert library[0] <= {*STAGES, "shared", "lab", *entry_modules}
    assert explored[0] >= {"paper"}


@pytest.mark.slow
def test_plan_command_libraries() -> None:
    """The plan of the command line and a run import only the libraries that they use."""
    command, run = loaded_after(COMMAND, "import heshare as hs; hs.run(2, '1xT4', 'sjf')")
    for _, libraries in (command, run):
        assert libraries <= {"joblib", "numba", "numpy", "pandas", "scipy"}
