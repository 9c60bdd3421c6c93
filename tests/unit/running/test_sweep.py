"""Sweeps: killed at any moment and started again, on one process or several or Dask, always the same rows."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor

from heshare.errors import InputError, PlanError
from heshare.policies import registry
from heshare.running import fingerprint
from heshare.running.cells import Cells, key
from heshare.running.compare import WALL_TIME, compare
from heshare.running.draw import draw
from heshare.running.engine import check
from heshare.running.grid import Grid, grid, read_grid
from heshare.running.sweep import sweep
from heshare.testing.toy import ToyPredictor, toy_devices
from heshare.world.cluster import Cluster
from heshare.world.taskfile import write_tasks

sys.path.insert(0, str(Path(__file__).parent))
import sweeping

CELLS = 1000
TOYS: dict[str, Any] = {
    "predictors": ("heshare.testing.toy:ToyPredictor",),
    "devices": ("heshare.testing.toy:toy_devices",),
}
SMALL = Grid(policies=("random", "sched-only"), clusters=("1xT4,1xA100",), tasks=(3,), seeds=2, **TOYS)


def rows(frame: pd.DataFrame) -> str:
    text = frame.drop(columns=list(WALL_TIME)).to_csv(index=False)
    assert text.count("\n") == len(frame) + 1
    return text


def start(folder: Path, log: Path, jobs: int) -> subprocess.Popen[bytes]:
    # To a file: what a killed parent leaves behind holds a pipe open.
    with log.with_suffix(".out").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, sweeping.__file__, str(folder), str(log), str(CELLS), str(jobs)],
            stdout=out,
            env={**os.environ, "PYTHONPATH": str(Path(fingerprint.__file__).parents[2])},
            start_new_session=True,
        )


def kill(process: subprocess.Popen[bytes], log: Path, *, group: bool, moments: random.Random) -> bool:
    """Kill at a random moment, with up to 150 cells begun; False if it was over by then."""
    begun = moments.randint(1, 150)
    while (not log.exists() or log.read_bytes().count(b"\n") < begun) and process.poll() is None:
        sleep(moments.uniform(0.0, 0.004))
    over = process.poll() is not None
    if group:
        with_none_left(process.pid)
    else:
        process.kill()
    process.wait()
    return not over


def test_a_killed_sweep_goes_on_with_no_cell_lost_and_none_computed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, moments, begun, lost, groups = tmp_path / "cells", random.Random(), Counter[str](), 0, []
    # One process; then two of which only the parent dies; then two that die together; at last nobody dies.
    plan = ((1, False), (2, False), (2, True), (1, False), (2, False), (2, False))
    for attempt, (jobs, group) in enumerate(plan):
        log = tmp_path / f"{attempt}.log"
        had = sweeping.kept(folder, CELLS)
        process = start(folder, log, jobs)
        groups.append(process.pid)
        if attempt < len(plan) - 1:
            killed = kill(process, log, group=group, moments=moments)
            lost += killed * (2 if group else int(jobs == 1))
        else:
            assert process.wait() == 0
            found = log.with_suffix(".out").read_text()
        # What a killed parent's own processes still had in their hands is in the log as well.
        assert not had & set(log.read_text().split()), "a finished cell was begun again"
    for log in sorted(tmp_path.glob("*.log")):
        begun.update(log.read_text().split())
    for one in groups:
        with_none_left(one)
    assert len(sweeping.kept(folder, CELLS)) == CELLS == len(begun)
    assert sum(begun.values()) <= CELLS + lost, "only what a killed process was at is begun again"
    monkeypatch.setenv("SWEEP_LOG", str(tmp_path / "whole"))
    assert found == sweeping.sweep(None, CELLS, 1)
    assert len(set(found.splitlines())) == CELLS


def with_none_left(group: int) -> None:
    """End what a killed parent left waiting for work."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_one_process_two_and_dask_give_the_same_bytes(tmp_path: Path) -> None:
    from distributed import LocalCluster

    many = Grid(
        policies=("random",), clusters=("1xT4", "1xT4,1xA100"), tasks=(2,), loads=("low", "high"), seeds=40, **TOYS
    )
    assert len(many) == 160
    one = sweep(many, n_jobs=1)
    assert not one.duplicated(["cluster", "load", "repetition"]).any()
    two = sweep(many, n_jobs=2)
    get_reusable_executor().shutdown(wait=True)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        dask = sweep(many, engine=cluster, folder=tmp_path)
        address = "dask://" + cluster.scheduler_address.removeprefix("tcp://")
        assert rows(sweep(SMALL, engine=address)) == rows(sweep(SMALL))
    assert rows(one) == rows(two) == rows(dask)
    pd.testing.assert_frame_equal(sweep(many, folder=tmp_path), dask, check_exact=True)


