"""What a start imports: libraries only where they are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import heshare as hs

HEAVY = ("joblib", "matplotlib", "pandas", "numba", "numpy", "pymoo", "scipy", "seaborn", "sklearn")


def heavy_modules(code: str) -> set[str]:
    """Return those of the libraries that a new Python process has imported after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=True,
    )
    return set(HEAVY) & set(json.loads(done.stdout.splitlines()[-1]))


def test_package_and_command_line_import_no_numeric_library() -> None:
    assert heavy_modules("import heshare, heshare.cli") == set()


@pytest.mark.slow
def test_plan_and_run_import_only_what_they_use() -> None:
    hs.plan(2, "1xT4,1xA100")  # the forest is stored from now on
    plan = "from heshare.cli import app; app('plan --tasks 2 --cluster 1xT4,1xA100'.split(), standalone_mode=False)"
    run = "import heshare as hs; hs.run(2, '1xT4', 'sjf')"
    assert heavy_modules(f"{plan}\n{run}") <= {"joblib", "numba", "numpy", "pandas", "scipy"}
