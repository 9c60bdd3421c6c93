"""Repetitions of a sweep: policies are paired, seeded, and independent of each other and of the number of processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from heshare.lab.sweeps.grid import make_grid
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.sweep import WALL_TIME, Scenario, repetition, sweep
from heshare.policies import registry
from heshare.testing.toy import ToyPredictor, toy_devices
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTER = Cluster.parse("2xT4,A100")
TASKS = tuple(Task(index, Workload("resnet18", 4), 10.0 * (1 + index)) for index in range(6))
POLICIES = ("random", "sched-only", "heshare:trade-off")


def draw(n: int, *, rng: np.random.Generator, **_: Any) -> list[Task]:
    return [Task(index, Workload("resnet18", 4), float(rng.integers(1, 100))) for index in range(n)]


def rows(policies: tuple[str, ...] = POLICIES, *, n_jobs: int = 1, **options: Any) -> pd.DataFrame:
    values: dict[str, Any] = {
        "clusters": (CLUSTER,),
        "tasks": (6,),
        "draws": (f"{__name__}:draw",),
        "predictors": ("heshare.testing.toy:ToyPredictor",),
        "devices": ("heshare.testing.toy:toy_devices",),
        "seed": 3,
        "seeds": 2,
    }
    return sweep(make_grid(policies, **{**values, **options}), n_jobs=n_jobs).loc[:, "repetition":]


def without_wall_time(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=list(WALL_TIME))


def test_rows() -> None:
    """A sweep has one row for each repetition and policy."""
    frame = rows()
    assert frame["repetition"].tolist() == [0, 0, 0, 1, 1, 1]
    assert frame["title"].tolist() == ["Random", "Sched-only", "Trade-off"] * 2
    assert frame.columns[-1] == "planning_s"
    np.testing.assert_allclose(frame["avg_jct_s"], frame["avg_waiting_s"] + frame["avg_execution_s"])
    assert (frame["energy_active_j"] <= frame["energy_cluster_j"] * (1 + 1e-12)).all()
    assert (frame["provenance"] == "emulated").all()


def test_repetitions() -> None:
    """The rows of a sweep are those of its repetitions."""
    frame = without_wall_time(rows())
    scenario = Scenario({}, CLUSTER, lambda rng: draw(6, rng=rng), ToyPredictor, toy_devices)
    expected = [
        {"repetition": number, "policy": run.policy, "title": registry.title(run.policy), **run.summary()}
        for number in range(2)
        for run in repetition(scenario, map(registry.make, POLICIES), Repetition(number, 3))
    ]
    pd.testing.assert_frame_equal(frame, without_wall_time(pd.DataFrame(expected)), check_exact=True)


def test_other_policies() -> None:
    """The row of a policy does not depend on the other policies."""
    alone = rows(("heshare:trade-off",))
    beside = rows(("heshare:en-opt", "random", "heshare:trade-off"))
    beside = beside[beside["policy"] == "heshare:trade-off"].reset_index(drop=True)
    pd.testing.assert_frame_equal(without_wall_time(alone), without_wall_time(beside), check_exact=True)


def test_given_tasks() -> None:
    """All attributes of given tasks are kept."""
    plain = rows(("fifo",), tasks=(TASKS,), seeds=1)
    gang = (
        Task(0, Workload("resnet18", 4), 10.0, gpus=3, widths=(3,), priority=2, epochs=4),
        *TASKS[1:],
    )
    wide = rows(("fifo",), tasks=(gang,), seeds=1)
    assert wide["energy_active_j"].item() != plain["energy_active_j"].item()
