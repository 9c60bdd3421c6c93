"""Wrong uses of `import heshare as hs`: each gets one clear message at the entry, or the right answer.

A row calls with a wrong argument and has a part of the message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import heshare as hs
from heshare.lab.sweeps.grid import make_grid, read_grid
from heshare.lab.sweeps.sweep import sweep
from heshare.paper.notebooks import output_folders, parameters
from heshare.policies import registry
from heshare.policies.function_policy import policy as function_policy
from heshare.policies.policy import Policy, Start, Traits
from heshare.policies.random_placement import Random
from heshare.scheduling.settings import Settings
from heshare.shared.errors import InputError, PolicyError
from heshare.testing.policy_contract import check_policy
from heshare.world.task import TaskSet
from heshare.world.task_file import read_frame, write_tasks

C = "1xT4,1xA100"
FEW = Settings(generations=10)
RESNET = hs.Workload("resnet50", 8)
hsx: Any = hs
"""The package without its types: what is tested is what happens to wrong ones."""


def any_type(value: Any) -> Any:
    return value


def frame() -> pd.DataFrame:
    rows = [(task.id, task.workload.model, task.workload.batch_size, task.iterations, 0.0) for task in hs.task_set(3)]
    return pd.DataFrame(rows, columns=["id", "workload", "batch_size", "iterations", "arrival_s"])


def plan() -> Any:
    return hs.plan(3, C, settings=FEW)


class OneArgument(Policy):
    """A policy whose `decide` takes no view."""

    name = "one-argument"
    traits = Traits(False, False, False)

    def decide(self, event: object) -> list[Any]:  # type: ignore[override]
        return []


def with_ticks(tick_s: Any) -> Policy:
    made = Random()
    made.tick_s = tick_s
    return made


def run_function(decide: Any) -> Any:
    try:
        function_policy("wrong-use")(decide)
        return hs.run(3, C, "wrong-use")
    finally:
        registry.unregister("wrong-use")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # Task sets
    "n=0": (lambda: hs.task_set(0), "found 0"),
    "n='20'": (lambda: hsx.task_set("20"), "found '20'"),
    "seed=-1": (lambda: hs.task_set(3, seed=-1), "seed: found -1"),
    "interval at once": (lambda: hs.task_set(3, interval_s=30), "found 30"),
    "interval and load": (lambda: hs.task_set(3, arrivals="miso@1", cluster=C, interval_s=9), "found 9 with a load"),
    "load of no cluster": (lambda: hs.task_set(3, arrivals="miso@0.8"), "without a cluster"),
    "load of one task": (lambda: hs.task_set(1, arrivals="miso@0.8", cluster=C), "more than one moment"),
    "too few arrivals": (lambda: hs.task_set(3, arrivals=[0, 5]), "found 2 arrivals"),
    "arrivals nan": (lambda: hs.task_set(3, arrivals=[0, math.nan, 4]), "finite"),
    "load in per cent": (lambda: hs.task_set(3, arrivals="miso@80", cluster=C), "at most 10"),
    "cap in per cent": (lambda: hsx.run(3, C, "morak(cap=80)"), "0.8 for 80 %"),
    "interval of text": (lambda: hsx.task_set(3, arrivals="miso", interval_s="60"), "above zero"),
    "intervals": (lambda: hsx.task_set(3, arrivals="miso", interval_s=np.ones(3)), "above zero"),
    "trace": (lambda: hsx.task_set(3, trace=5), "trace: found 5"),
    "arrivals=5": (lambda: hsx.task_set(3, arrivals=5), "found int"),
    "batch_sizes=(0,)": (lambda: hs.task_set(3, batch_sizes=(0,)), "batch_sizes: found 0"),
    "batch_sizes=8": (lambda: hsx.task_set(3, batch_sizes=8), "batch sizes"),
    "duration": (lambda: hs.iterations("resnet50:8", 0), "duration_s: found 0"),
    "duration of text": (lambda: hsx.iterations("resnet50:8", "5"), "duration_s: found '?5"),
    "jobs of a frame": (lambda: hsx.import_jobs(frame(), {}), "object of DataFrame"),
    # Workloads and tasks
    "model": (lambda: hs.plan([hs.Task(0, hs.Workload("resnet-50", 8), 9.0)], C), "resnet-50"),
    "workload reversed": (lambda: hsx.Workload(8, "resnet50"), r"Workload\('resnet50', 8\)"),
    "deadline": (lambda: hs.Task(0, RESNET, 1.0, 5.0, deadline_s=3.0), "after its arrival"),
    "gpus=1.5": (lambda: hsx.Task(0, RESNET, 1.0, gpus=1.5), "1.5"),
    "id 'a'": (lambda: hsx.Task("a", RESNET, 1.0), "'a'"),
    "workload text": (lambda: hsx.Task(0, "resnet50:8", 1.0), "resnet50:8"),
    # Task sets and clusters as arguments
    **{
        f"tasks: {what}": (lambda tasks=tasks: hsx.plan(tasks(), C), found)
        for what, tasks, found in (
            ("none", list, "no task"),
            ("ids from 1", lambda: [replace(task, id=task.id + 1) for task in hs.task_set(3)], "ids 1, 2, 3"),
            ("0", lambda: 0, "found 0"),
            ("4.0", lambda: 4.0, "found 4.0"),
            ("a file", lambda: "none.csv", "hs.read_tasks"),
            ("a cluster", lambda: hs.Cluster.parse(C), "Tasks come first"),
            ("frame without a column", lambda: frame().drop(columns="iterations"), "iterations"),
            ("frame with a bad cell", lambda: frame().assign(batch_size=7.5), "row 0, column batch_size: found '7.5'"),
            ("empty frame", lambda: frame()[:0], "no task"),
            (
                "a column twice",
                lambda: pd.concat([frame(), frame()["id"]], axis=1),
                "column id: found the column twice",
            ),
            ("arrivals", lambda: hs.task_set(3, arrivals="miso"), "arrivals"),
            ("too large", lambda: hs.task_set(3, batch_sizes=(4096,)), "fits no GPU"),
        )
    },
    **{
        f"cluster {cluster!r}": (lambda cluster=cluster: hsx.plan(3, cluster), found)
        for cluster, found in (
            ("2xRTX4091", "Did you mean 'RTX-4090'"),
            (["4xT4"], "a Cluster"),
            (5, "object of int"),
        )
    },
    "run reversed": (lambda: hsx.run(C, 3), "Tasks come first"),
    "compare reversed": (lambda: hsx.compare(C, 5), "object of int"),
    # Policies
    **{
        f"policy {name!r}": (lambda name=name: hsx.run(3, C, name() if callable(name) else name), found)
        for name, found in (
            ("HeShare:Trade-off", "Did you mean 'heshare:trade-off'"),
            ("morak(kap=0.7)", "Did you mean 'cap'"),
            ("morak(cap=-1)", "cap: found -1"),
            ("morak(cap=0.7", "parameters"),
            (3, "found 3"),
        )
    },
    "policy object": (lambda: hsx.run(3, C, object()), "object of object"),
    "policy class": (lambda: hsx.run(3, C, OneArgument), r"OneArgument\(...\)"),
    "policy front": (lambda: hsx.run(3, C, plan()), "front.trade_off"),
    "policies=[]": (lambda: hs.compare(2, C, []), "a policy"),
    "no module": (lambda: hs.compare(2, C, "no_such:make"), "no_such"),
    "no function": (lambda: hs.compare(2, C, "heshare.api:nothing"), "nothing"),
    "no policy of it": (lambda: hs.compare(2, C, ["math:pi"]), "returns a policy"),
    "plan, other tasks": (lambda: hs.run(hs.task_set(3, seed=9), C, plan().trade_off), "not the plan's"),
    "plan, fewer tasks": (lambda: hs.run(hs.task_set(2), C, plan().trade_off), "found 2 tasks"),
    "plan, other cluster": (lambda: hs.run(3, "2xA100", plan().trade_off), "2xA100"),
    **{
        f"tick_s={tick_s!r}": (lambda tick_s=tick_s: hs.run(3, C, with_ticks(tick_s)), "a time above 0 s")
        for tick_s in (0, -1, math.nan, math.inf, "60", True)
    },
    "decide with one argument": (lambda: hsx.run(3, C, OneArgument()), "2 arguments"),
    "function with two arguments": (lambda: run_function(lambda event, view: []), "3 arguments"),
    "decide returns None": (lambda: run_function(lambda *_: None), "returned None"),
    "decide returns an action": (lambda: run_function(lambda *_: Start(0, 0)), "list of actions"),
    "decide starts nothing": (lambda: run_function(lambda *_: []), "waiting task"),
    "no such GPU": (lambda: run_function(lambda *_: [Start(0, 7)]), "no GPU 7"),
    "share of 0.5 %": (lambda: run_function(lambda *_: [Start(0, 0, any_type(0.5))]), "1 to 100"),
    "contract of a policy": (lambda: check_policy(any_type(lambda event, view: [])), "a function"),
    # Comparisons
    "given tasks and load": (lambda: hs.compare(hs.task_set(3), C, "random", load="high"), "and load"),
    "given tasks and arrivals": (lambda: hs.compare(hs.task_set(3), C, "random", arrivals=[0, 1, 2]), "and arrivals"),
    "metrics=[f]": (lambda: hsx.compare(2, C, "random", metrics=[len]), "by name"),
    "metric of a column": (
        lambda: hs.compare(2, C, "sjf", seeds=1, metrics={"avg_jct_s": lambda run: 1.0}),
        "avg_jct_s",
    ),
    "metric of text": (
        lambda: hsx.compare(2, C, "random", seeds=1, metrics={"x": lambda run: "1"}),
        "found str from x",
    ),
    "seeds=0": (lambda: hs.compare(3, C, "random", seeds=0), "seeds: found 0"),
    # Settings
    "settings": (lambda: hsx.plan(3, C, settings={"solutions": 3}), "Import Settings"),
    "Settings of text": (lambda: Settings(population=any_type("x")), "population: found x"),
    "effort": (lambda: hsx.optimise(3, C, effort=3), "SearchSettings"),
    "seed of a predictor": (lambda: hsx.load_predictor("1"), "seed: found '1'"),
    **{
        f"max_time_s={value!r}": (lambda value=value: hsx.run(3, C, max_time_s=value), "max_time_s")
        for value in ("1", math.nan, 0)
    },
    "cells": (lambda: hsx.compare(3, C, "fifo", seeds=1, cells=5), "found 5"),
    "grid": (lambda: sweep(any_type(3)), "make_grid"),
    "grid of a frame": (lambda: make_grid("fifo", C, any_type(frame())), "number of tasks"),
    "plan file of a front": (lambda: hsx.write_plan("plan.json", plan()), "front.trade_off"),
    **{
        f"{read.__name__}({path!r})": (lambda read=read, path=path: read(any_type(path)), f"found {path}")
        for read in (hs.read_tasks, hs.read_plan, read_grid)
        for path in (None, 0)
    },
    "predictor": (lambda: hsx.plan(3, C, predictor="forest"), "load_predictor"),
    "power limit": (lambda: hs.run(3, C, "random", power_limit=[900]), "limit_w"),
    "explore": (lambda: hsx.explore(plan().trade_off), "object of Plan"),
    "front of too few columns": (lambda: hs.problem(3, C).front(np.zeros((2, 2))), r"\(p, 3\)"),
    "front of no rows": (lambda: hs.problem(3, C).front(np.zeros((0, 3))), "at least one row"),
    "front of 3": (lambda: hsx.Front.of(3), "at least one Plan"),
    "front of other GPUs": (lambda: hs.problem(3, C).front(np.full((1, 3), 9)), "0 to 1"),
    **{
        f"budget_s={budget!r}": (lambda budget=budget: hsx.optimise(3, C, budget_s=budget), "above zero")
        for budget in (math.nan, 0, "2")
    },
    # Estimates
    **{
        f"estimate {residents!r}": (lambda residents=residents: hsx.estimate("V100", residents), found)
        for residents, found in (
            ("resnet51:8", "Did you mean 'resnet50'"),
            ([8], "found 8"),
            ([], "workloads"),
            ("resnet50:100000", "at most 32510 MiB"),
            (["resnet18:1@1"] * 60, "60 residents"),
            ("vgg19:8@mig-1g", "MIG"),
        )
    },
    "GPU": (lambda: hs.estimate("V10", "resnet50:8"), "Did you mean 'V100'"),
    "clock off the grid": (lambda: hs.estimate("V100", "resnet50:8", 1000), "997 and 1005"),
    "precision": (lambda: hs.estimate("V100", "resnet50:8", precision="bf16"), "fp16"),
    "power cap": (lambda: hs.estimate("V100", "resnet50:8", power_cap_w=math.nan), "power_cap_w"),
    "watts above the card": (lambda: hs.advise("A100", ["a=per_s:9,sm:5,w:900"]), "400 W"),
    # Notebooks and grids
    "notebook": (lambda: parameters.find(["04_comparson"]), "Did you mean '04_comparison'"),
    "output folder": (lambda: output_folders.folder_for("papper"), "Did you mean 'paper'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_use(name: str) -> None:
    """A wrong use raises an error of the package that has what was found, or what to use instead."""
    call, found = REFUSED[name]
    with pytest.raises((InputError, PolicyError), match=found):
        call()


SAME: dict[str, Callable[[TaskSet, Path], Any]] = {
    "number": lambda tasks, folder: np.int64(3),
    "list": lambda tasks, folder: list(tasks),
    "iterator": lambda tasks, folder: iter(tasks),
    "reversed": lambda tasks, folder: reversed(tasks),
    "ids of numpy": lambda tasks, folder: [replace(task, id=np.int64(task.id)) for task in tasks],
    "frame": lambda tasks, folder: frame(),
    "wide frame": lambda tasks, folder: frame().assign(gpus=1, widths="", deadline_s=math.inf, epochs=None),
    "file": lambda tasks, folder: hs.read_tasks(write_tasks(folder / "tasks.csv", tasks)),
}


@pytest.mark.parametrize("form", SAME)
def test_forms_of_tasks(form: str, tmp_path: Path) -> None:
    """A task set in any form is planned, run and compared alike."""
    tasks = hs.task_set(3)

    def same() -> Any:
        return SAME[form](tasks, tmp_path)

    own_s = hs.run(tasks, C, "random").avg_jct_s
    assert hs.run(same(), C, "random").avg_jct_s == own_s
    assert hs.compare(same(), hs.Cluster.parse(C), "random", seeds=1)["avg_jct_s"].item() == own_s
    assert hs.plan(same(), C, settings=FEW).plans == plan().plans


def test_frame_of_tasks() -> None:
    """The frame of a task set is read back with every field."""
    gang = hs.Task(0, RESNET, 2.5, 1.5, gpus=2, widths=(1, 4), priority=2, deadline_s=9.0, epochs=3)
    half = hs.Task(1, replace(RESNET, precision="fp16", engine="tensorrt"), 1 / 3)
    for tasks in ((gang, half), (half, gang), hs.task_set(3)):
        numbered = TaskSet(replace(task, id=index) for index, task in enumerate(tasks))
        assert read_frame(numbered.to_frame()) == numbered


def test_forms_of_policies() -> None:
    """A policy is a name, an object or a plan; `compare` takes one name and `estimate` one resident."""
    name = f"heshare:trade-off(generations={FEW.generations})"
    named = hs.run(3, C, name)
    assert hs.run(3, C, registry.make(name)).avg_jct_s == named.avg_jct_s
    assert hs.run(3, C, plan().trade_off).energy_active_j == named.energy_active_j
    assert hs.run(3, C, Random()).jct_s.tolist() == hs.run(3, C, "random").jct_s.tolist()
    assert hs.run(3, C, "random", repetition=2).tasks == hs.task_set(3, repetition=2)

    one, listed = (hs.compare(3, C, policies, seeds=1) for policies in ("random", ["random"]))
    pd.testing.assert_frame_equal(one.drop(columns="planning_s"), listed.drop(columns="planning_s"))
    assert hs.estimate("V100", "resnet50:8") == hs.estimate("V100", ["resnet50:8"])


@pytest.fixture
def own_policies() -> Iterator[None]:
    yield
    registry.unregister("cell")


@pytest.mark.usefixtures("own_policies")
def test_register_again() -> None:
    """A class of a notebook whose cell is run again replaces the former one; other classes need other names."""

    def cell(module: str, qualified: str = "Mine") -> type:
        made = type(qualified, (Random,), {"__module__": module})
        return registry.register("cell", title="Mine")(made)

    cell("__main__")
    again = cell("__main__")
    assert type(registry.make("cell")) is again
    with pytest.raises(InputError, match="'cell' twice"):
        cell("__main__", "Other")
    with pytest.raises(InputError, match="'cell' twice"):
        cell("elsewhere")
    with pytest.raises(InputError, match="'random' twice"):
        registry.register("random", title="Mine")(again)
