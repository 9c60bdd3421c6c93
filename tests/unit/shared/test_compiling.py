"""Compilation: told once and only when it happens; `heshare.lab.compile_all` leaves nothing to compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from heshare.lab import compile_all
from heshare.shared import compiling, extras
from heshare.shared.caches import numba_code
from heshare.shared.compiling import Compilations, compilation_told_by

LOADED = """
import gc
def loaded():
    return sorted({
        f"{one.py_func.__module__}.{one.py_func.__qualname__}{signature}"
        for one in gc.get_objects() if type(one).__name__ == "CPUDispatcher"
        for signature in one.signatures if one.py_func.__module__.startswith("heshare.")
    })
"""
COMPILE = f"""{LOADED}
import json
from heshare.lab.compile_all import load_all, main
load_all()
main([])
print(json.dumps(loaded()))
"""
PROGRAM = f"""{LOADED}
import json, sys
import heshare as hs
from heshare.cli import app
from heshare.shared.compiling import compilations
hs.plan(20, "4xT4,2xV100,2xA100")
hs.optimise(20, "40xT4,2xV100,2xA100", budget_s=0.05)
for policy in ("marginal", "fikit", "heshare+:trade-off", "heshare+-online:trade-off"):
    hs.run(6, "2xT4,1xA100", policy)
words = "plan --improved --budget 0.05 --bound --tasks 5 --cluster 1xT4,1xA100 --quiet"
app(words.split(), standalone_mode=False)
print(json.dumps([compilations.count, "sklearn" in sys.modules, loaded()]))
"""
PAPER = f"""{LOADED}
import json
import heshare as hs
from heshare.lab.compile_all import load_all
from heshare.policies.registry import FIG_6
from heshare.shared.compiling import compilations
load_all(paper=True)
kept, before = loaded(), compilations.count
others = ("random:all-at-once", "sched-only:all-at-once", "heshare:trade-off/literal", "srtf", "sjf")
hs.compare(20, "4xT4,2xV100,2xA100", [*FIG_6, *others], seeds=1)
print(json.dumps([compilations.count - before, kept, loaded()]))
"""


def twice(number: float) -> float:
    return 2 * number


twice.__module__ = "heshare.made_up"  # compilations of other packages do not count


def test_small_functions_are_compiled_once_they_are_called_often() -> None:
    names = {"twice": twice}
    later = compiling.CompiledLater(names, calls=2)
    assert later(twice) is twice
    later.count()
    assert names["twice"] is twice
    later.count()
    assert isinstance(names["twice"], Dispatcher)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Compilations:
    """A new count, in place of that of this process."""
    compilations = Compilations()
    monkeypatch.setattr(compiling, "compilations", compilations)
    return compilations


def test_first_compilation_is_told_once_and_a_compiled_function_not(counted: Compilations) -> None:
    told: list[str] = []
    function = numba_code.njit(twice)
    with compilation_told_by(told.append):
        assert [function(3), function(0.5), function(4)] == [6, 1.0, 8]
    assert counted.count == 2
    (text,) = told
    assert text.startswith("compiling for this machine, which takes about")


def test_compilation_is_told_on_stderr(counted: Compilations, capsys: pytest.CaptureFixture[str]) -> None:
    numba_code.njit(twice)(3)
    assert capsys.readouterr().err.startswith("heshare: compiling for this machine")


def start(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )


CALLEE = """
from typing import NamedTuple
from heshare.shared.compiling import compiled

PLACE = 0

class Pair(NamedTuple):
    first: float
    second: float

@compiled
def one(value):
    return value + 1
"""
CALLER = """
from callee import PLACE, Pair, one
from heshare.shared.compiling import compiled

@compiled
def value(pair):
    return 100 * one(pair.first) + (1.0, 2.0)[PLACE]

first = value(Pair(first=3.0, second=5.0))
print(first, sum(value.stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_compiled_code_of_changed_imports_is_not_loaded(tmp_path: Path) -> None:
    fields = "    first: float\n    second: float\n"
    changes = ("", ""), ("", ""), ("+ 1", "+ 2"), ("PLACE = 0", "PLACE = 1"), (fields, fields[17:] + fields[:17])
    (tmp_path / "caller.py").write_text(CALLER)
    text, told = CALLEE, []
    for old, new in changes:
        text = text.replace(old, new)
        (tmp_path / "callee.py").write_text(text)
        folders = {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "PYTHONDONTWRITEBYTECODE": "1"}
        told.append(start([str(tmp_path / "caller.py")], **folders).stdout.split())
    assert told == [["401.0", "1"], ["401.0", "0"], ["501.0", "1"], ["502.0", "1"], ["502.0", "1"]]


def test_compile_all_without_numba_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "lacking", lambda extra: ["numba"])
    assert compile_all.main(["--paper"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("heshare: argument python -m heshare.lab.compile_all: found no numba")
    assert "pip install 'heshare[fast]'" in told.err


@pytest.mark.slow
def test_compile_leaves_nothing_to_compile_or_train(tmp_path: Path) -> None:
    """Compared by what the two load of the code that this checkout keeps, since compiling takes minutes."""
    folders = {"XDG_CACHE_HOME": str(tmp_path)}
    done = start(["-c", COMPILE], **folders)
    compiled = set(json.loads(done.stdout.splitlines()[-1]))
    assert len(compiled) > 35
    assert "0 functions compiled" in done.stdout
    assert "improved search" in done.stderr
    used = start(["-c", PROGRAM], **folders)
    count, trained, loaded = json.loads(used.stdout.splitlines()[-1])
    assert (count, trained) == (0, False)
    assert set(loaded) - compiled == set()
    assert len(loaded) > 30
    assert used.stderr == ""


@pytest.mark.slow
def test_paper_part_is_what_the_papers_policies_need_and_no_more(tmp_path: Path) -> None:
    used = start(["-c", PAPER], XDG_CACHE_HOME=str(tmp_path))
    count, kept, loaded = json.loads(used.stdout.splitlines()[-1])
    assert not [name for name in kept if name.startswith("heshare.lab.")]
    assert set(loaded) == set(kept)
    assert len(kept) > 20
    assert count == 0


def test_settings_that_numba_refuses_are_one_message() -> None:
    environment = {**os.environ, "NUMBA_NUM_THREADS": "0"}
    words = [sys.executable, "-m", "heshare", "plan", "--tasks", "2", "--cluster", "1xT4", "-q"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith("heshare: ")
    assert "Traceback" not in done.stderr
    assert "NUMBA_" in done.stderr
