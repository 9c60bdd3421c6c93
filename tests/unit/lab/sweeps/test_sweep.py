"""Sweeps: the same rows from one process, several or Dask, also after any number of kills; grids and cells."""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor

from heshare.cli.compare_command import medians
from heshare.devices.task_sizes import draw
from heshare.lab.sweeps import cell_cache
from heshare.lab.sweeps.grid import AXES, LABELS, make_grid, parse_grid, read_grid
from heshare.lab.sweeps.paired_changes import changes
from heshare.lab.sweeps.sweep import WALL_TIME, sweep
from heshare.policies import registry
from heshare.shared.disk_cache import NotCachedWarning
from heshare.shared.errors import InputError
from heshare.shared.files import sha256
from heshare.testing.toy import ToyPredictor, toy_devices
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task_file import write_tasks

TOYS: dict[str, Any] = {
    "predictors": ("heshare.testing.toy:ToyPredictor",),
    "devices": ("heshare.testing.toy:toy_devices",),
}
SMALL = make_grid(["random", "sched-only"], "1xT4,1xA100", 3, seeds=2, **TOYS)


def csv_rows(frame: pd.DataFrame) -> str:
    text = frame.drop(columns=list(WALL_TIME)).to_csv(index=False)
    assert text.count("\n") == len(frame) + 1
    return text


def count(folder: Path) -> int:
    return len(list(folder.glob("??/*.json")))


@pytest.mark.slow
def test_processes_and_dask(tmp_path: Path, kept_cells: None) -> None:
    """Rows are the same with one process, two processes and two workers of Dask."""
    from distributed import Client, LocalCluster

    many = make_grid("random", ["1xT4", "1xT4,1xA100"], 2, loads=["low", "high"], seeds=3, **TOYS)
    assert len(many) == 12
    one = sweep(many, n_jobs=1)
    assert not one.duplicated(["cluster", "load", "repetition"]).any()
    two = sweep(many, n_jobs=2)
    get_reusable_executor().shutdown(wait=True)
    workers = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with workers as cluster, Client(cluster), joblib.parallel_config(backend="dask"):
        dask = sweep(many, folder=tmp_path)
    assert csv_rows(one) == csv_rows(two) == csv_rows(dask)
    pd.testing.assert_frame_equal(sweep(many, folder=tmp_path), dask, check_exact=True)


def test_new_cells(tmp_path: Path, kept_cells: None) -> None:
    """Only new policies and repetitions are run."""
    first = sweep(make_grid("random", "1xT4", 3, seeds=1, **TOYS), folder=tmp_path)
    more = sweep(make_grid(["sched-only", "random"], "1xT4", 3, seeds=2, **TOYS), folder=tmp_path)
    same = more[(more["policy"] == "random") & (more["repetition"] == 0)].reset_index(drop=True)
    # Wall time would differ, had it been run again.
    pd.testing.assert_frame_equal(same, first, check_exact=True)
    assert count(tmp_path) == 4


