"""Arrivals: their kinds, traces, and loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import heshare as hs
from heshare.devices.task_sizes import at_load, offered_load
from heshare.lab.sweeps.grid import make_grid, read_grid
from heshare.lab.sweeps.sweep import sweep
from heshare.shared.errors import InputError
from heshare.world.arrivals import arrivals_s, split_load

CLUSTER = hs.Cluster.parse("2xT4,1xA100")


def test_mean_interval() -> None:
    """Arrivals have the mean interval of their kind."""
    rng = np.random.default_rng(0)
    assert arrivals_s(5, rng=rng).tolist() == [0.0] * 5
    miso = arrivals_s(3000, rng=rng, arrivals="miso", interval_s=60.0)
    assert (miso == miso.astype(int)).all()
    steps = np.diff(miso)
    assert steps.mean() == pytest.approx(60.0, rel=0.02)
    assert steps.var() == pytest.approx(60.0, rel=0.1)
    front = np.diff(arrivals_s(3000, rng=rng, arrivals="front_loaded", interval_s=60.0))
    assert front[:999].mean() == pytest.approx(30.0, rel=0.03)
    assert front[1000:].mean() == pytest.approx(60.0, rel=0.02)
    with pytest.raises(InputError, match="`exponential`"):
        arrivals_s(6, rng=rng, arrivals="poisson")


def test_list_or_file(tmp_path: Path) -> None:
    """Arrivals are those of a list or of a file."""
    own, jobs = tmp_path / "own.csv", tmp_path / "jobs.csv"
    own.write_text("arrival_s,user\n0,a\n2.5,b\n2.5,c\n9,d\n")
    lines = [f"{i},2020-09-01 00:00:0{second},300,1" for i, second in enumerate((1, 3, 4, 9))]
    jobs.write_text("\n".join(["job_id,submit_time,duration_s,gpu_num", *lines]))
    for arrivals, expected in (
        ((0, 2.5, 2.5, 9), [0, 2.5, 2.5]),
        (np.array([4.0, 5.0, 6.0]), [4, 5, 6]),
        (own, [0, 2.5, 2.5]),
        (str(jobs), [0, 2, 3]),
    ):
        assert [task.arrival_s for task in hs.task_set(3, arrivals=arrivals)] == expected
    compared = hs.compare(3, CLUSTER, "sjf", seeds=1, arrivals=own)
    assert compared["avg_jct_s"].tolist() == [hs.run(hs.task_set(3, arrivals=own), CLUSTER, "sjf").avg_jct_s]


@pytest.mark.parametrize(("arrivals", "load"), [("exponential", 0.3), ("miso", 1.2), ("front_loaded", 0.3)])
def test_load(arrivals: str, load: float) -> None:
    """A load is the rate of arrivals over that of the cluster."""
    tasks = hs.task_set(30, arrivals=f"{arrivals}@{load}", cluster=CLUSTER)
    assert offered_load(tasks, CLUSTER) == pytest.approx(load)
    drawn = hs.task_set(30, arrivals=arrivals)
    assert at_load(drawn, CLUSTER, load) == tuple(tasks)
    alone_s = [[task.iterations / hs.iterations(task.workload, 1.0, gpu) for task in drawn] for gpu in CLUSTER.gpus]
    rate = sum(1 / np.mean(times_s) for times_s in alone_s)
    span_s = drawn[-1].arrival_s - drawn[0].arrival_s
    assert offered_load(drawn, CLUSTER) == pytest.approx(29 / span_s / rate)


def test_notation(tmp_path: Path) -> None:
    """The notation of a load leaves other texts alone."""
    assert split_load("exponential@0.8") == ("exponential", 0.8)
    assert split_load("user@host.csv") == ("user@host.csv", None)
    odd = tmp_path / "trace@2"
    odd.write_text("arrival_s\n0\n")
    assert split_load(str(odd)) == (str(odd), None)


def test_grids(tmp_path: Path, kept_cells: None) -> None:
    """Grids take arrivals with loads, files and seconds."""
    trace, grid = tmp_path / "trace.csv", tmp_path / "grid.yaml"
    trace.write_text("arrival_s\n0\n40\n")
    text = f"arrivals: [exponential@0.8, {trace}, {trace}@0.5, [0, 40]]\ntasks: 2\nseeds: 1\nclusters: 1xA100\n"
    grid.write_text(f"policies: sjf\n{text}")
    cells = tmp_path / "cells"
    table = sweep(read_grid(grid), folder=cells)
    assert table["arrivals"].tolist()[::3] == ["exponential@0.8", "given"]
    assert table["avg_jct_s"][1] == table["avg_jct_s"][3] != table["avg_jct_s"][2]
    trace.write_text("arrival_s\n0\n9\n")
    assert sweep(read_grid(grid), folder=cells)["avg_jct_s"][1] != table["avg_jct_s"][1]
    with pytest.raises(InputError, match="one of at_once, exponential, miso"):
        make_grid("sjf", arrivals="none.csv")


def test_iterations() -> None:
    """Iterations are a duration over the time alone."""
    whole = hs.estimate("A100", ["resnet50:8"])
    assert hs.iterations("resnet50:8", 60.0) == pytest.approx(60.0 / whole.tasks[0].time_s)
    assert hs.iterations(hs.Workload("resnet50", 8), 60.0, "T4") < hs.iterations("resnet50:8", 60.0)
