"""Policies, predictors and metrics of one's own in `hs.compare`, grids and the shell, without registering them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.lab.sweeps.cell_cache import _hash
from heshare.policies.random_placement import Random
from heshare.shared.disk_cache import NotCachedWarning

CLUSTER = "1xT4,1xA100"
MODULE = """
from heshare.policies.policy import Policy
from heshare.policies.registry import make as known


class Late(Policy):
    def __init__(self, first: str = "sjf") -> None:
        own = known(first)
        self.name = first
        self.traits = own.traits
        self.reset = own.reset
        self.answer = own.decide

    def decide(self, event, view):
        return self.answer(event, view)


def make():
    return Late()
"""


def test_policies_and_names() -> None:
    """Objects stand beside names; equal names get a number."""
    own, other = Random(), Random()
    table = hs.compare(3, CLUSTER, [own, "random", other], seeds=2)
    assert table["policy"].tolist() == ["random#2", "random", "random#3"] * 2
    first, named, last = (table["avg_jct_s"][place::3].tolist() for place in range(3))
    assert first == named == last
    assert hs.compare(3, CLUSTER, own, seeds=1)["avg_jct_s"].tolist() == named[:1]
    assert "random#2" not in hs.policy_names()


class Capped(Random):
    """Random with a parameter."""

    name = "capped"

    def __init__(self, cap: float = 0.8) -> None:
        super().__init__()
        self.cap = cap


def test_titles() -> None:
    """The title of an object has the parameters that differ from the defaults; equal ones have the numbered name."""
    policies = [Capped(), Capped(0.6), Capped(0.9), Capped(0.9), "morak(cap=0.7)"]
    table = hs.compare(2, CLUSTER, policies, seeds=1)
    assert table["policy"].tolist() == ["capped", "capped#2", "capped#3", "capped#4", "morak(cap=0.7)"]
    assert table["title"].tolist() == ["capped", "capped (cap 0.6)", "capped#3", "capped#4", "Morak (cap 0.7)"]


def test_predictor() -> None:
    """One predictor serves all runs, and its rows are counted for each."""
    forest = hs.load_predictor(kind="random-forest")
    table = hs.compare(4, CLUSTER, ["heshare:trade-off", "morak"], seeds=2, predictor=forest)
    other = hs.load_predictor(kind="random-forest")  # one for all runs, since it remembers what it has predicted
    own = [
        hs.run(hs.task_set(4, repetition=i), CLUSTER, name, repetition=i, predictor=other)
        for i in range(2)
        for name in ("heshare:trade-off", "morak")
    ]
    assert table["avg_jct_s"].tolist() == [run.avg_jct_s for run in own]
    assert table["predictor_calls"].tolist() == [run.predictor_calls for run in own]


def test_metrics() -> None:
    """Metrics of one's own are columns."""
    table = hs.compare(4, CLUSTER, "sjf", seeds=2, metrics={"p95_s": p95_s})
    runs = [hs.run(hs.task_set(4, repetition=i), CLUSTER, "sjf", repetition=i) for i in range(2)]
    assert table["p95_s"].tolist() == [p95_s(run) for run in runs]


def p95_s(run: hs.Run) -> float:
    return float(np.percentile(run.jct_s, 95))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, whose modules can be imported, as for `python -m heshare`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_policy_of_module(folder: Path, kept_cells: None) -> None:
    """A policy of a module in the current folder is compared by the shell and cached until its module changes."""
    (folder / "late_policy.py").write_text(MODULE)
    words = ["compare", "--tasks", "3", "--cluster", CLUSTER, "--seeds", "2", "--cells", "cells", "--json"]
    names = ["late_policy:make", "late_policy:Late(first=random)", "sjf"]
    words += [part for name in names for part in ("--policy", name)]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    assert first.stdout.count("late_policy:Late(first=random)") >= 2
    assert len(list(folder.rglob("*.json"))) == 6
    assert CliRunner().invoke(app, words).stdout == first.stdout
    # The key of a kept cell covers the module, which a process reads once.
    (folder / "late_policy.py").write_text(MODULE + "# changed\n")
    _hash.cache_clear()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert len(list(folder.rglob("*.json"))) == 10


@pytest.mark.slow
def test_cached_objects(tmp_path: Path, kept_cells: None) -> None:
    """Runs of objects are cached by their fields and can be sent to other processes."""
    own, metrics = Random(all_at_once=True), {"p95_s": p95_s}
    first = hs.compare(3, CLUSTER, [own, "sjf"], seeds=2, metrics=metrics, cells=tmp_path)
    again = hs.compare(3, CLUSTER, [own, "sjf"], seeds=2, metrics=metrics, cells=tmp_path)
    assert again.equals(first), "wall time included: nothing was run again"
    other = hs.compare(3, CLUSTER, [Random(), "sjf"], seeds=2, metrics=metrics, cells=tmp_path)
    assert len(list(tmp_path.rglob("*.json"))) == 6
    assert other["avg_jct_s"][0] != first["avg_jct_s"][0]
    two = hs.compare(3, CLUSTER, [own, "sjf"], seeds=2, metrics=metrics, n_jobs=2)
    assert two.drop(columns="planning_s").equals(first.drop(columns="planning_s"))


def test_object_without_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_cells: None) -> None:
    """An object without a source file is compared and not cached."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    cell: dict[str, Any] = {"__name__": "__main__", "Random": Random}
    exec("class Own(Random):\n    name = 'own'", cell)  # as a notebook's cell defines it
    with pytest.warns(NotCachedWarning, match="runs with .*Own are not cached") as told:
        table = hs.compare(3, CLUSTER, [cell["Own"](), "sjf"], seeds=2, cells=tmp_path)
    assert len(told) == 1
    assert table["policy"].tolist() == ["own", "sjf"] * 2
    assert len(list(tmp_path.rglob("*.json"))) == 2


def test_changed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cached of a package that differs from its commit."""
    monkeypatch.setattr("heshare.lab.sweeps.sweep.package_version", lambda: "0.1 abc+")
    with pytest.warns(NotCachedWarning, match="differs from its commit"):
        assert len(hs.compare(3, CLUSTER, "sjf", seeds=1, cells=tmp_path)) == 1
    assert not list(tmp_path.iterdir())


def test_errors(folder: Path) -> None:
    """Errors of own code are one line of the shell with their place."""
    (folder / "broken.py").write_text("def make():\n    return [][0]\n\n\ndef five():\n    return 5\n")
    said = []
    for name in ("broken:make", "broken:five"):
        run = CliRunner().invoke(app, ["run", "--tasks", "2", "--cluster", CLUSTER, "--policy", name])
        assert (run.exit_code, run.stderr.count("\n")) == (2, 1)
        said.append(run.stderr)
    assert f"{folder / 'broken.py'}, line 2, in make: IndexError" in said[0]
    assert "found int from broken:five" in said[1]


@pytest.mark.slow
def test_errors_of_workers(tmp_path: Path) -> None:
    """An error of own code in a worker process of a sweep is one line with its place."""
    broken = MODULE.replace("own.decide", "fail") + "\n\ndef fail(event, view):\n    return [][0]\n"
    (tmp_path / "broken.py").write_text(broken)
    words = ["compare", "--tasks", "2", "--cluster", CLUSTER, "--seeds", "2", "--jobs", "2", "--policy", "broken:Late"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "heshare", *words]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert f"{tmp_path / 'broken.py'}, line {len(broken.splitlines())}, in fail: IndexError" in run.stderr
    assert "Traceback" not in run.stderr
