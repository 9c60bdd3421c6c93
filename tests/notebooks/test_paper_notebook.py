"""Notebook 00_paper as an oracle: each equation and choice in plain Python against the library, to 1e-9.

The notebook compares thousands of values. It has to pass on the library as it is, and to fail where a number of the
library is off by 1e-8 or one of its choices is another.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.made_once import made_once

RUN = """
import json, math, os, sys, traceback
from dataclasses import replace
import numpy as np
import heshare as hs
from heshare.devices import board_power
from heshare.paper.notebooks import notebook
from heshare.prediction import trees
from heshare.scheduling import batch_model, configuration, objectives, operators, selection
from heshare.shared.files import root

up = lambda call: lambda *given, **named: np.asarray(call(*given, **named)) * (1 + 1e-8)
cross, mutate, survive = operators.crossover, operators.mutate, selection.environmental_selection
percentages, solve = configuration.mps_percentages, board_power.solve
cells = json.loads((root() / "notebooks/00_paper.ipynb").read_text("utf-8"))["cells"]
isclose, compared = math.isclose, []

def strict(one, other, **named):
    compared.append((one, other))
    return isclose(one, other, rel_tol=1e-9)

def run(change, out_dir):
    exec(change, globals())
    math.isclose = strict
    names = {"__name__": "__main__", "__builtins__": __builtins__, "out_dir": out_dir}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace('out_dir = ""', "out_dir = " + repr(out_dir)), names)

for number, (check, change) in enumerate(json.loads(sys.argv[2]).items()):
    folder = os.path.join(sys.argv[1], str(number))
    os.mkdir(folder)
    if (pid := os.fork()) == 0:
        os.dup2(os.open(os.path.join(folder, "said"), os.O_WRONLY | os.O_CREAT), 2)
        code = 1
        try:
            run(change, folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        print(len(compared), file=open(os.path.join(folder, "compared"), "w"))
        sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said, values = (open(os.path.join(folder, name)).read() for name in ("said", "compared"))
    print(json.dumps([check, code, said, int(values)]), flush=True)
"""
"""Runs the notebook's cells once for each change of the library, each in a process forked with the libraries loaded."""
CHANGES = {
    "": "",
    "Eq. 4": "board_power.solve = lambda *a: (solve(*a)[0], 1.001 * solve(*a)[1], solve(*a)[2])",
    "Section III-A": "trees.TreesOverRidge.predict = up(trees.TreesOverRidge.predict)",
    "Eq. 7": "objectives.sum_segments = up(objectives.sum_segments)",
    "Section III-B 2": "selection.environmental_selection = lambda exact, rounded, n: survive(-exact, -rounded, n)",
    "Section III-B 2b": "operators.crossover = lambda *a: cross(*a[:4], replace(a[4], segments='totals'), a[5])",
    "Section III-B 2c": "operators.mutate = lambda *a: mutate(*a[:2], replace(a[2], recovery=False), a[3])",
    "Eq. 15": "batch_model.BatchExecutions.jct_s = up(batch_model.BatchExecutions.jct_s)",
    "Lines 6 to 10": "configuration.mps_percentages = lambda *a: percentages(*a[:2], replace(a[2], mps_goal='none'))",
    "Lines 1 to 23": "configuration.non_dominated = lambda points: np.arange(len(points)) % 2 == 0",
}
"""Changes of the library, by the first check that must fail: another number, another choice."""


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, int]]:
    """Exit code, stderr and number of compared floats by change."""
    folder = made_once(tmp_path_factory, "paper_notebook", run_changes)
    rows = json.loads((folder / "ran.json").read_text())
    return {check: (code, said, values) for check, code, said, values in rows}


def run_changes(folder: Path) -> None:
    command = [sys.executable, "-c", RUN, str(folder), json.dumps(CHANGES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    (folder / "ran.json").write_text(json.dumps(rows))


@pytest.mark.slow
def test_library_agrees(ran: dict[str, tuple[int, str, int]]) -> None:
    """Every number of the notebook's plain Python is the library's, to 1e-9."""
    code, text, values = ran[""]
    assert code == 0, text
    assert values > 500


@pytest.mark.slow
@pytest.mark.parametrize("check", list(CHANGES)[1:])
def test_changed_library(check: str, ran: dict[str, tuple[int, str, int]]) -> None:
    """The notebook fails, at that check, when the library is another."""
    code, text, _ = ran[check]
    said = [line for line in text.splitlines() if line.startswith("AssertionError")]
    assert code == 1, text
    assert [line.partition(",")[0] for line in said] == [f"AssertionError: {check}"]
