"""One draw: the same number, seed and repetition are the same tasks and the same run at every entry."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.lab.sweeps.grid import make_grid
from heshare.lab.sweeps.sweep import sweep
from heshare.world.arrivals import ARRIVALS, DRAWN
from heshare.world.task_file import read_tasks

CLUSTER = "1xT4,1xA100"
NOT_OF_THE_RUN = {"planning_s", "repetition", "title"}


def command(*words: object) -> dict[str, object]:
    """The JSON that a command prints."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    printed: dict[str, object] = json.loads(done.stdout)
    return printed


def of_the_run(row: dict[str, object]) -> dict[str, object]:
    """A run's numbers without wall time and the columns of a comparison."""
    return {name: value for name, value in row.items() if name not in NOT_OF_THE_RUN}


@settings(max_examples=3)
@given(n=st.integers(1, 5), seed=st.integers(0, 2**32), repetition=st.integers(0, 2))
@pytest.mark.parametrize("policy", ["random", "heshare:trade-off(generations=10)"])
def test_runs(policy: str, n: int, seed: int, repetition: int) -> None:
    """Tasks and runs of a seed are equal at every entry."""
    tasks = hs.task_set(n, seed=seed, repetition=repetition)
    which = ("--seed", seed, "--repetition", repetition)
    own = hs.run(tasks, CLUSTER, policy, seed=seed, repetition=repetition).summary()
    assert of_the_run(hs.run(n, CLUSTER, policy, seed=seed, repetition=repetition).summary()) == of_the_run(own)

    compared = hs.compare(n, CLUSTER, [policy], seed=seed, seeds=repetition + 1)
    assert of_the_run(compared.iloc[-1].to_dict()) == of_the_run(own)
    grid = make_grid(policy, CLUSTER, n, seed=seed, seeds=repetition + 1)
    assert of_the_run(sweep(grid).loc[:, "repetition":].iloc[-1].to_dict()) == of_the_run(own)

    ran = command("run", "--tasks", n, "--cluster", CLUSTER, "--policy", policy, *which)
    assert of_the_run({name: value for name, value in ran.items() if name != "rows"}) == of_the_run(own)
    options = ("--policy", policy, "--seed", seed, "--seeds", repetition + 1)
    rows = command("compare", "--tasks", n, "--cluster", CLUSTER, *options)["rows"]
    assert isinstance(rows, list)
    assert of_the_run(rows[-1]) == of_the_run(own)


@settings(max_examples=2)
@given(n=st.integers(1, 5), seed=st.integers(0, 2**32), repetition=st.integers(0, 2))
def test_plans(n: int, seed: int, repetition: int) -> None:
    """Plans of a seed are equal at every entry."""
    tasks = hs.task_set(n, seed=seed, repetition=repetition)
    front = hs.plan(tasks, CLUSTER, seed=seed, repetition=repetition)
    again = hs.plan(n, CLUSTER, seed=seed, repetition=repetition)
    assert again.plans == front.plans
    released = hs.run(tasks, CLUSTER, front.trade_off).summary()
    planned = hs.run(tasks, CLUSTER, "heshare:trade-off", seed=seed, repetition=repetition).summary()
    differ = ("policy", "predictor_calls", "planning_s")
    assert all(released[name] == planned[name] for name in planned if name not in differ)
    with TemporaryDirectory() as folder:
        which = ("--seed", seed, "--repetition", repetition)
        command("plan", "--tasks", n, "--cluster", CLUSTER, *which, "--out", folder)
        assert read_tasks(Path(folder) / "tasks.csv") == tasks
        assert hs.read_plan(Path(folder) / "plan-trade-off.json") == front.trade_off


@settings(max_examples=10)
@given(n=st.integers(1, 5), seed=st.integers(0, 2**32), arrivals=st.sampled_from(ARRIVALS))
def test_compare(n: int, seed: int, arrivals: str) -> None:
    """How tasks are drawn is the same in task set and compare."""
    drawn = {"load": "high", "arrivals": arrivals, "batch_sizes": [2, 16]}
    drawn |= {"interval_s": 30} if arrivals in DRAWN else {}
    tasks = hs.task_set(n, seed=seed, **drawn)
    compared = hs.compare(n, CLUSTER, "random", seed=seed, seeds=1, **drawn)
    own = hs.run(tasks, CLUSTER, "random", seed=seed).summary()
    assert of_the_run(compared.iloc[0].to_dict()) == of_the_run(own)
