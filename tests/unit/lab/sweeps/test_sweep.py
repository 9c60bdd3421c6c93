"""Sweeps: the same rows from one process, several or Dask, also after any number of kills; grids and cells."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import joblib
import msgspec
import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor

from heshare.devices.task_sizes import draw
from heshare.lab.sweeps import resolve
from heshare.lab.sweeps.grid import Grid, parse_grid, read_grid
from heshare.lab.sweeps.parallel import calls_elsewhere
from heshare.lab.sweeps.sweep import WALL_TIME, sweep
from heshare.policies import registry
from heshare.shared.code_version import code_version
from heshare.shared.errors import InputError, PlanError
from heshare.world.task import Task
from heshare.world.task_file import write_tasks
from heshare.world.workload import Workload

TOYS: dict[str, Any] = {
    "predictors": ("heshare.testing.toy:ToyPredictor",),
    "devices": ("heshare.testing.toy:toy_devices",),
}
SMALL = Grid(policies=("random", "sched-only"), clusters=("1xT4,1xA100",), tasks=(3,), seeds=2, **TOYS)


def csv_rows(frame: pd.DataFrame) -> str:
    text = frame.drop(columns=list(WALL_TIME)).to_csv(index=False)
    assert text.count("\n") == len(frame) + 1
    return text


@pytest.mark.slow
def test_sweep_writes_the_same_bytes_with_one_process_two_and_dask(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    many = Grid(
        policies=("random",), clusters=("1xT4", "1xT4,1xA100"), tasks=(2,), loads=("low", "high"), seeds=3, **TOYS
    )
    assert len(many) == 12
    one = sweep(many, n_jobs=1)
    assert not one.duplicated(["cluster", "load", "repetition"]).any()
    two = sweep(many, n_jobs=2)
    get_reusable_executor().shutdown(wait=True)
    workers = LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None)
    with workers as cluster, Client(cluster), joblib.parallel_config(backend="dask"):
        assert calls_elsewhere()
        dask = sweep(many, folder=tmp_path)
    assert not calls_elsewhere()
    assert csv_rows(one) == csv_rows(two) == csv_rows(dask)
    pd.testing.assert_frame_equal(sweep(many, folder=tmp_path), dask, check_exact=True)


def test_sweep_computes_only_new_policies_and_repetitions(tmp_path: Path) -> None:
    first = sweep(Grid(("random",), ("1xT4",), (3,), seeds=1, **TOYS), folder=tmp_path)
    more = sweep(Grid(("sched-only", "random"), ("1xT4",), (3,), seeds=2, **TOYS), folder=tmp_path)
    same = more[(more["policy"] == "random") & (more["repetition"] == 0)].reset_index(drop=True)
    # Wall time would differ, had it been run again.
    pd.testing.assert_frame_equal(same, first, check_exact=True)
    assert len(list(tmp_path.glob("??/*.json"))) == 4


@pytest.mark.parametrize("damage", ["half", "empty", "one digit", "another cell", "no text"])
def test_sweep_computes_a_damaged_cell_again(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
        assert csv_rows(sweep(SMALL, folder=tmp_path)) == csv_rows(before)
    assert first.name in caplog.text
    assert first.read_bytes() != broken
    caplog.clear()
    sweep(SMALL, folder=tmp_path)
    assert not caplog.text


def test_sweep_computes_new_cells_for_other_code_data_or_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(**changes: Any) -> int:
        options = {"policies": ("random",), "clusters": ("1xT4",), "tasks": (str(tasks),), "seeds": 1, **TOYS}
        sweep(parse_grid({**options, **changes}), folder=tmp_path / "cells")
        return len(list((tmp_path / "cells").glob("??/*.json")))

    tasks = write_tasks(tmp_path / "tasks.csv", draw(2, rng=np.random.default_rng(0)))
    assert count() == count() == 1
    assert count(loads="low") == 1, "how tasks would be drawn does not matter to tasks that are given"
    write_tasks(tasks, draw(2, rng=np.random.default_rng(1)))
    assert count() == 2
    assert count(start_costs_s=1.0) == 3
    monkeypatch.setattr("heshare.lab.sweeps.sweep.code_version", lambda *modules: "another version")
    assert count() == 4


def test_cell_key_depends_on_the_source_of_a_policy_outside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "elsewhere_policy.py"
    module.write_text(
        "from heshare.policies.random_placement import Random\nfrom heshare.policies.registry import register\n"
        "class Else(Random):\n    name = 'elsewhere'\nregister('elsewhere', title='Elsewhere')(Else)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    __import__("elsewhere_policy")
    outside = Grid(("elsewhere",), ("1xT4",), (2,), seeds=1, **TOYS)
    sweep(outside, folder=tmp_path / "cells")
    module.write_text(module.read_text() + "# changed\n")
    code_version.cache_clear()
    frame = sweep(outside, folder=tmp_path / "cells")
    assert frame["title"].tolist() == ["Elsewhere"]
    assert len(list((tmp_path / "cells").glob("??/*.json"))) == 2


def test_sweep_stops_at_a_failing_cell_and_keeps_finished_cells(tmp_path: Path) -> None:
    bad = Grid(("random",), ("1xT4",), (2,), draws=("recipe", "heshare.api:task_set"), seeds=2, **TOYS)
    with pytest.raises(TypeError, match="rng"):
        sweep(bad, folder=tmp_path)
    assert len(list(tmp_path.glob("??/*.json"))) == 2


def test_sweep_refuses_a_missing_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace\.csv"):
        sweep(Grid(("random",), ("1xT4",), (2,), traces=(str(tmp_path / "trace.csv"),), **TOYS))


def test_errors_keep_all_their_attributes_when_pickled() -> None:
    for kind in (InputError, PlanError):
        error = kind(found="this", expected="that", action="Do it.", file="a.csv", row=3, column="b")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_tasks_of_json_are_those_of_task_to_json() -> None:
    training = Task(0, Workload("miso_gnn", 4, phase="training"), 7.0, 1.0, gpus=2, widths=(2, 4), priority=1)
    for task in (training, Task(1, Workload("resnet18", 8, "fp16", "tensorrt"), 2.5, deadline_s=9.0, epochs=3)):
        assert msgspec.convert(json.loads(json.dumps(resolve.task_to_json(task), allow_nan=False)), Task) == task


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
        ("policies: [", "row 1: found no YAML"),
    ],
)
def test_read_grid_refuses_a_bad_grid_with_row_and_column(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_grid(path)


def test_read_grid_reads_values_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("policies: [random, sched-only]\nclusters: 1xT4\ntasks: [2, 3]\nintervals_s: 30\nseeds: 2\n")
    grid = read_grid(path)
    assert grid == Grid(("random", "sched-only"), ("1xT4",), (2, 3), intervals_s=(30,), seeds=2)
    assert len(grid) == 8