@pytest.mark.parametrize("damage", ["half", "empty", "another file", "no text"])
def test_damaged_cell(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, kept_cells: None) -> None:
    """A damaged cell is run again."""
    before = sweep(SMALL, folder=tmp_path)
    first = min(tmp_path.glob("??/*.json"))
    content = first.read_bytes()
    broken = {
        "half": content[: len(content) // 2],
        "empty": b"",
        "another file": b"[1, 2]",
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


def test_changed_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_cells: None) -> None:
    """Another version or other objects are new cells."""

    def count_after(**changes: Any) -> int:
        options = {"policies": "random", "clusters": "1xT4", "tasks": str(tasks), "seeds": 1, **TOYS}
        sweep(parse_grid({**options, **changes}), folder=tmp_path / "cells")
        return count(tmp_path / "cells")

    tasks = write_tasks(tmp_path / "tasks.csv", draw(2, rng=np.random.default_rng(0)))
    assert count_after() == count_after() == 1
    assert count_after(loads="low") == 1, "how tasks would be drawn does not matter to tasks that are given"
    write_tasks(tasks, draw(2, rng=np.random.default_rng(1)))
    assert count_after() == 2
    assert count_after(start_costs_s=1.0) == 3
    assert count_after(predictors="truth") == 4
    assert count_after(power_limit=500) == 5
    assert count_after(policies="random:all-at-once") == 6
    monkeypatch.setattr("heshare.lab.sweeps.sweep.package_version", lambda: "another version")
    assert count_after() == 7


def test_descriptions() -> None:
    """Every policy has a description of its own."""
    described = {name: cell_cache.described(registry.make(name)) for name in registry.policies(variants=True)}
    again = {name: cell_cache.described(registry.make(name)) for name in described}
    assert again == described
    assert len(set(described.values())) == len(described)
    assert not [name for name, text in described.items() if " at 0x" in text]


def test_description_of_function() -> None:
    """The description of a function has what it holds and the hash of its file."""

    def limit(value: float) -> Any:
        def above(run: Any) -> bool:
            return bool(run > value)

        return above

    texts = [cell_cache.described(made) for made in (limit(1.0), limit(2.0), partial(limit, 1.0))]
    assert len(set(texts)) == 3
    assert all(sha256(__file__) in text for text in texts)


def test_unwritable_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_cells: None) -> None:
    """A full disk costs the cache, not the results; a folder that is none is refused before the runs."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    whole = sweep(SMALL)
    monkeypatch.setattr("heshare.shared.files.write_text", full)
    with pytest.warns(NotCachedWarning, match=rf"{tmp_path} \(No space left"):
        assert csv_rows(sweep(SMALL, folder=tmp_path)) == csv_rows(whole)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cells"):
        sweep(SMALL, folder=tmp_path / "file")


def test_failing_cell(tmp_path: Path, kept_cells: None) -> None:
    """A failing cell ends the sweep, and finished cells are kept."""
    bad = make_grid("random", "1xT4", 2, draws=["recipe", "heshare.api:task_set"], seeds=2, **TOYS)
    with pytest.raises(TypeError, match="rng"):
        sweep(bad, folder=tmp_path)
    assert count(tmp_path) == 2


VARIED: dict[str, tuple[Any, Any]] = {
    "clusters": ("1xT4", Cluster((replace(gpu("T4"), memory_mib=8000.0),))),
    "tasks": (tuple(draw(2, rng=np.random.default_rng(1))), tuple(draw(2, rng=np.random.default_rng(2)))),
    "loads": ("low", "high"),
    "arrivals": ([0, 5], [0, 50]),
    "intervals_s": (30, 60),
    "predictors": (ToyPredictor(), ToyPredictor()),
    "devices": (TOYS["devices"][0], toy_devices),
    "draws": ("recipe", draw),
    "traces": ("shipped", "trace.csv"),
    "start_costs_s": (0, 5),
}


@pytest.mark.parametrize("name", VARIED)
def test_labels(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever varies, by name or as objects, is a column by which medians and changes are separate."""
    monkeypatch.chdir(tmp_path)
    jobs = "".join(f"{number},2020-09-01 00:0{number}:00,{300 * number},1\n" for number in range(1, 9))
    (tmp_path / "trace.csv").write_text(f"job_id,submit_time,duration_s,gpu_num\n{jobs}")
    values = {"clusters": "1xT4", "tasks": 2, **{key: value[0] for key, value in TOYS.items()}}

    table = sweep(make_grid(["fifo", "sjf"], **{**values, name: list(VARIED[name])}, seeds=1))
    assert len(table) == 4
    assert not table.duplicated([*(axis for axis in AXES if axis in table), "policy"]).any()
    assert len(medians(table)) == 4
    assert len(changes(table, "fifo", "sjf", "avg_jct_s")) == 2


def test_every_label() -> None:
    """All that a grid varies is tried above."""
    assert {*VARIED} == {"clusters", "tasks", *LABELS}
    assert set(AXES) == {"cluster", "task_set", "tasks", *LABELS.values()}


@pytest.mark.parametrize("name", [*VARIED, "policies"])
def test_value_twice(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value twice would count double, and is refused."""
    value = VARIED[name][0] if name in VARIED else "sjf"
    for each in (value, registry.make("sjf") if name == "policies" else value):
        with pytest.raises(InputError, match=rf"{name}.* twice"):
            make_grid(**{"policies": "fifo", "tasks": 2, name: [each, each]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polices: random", "Did you mean 'policies'"),
        ("policies: randm", "'randm'"),
        ("clusters: 1xT4", "column policies"),
        ("policies: random\nclusters: 4yT4", "column cluster"),
        ("policies: random\ntasks: 0", "found 0"),
        ("policies: random\nloads: [low, hihg]", "'hihg'"),
        ("policies: random\nseeds: many", "column seeds"),
        ("policies: random\nintervals_s: -1", "intervals_s"),
        ("policies: random\npredictors: papr", "predictors"),
        ("policies: random\npredictors: 3", "predictors: found 3|column predictors"),
        ("policies: random\nstart_costs_s: 1e308", "start_costs_s"),
        ("policies: random\ntasks: 010\nloads: [low, low]", "'low' twice"),
        ("policies: random\ndevices: 'no.such:thing'", "no.such:thing"),
        ("policies: random\ntraces: none.csv", "none"),
        ("policies: []", "column policies"),
        ("- random", "a list"),
        ("policies: [", "row 1"),
        ("policies: random\nseeds: 2\nseeds: 3", "row 3"),
    ],
)
def test_bad_grid(text: str, message: str, tmp_path: Path) -> None:
    """A bad grid is refused with its row or column."""
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_grid(path)


def test_read_grid(tmp_path: Path) -> None:
    """`read_grid` reads values and lists."""
    path = tmp_path / "grid.yaml"
    path.write_text("policies: [random, sched-only]\nclusters: 1xT4\ntasks: [2, 3]\nintervals_s: 30\nseeds: 2\n")
    grid = read_grid(path)
    assert list(grid.policies) == ["random", "sched-only"]
    assert [(str(each.cluster), each.labels["interval_s"]) for each in grid.scenarios] == [("1xT4", 30.0)] * 2
    assert len(grid) == 8