def test_a_sweep_is_what_compare_says(tmp_path: Path) -> None:
    def drawn(*, rng: np.random.Generator) -> Any:
        return draw(3, rng=rng, load="low")

    for cluster in ("1xT4,1xA100", "2xV100"):
        plain = compare(
            drawn, Cluster.parse(cluster), SMALL.policies, predictor=ToyPredictor, seed=0, seeds=2, devices=toy_devices
        )
        wide = Grid(SMALL.policies, ("1xT4,1xA100", "2xV100"), (3,), ("high", "low"), seeds=2, **TOYS)
        swept = sweep(wide, folder=tmp_path)
        assert len(swept) == len(wide) == 16
        part = swept[(swept["cluster"] == cluster) & (swept["load"] == "low")].reset_index(drop=True)
        assert rows(part.loc[:, "repetition":]) == rows(plain)


def test_more_policies_and_repetitions_compute_only_what_is_new(tmp_path: Path) -> None:
    first = sweep(Grid(("random",), ("1xT4",), (3,), seeds=1, **TOYS), folder=tmp_path)
    more = sweep(Grid(("sched-only", "random"), ("1xT4",), (3,), seeds=2, **TOYS), folder=tmp_path)
    same = more[(more["policy"] == "random") & (more["repetition"] == 0)].reset_index(drop=True)
    # Wall time would differ, had it been run again.
    pd.testing.assert_frame_equal(same, first, check_exact=True)
    assert len(list(tmp_path.glob("??/*.json"))) == 4


