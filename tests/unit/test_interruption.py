"""Ctrl-C keeps what is finished: rows of a comparison, the front of a search; bars appear by themselves."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.running.run import run
from heshare.scheduling import configuration
from heshare.scheduling.batch_model import BatchModel
from heshare.scheduling.genetic import search, tournament
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.settings import Settings
from heshare.shared import progress
from heshare.shared.interruption import InterruptedWarning, InterruptedWithResult
from heshare.world.cluster import Cluster

RUN = CliRunner()
CLUSTER = "1xT4,1xA100"
SWEEP_RUN = "heshare.lab.sweeps.sweep.run"
POLICIES = ["random", "sjf", "fifo"]


def interrupting(call: Callable[..., Any], after: int, error: type[BaseException] = KeyboardInterrupt) -> Any:
    """Return a function that does what `call` does so many times, and then raises."""
    calls = 0

    def called(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise error
        return call(*args, **options)

    return called


def test_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_cells: None) -> None:
    """`compare` returns the rows so far, and the next comparison continues with the cached runs."""
    whole = hs.compare(3, CLUSTER, POLICIES, seeds=1)
    monkeypatch.setattr(SWEEP_RUN, interrupting(run, 2))
    with pytest.warns(InterruptedWarning, match="interrupted: 2 of 3 runs") as told:
        table = hs.compare(3, CLUSTER, POLICIES, seeds=1, cells=tmp_path)
    assert told[0].filename == __file__
    assert table.drop(columns="planning_s").equals(whole.head(2).drop(columns="planning_s"))

    monkeypatch.setattr(SWEEP_RUN, interrupting(run, 1))
    assert len(hs.compare(3, CLUSTER, POLICIES, seeds=1, cells=tmp_path)) == 3
    monkeypatch.setattr(SWEEP_RUN, interrupting(run, 0))
    with pytest.raises(KeyboardInterrupt) as caught:
        hs.compare(3, CLUSTER, POLICIES, seeds=1)
    assert type(caught.value) is KeyboardInterrupt


def test_shell_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell prints the rows so far and writes no file."""
    words = ["compare", "--tasks", "3", "--cluster", CLUSTER, "--seeds", "1", "-q", "--out", str(tmp_path / "out")]
    words += [word for policy in POLICIES for word in ("--policy", policy)]
    monkeypatch.setattr(SWEEP_RUN, interrupting(run, 2))
    done = RUN.invoke(app, words)
    assert done.exit_code == 130
    assert "SJF" in done.stdout
    assert "FIFO" not in done.stdout
    assert "2 of 3 runs" in done.stderr
    assert not (tmp_path / "out").exists(), "a part looks like the whole"
    monkeypatch.setattr(SWEEP_RUN, interrupting(run, 0))
    done = RUN.invoke(app, [*words, "--json"])
    assert (done.exit_code, done.stdout) == (130, "")


def test_unequal_repetitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a Ctrl-C medians are over the repetitions that every policy has, and their number is printed."""
    words = ["compare", "--tasks", "3", "--cluster", CLUSTER, "--seeds", "3", "-q"]
    words += [word for policy in POLICIES for word in ("--policy", policy)]
    whole = hs.compare(3, CLUSTER, POLICIES, seeds=3)
    monkeypatch.setattr(SWEEP_RUN, interrupting(run, 7))
    done = RUN.invoke(app, words)
    rows = [line.split()[:3] for line in done.stdout.splitlines()[1 : 1 + len(POLICIES)]]
    common = whole[whole["repetition"] < 2].groupby("title", sort=False)["energy_active_j"].median()
    assert rows == [[title, "2", f"{energy_j:.0f}"] for title, energy_j in common.items()]
    assert "every policy has finished" in done.stdout


def test_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan` returns the front so far."""
    expected = hs.plan(4, CLUSTER, settings=Settings(generations=2))
    monkeypatch.setattr("heshare.scheduling.genetic.tournament", _after(2))
    with pytest.warns(InterruptedWarning, match="the search so far") as told:
        front = hs.plan(4, CLUSTER)
    assert told[0].filename == __file__
    assert isinstance(front, hs.Front)
    assert (front.objectives == expected.objectives).all()


def test_second_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its second stage `plan` returns the front of the first one."""
    configure = iter([interrupting(configuration.configure, 0), configuration.configure])
    monkeypatch.setattr("heshare.scheduling.planner.configure", lambda *args: next(configure)(*args))
    with pytest.warns(InterruptedWarning, match="stage 1, without sharing"):
        front = hs.plan(4, CLUSTER)
    assert all(len(batch.tasks) == 1 for plan in front for queue in plan.queues for batch in queue)


def test_optimise() -> None:
    """`optimise` returns the front so far."""
    seen: list[np.ndarray] = []

    def interrupt(rounds: int, front: np.ndarray) -> None:
        seen.append(front)
        if rounds == 2:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedWarning):
        found = hs.optimise(4, CLUSTER, progress=interrupt)
    assert len(seen) == 2
    assert found.objectives[:, 0].min() == seen[-1][:, 0].min()


@pytest.mark.parametrize("more", [(), ("--improved",)])
def test_shell_front(more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell prints the front so far."""
    monkeypatch.setattr("heshare.scheduling.genetic.tournament", _after(2))
    from heshare.lab.plus.heshare_plus import PlusSearch

    monkeypatch.setattr(PlusSearch, "_refine", interrupting(PlusSearch._refine, 0))
    done = RUN.invoke(app, ["plan", "--tasks", "4", "--cluster", CLUSTER, "-q", *more])
    assert done.exit_code == 130
    assert "Trade-off" in done.stdout
    assert "the search so far" in done.stderr


def test_pickled() -> None:
    """The exception keeps its result between processes."""
    stop = pickle.loads(pickle.dumps(InterruptedWithResult("2 runs", {"a": 1})))
    assert (stop.text, stop.result, str(stop)) == ("2 runs", {"a": 1}, "")


def _configured() -> Any:
    world = make_instance(mixed_tasks(12), Cluster.parse("2xT4,1xA100"), Toy(demand=DEMANDS))
    settings = Settings(generations=10)
    schemes = search(world, settings, np.random.default_rng(3))
    return configuration.configure(schemes, world, BatchModel(world, Toy(demand=DEMANDS)), settings)


def test_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuring in blocks changes no front."""
    plans, objectives = _configured()
    monkeypatch.setattr(configuration, "MOST_PLACES", 24)
    in_blocks = _configured()
    assert in_blocks[0] == plans
    assert (in_blocks[1] == objectives).all()


@pytest.mark.parametrize("terminal", [True, False])
def test_bar(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a bar appears by itself, after a time."""
    timers: list[Any] = []

    def timer(delay_s: float, call: Callable[[], None]) -> Any:
        timers.append(SimpleNamespace(call=call, started=False, cancel=lambda: None))
        timers[-1].start = lambda: setattr(timers[-1], "started", True)
        return timers[-1]

    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(progress, "Timer", timer)
    monkeypatch.setattr("sys.stderr", stderr)
    with progress.bar("plan", "generation", None) as update:
        update(1, 3)
        assert stderr.getvalue() == "", "nothing is shown of what ends soon"
        assert timers[0].started == terminal
        if terminal:
            timers[0].call()
        update(3, 3)
    assert ("3/3" in stderr.getvalue()) == terminal


def _after(generations: int) -> Any:
    return interrupting(tournament, generations - 1)
