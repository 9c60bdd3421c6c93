"""Notebook 00_paper is a test: it fails when the library's last digit, or one of its choices, is another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import json, sys
import numpy as np
from heshare.devices import device_model
from heshare.prediction import forest
from heshare.scheduling import batch_model, configuration, objectives, operators, selection
from heshare.shared.files import root
up = lambda call: lambda *given, **named: np.nextafter(call(*given, **named), np.inf)
least, moves, survive = configuration._first_least, operators.migrate, selection.environmental_selection
{change}
for cell in json.loads((root() / "notebooks/00_paper.ipynb").read_text("utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]).replace('out_dir = ""', "out_dir = sys.argv[1]"))
"""
CHANGES = {
    "": "",
    "Eq. 4": "device_model.board_power_w = up(device_model.board_power_w)",
    "Section III-A": "forest.Forest.predict = up(forest.Forest.predict)",
    "Eq. 7": "objectives.sum_segments = up(objectives.sum_segments)",
    "Section III-B 2": "selection.environmental_selection = lambda exact, rounded, n: survive(rounded, exact, n)",
    "Section III-B 2b": "operators.segment_scores = lambda schemes, costs, best, pairs: costs",
    "Section III-B 2c": "operators.migrate = lambda *given: moves(*given[:5], np.inf, given[6])",
    "Eq. 15": "batch_model.BatchExecutions.jct_s = up(batch_model.BatchExecutions.jct_s)",
    "Lines 6 to 10": "configuration._first_least = lambda score: least(-score)",
    "Lines 1 to 23": "configuration.non_dominated = lambda points: np.arange(len(points)) % 2 == 0",
}
"""Changes of the library, by the first check that must fail: a last digit, another choice."""


@pytest.mark.slow
@pytest.mark.parametrize("check", CHANGES)
def test_the_notebook_fails_when_the_library_is_another(check: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN.format(change=CHANGES[check]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("AssertionError")]
    assert done.returncode == bool(check), done.stderr
    assert [line.partition(",")[0] for line in said] == ([f"AssertionError: {check}"] if check else [])