@pytest.mark.parametrize("damage", ["half", "empty", "one digit", "another cell", "no text"])
def test_a_damaged_cell_is_noticed_and_computed_again(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = sweep(SMALL, folder=tmp_path)
    first, second = sorted(tmp_path.glob("??/*.json"))[:2]
    content = first.read_bytes()
    broken = {
        "half": content[: len(content) // 2],
        "empty": b"",
        "one digit": content.replace(b'"events":', b'"events":1', 1),
        "another cell": second.read_bytes(),
        "no text": b"\xff" + content,
    }[damage]
    first.write_bytes(broken)
    with caplog.at_level("WARNING"):
        assert rows(sweep(SMALL, folder=tmp_path)) == rows(before)
    assert first.name in caplog.text
    assert first.read_bytes() != broken
    caplog.clear()
    sweep(SMALL, folder=tmp_path)
    assert not caplog.text


def test_other_code_data_or_tasks_are_other_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(**changes: Any) -> int:
        options = {"policies": ("random",), "clusters": ("1xT4",), "tasks": (str(tasks),), "seeds": 1, **TOYS}
        sweep(grid({**options, **changes}), folder=tmp_path / "cells")
        return len(list((tmp_path / "cells").glob("??/*.json")))

    tasks = write_tasks(tmp_path / "tasks.csv", draw(2, rng=np.random.default_rng(0)))
    assert count() == count() == 1
    assert count(loads="low") == 1, "how tasks would be drawn does not matter to tasks that are given"
    write_tasks(tasks, draw(2, rng=np.random.default_rng(1)))
    assert count() == 2
    assert count(start_costs_s=1.0) == 3
    monkeypatch.setattr(fingerprint, "code", lambda: "another version")
    assert count() == 4


def test_the_fingerprint_covers_code_data_and_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def now() -> str:
        fingerprint.code.cache_clear()
        return fingerprint.code()

    package = tmp_path / "heshare"
    for name in ("errors.py", "files.py", "world/a.py", "running/b.py", "reporting/c.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("one")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/gpus.csv").write_text("one")
    with monkeypatch.context() as patch:
        patch.setattr("heshare.files.PACKAGE", package)
        patch.setenv("HESHARE_ROOT", str(tmp_path))
        seen = [now()]
        for name in ("heshare/errors.py", "heshare/world/a.py", "heshare/running/b.py", "data/gpus.csv"):
            (tmp_path / name).write_text("two")
            seen.append(now())
        (package / "reporting/c.py").write_text("two")
        assert now() == seen[-1], "what only draws makes no result stale"
        patch.setattr(fingerprint, "_version", lambda library: "0")
        seen.append(now())
    assert len(set(seen)) == len(seen)
    now()


def test_a_policy_of_somebody_else_is_known_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "elsewhere_policy.py"
    module.write_text(
        "from heshare.policies.random import Random\nfrom heshare.policies.registry import register\n"
        "class Else(Random):\n    name = 'elsewhere'\nregister('elsewhere', title='Elsewhere')(Else)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    __import__("elsewhere_policy")
    theirs = Grid(("elsewhere",), ("1xT4",), (2,), seeds=1, **TOYS)
    sweep(theirs, folder=tmp_path / "cells")
    module.write_text(module.read_text() + "# changed\n")
    found = sweep(theirs, folder=tmp_path / "cells")
    assert found["title"].tolist() == ["Elsewhere"]
    assert len(list((tmp_path / "cells").glob("??/*.json"))) == 2


def test_a_failing_cell_stops_the_sweep_and_finished_cells_stay(tmp_path: Path) -> None:
    bad = Grid(("random",), ("1xT4",), (2,), draws=("recipe", "heshare.api:task_set"), seeds=2, **TOYS)
    with pytest.raises(TypeError, match="interval_s"):
        sweep(bad, folder=tmp_path)
    assert len(list(tmp_path.glob("??/*.json"))) == 2


def test_what_a_grid_names_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace\.csv"):
        sweep(Grid(("random",), ("1xT4",), (2,), traces=(str(tmp_path / "trace.csv"),), **TOYS))


def test_errors_cross_processes_whole() -> None:
    for kind in (InputError, PlanError):
        error = kind(found="this", expected="that", action="Do it.", file="a.csv", row=3, column="b")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_names_do_not_depend_on_the_order_of_keys() -> None:
    assert key({"a": 1, "b": [2.5]}, "x") == key({"b": [2.5], "a": 1}, "x")
    assert len({key({"a": 1}, "x"), key({"a": 1.0}, "x"), key({"a": 2}, "x"), key({"a": 1}, "y")}) == 4


def test_a_claimed_cell_waits_for_its_owner(tmp_path: Path) -> None:
    name = key({"a": 1}, "x")
    code = (
        "import sys, pathlib\nfrom heshare.running.cells import Cells\nstore = Cells(pathlib.Path(sys.argv[1]))\n"
        "print('ready', flush=True)\nwith store.claim([sys.argv[2]]):\n    print('mine', flush=True)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(fingerprint.__file__).parents[2])}
    words = [sys.executable, "-c", code, str(tmp_path)]
    with Cells(tmp_path).claim([name]):
        other = subprocess.Popen([*words, name], stdout=subprocess.PIPE, env=env)
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        free = subprocess.run([*words, key({"a": 2}, "x")], capture_output=True, env=env, check=True)
        assert b"mine" in free.stdout
        assert other.poll() is None
    assert other.communicate()[0] == b"mine\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polices: random", r"grid\.yaml, column grid: found 'polices'.*Did you mean 'policies'"),
        ("policies: randm", "grid.yaml, column policy: found 'randm'"),
        ("clusters: 1xT4", "column policies"),
        ("policies: random\nclusters: 4yT4", "column cluster"),
        ("policies: random\ntasks: 0", "column tasks: found 0"),
        ("policies: random\nloads: [low, hihg]", "column loads: found 'hihg'"),
        ("policies: random\nseeds: many", "column seeds"),
        ("policies: random\nintervals_s: -1", "column intervals_s"),
        ("policies: random\npredictors: papr", "column predictors"),
        ("policies: random\ndevices: 'no.such:thing'", "found 'no.such:thing'"),
        ("policies: []", "column policies"),
        ("- random", "found a list"),
        ("policies: [", "found no grid"),
    ],
)
def test_a_bad_grid_is_one_message(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_grid(path)


def test_a_grid_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("policies: [random, sched-only]\nclusters: 1xT4\ntasks: [2, 3]\nintervals_s: 30\nseeds: 2\n")
    found = read_grid(path)
    assert found == Grid(("random", "sched-only"), ("1xT4",), (2, 3), intervals_s=(30,), seeds=2)
    assert len(found) == 8


@pytest.mark.parametrize("engine", ["spark", "dask:", "dask://", 3])
def test_no_engine(engine: Any) -> None:
    with pytest.raises(InputError, match="column engine"):
        check(engine)
