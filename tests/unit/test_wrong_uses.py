"""Wrong uses of `import heshare as hs`: each gets one clear message at the entry, or the right answer.

A row calls with a wrong argument and has a part of the message. Nothing may end in another exception, nothing may be
taken silently for something else, and nothing may hang.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import heshare as hs
from heshare.policies import registry
from heshare.policies.function_policy import policy as function_policy
from heshare.policies.policy import Policy, Start, Traits
from heshare.policies.random_placement import Random
from heshare.scheduling.settings import Settings
from heshare.shared.errors import HeShareError, InputError, PolicyError
from heshare.testing.policy_contract import check_policy
from heshare.world.task import TaskSet
from heshare.world.task_file import read_frame, write_tasks

C = "1xT4,1xA100"
TASKS = hs.task_set(3, seed=0)
FEW = Settings(generations=10)
RESNET = hs.Workload("resnet50", 8)
hsx: Any = hs
"""The package without its types: what is tested is what happens to wrong ones."""


def any_type(value: Any) -> Any:
    return value


def renumbered(new: Callable[[int], Any]) -> list[hs.Task]:
    return [replace(task, id=new(task.id)) for task in TASKS]


def frame(tasks: Iterable[hs.Task] = TASKS) -> pd.DataFrame:
    rows = [(task.id, task.workload.model, task.workload.batch_size, task.iterations, 0.0) for task in tasks]
    return pd.DataFrame(rows, columns=["id", "workload", "batch_size", "iterations", "arrival_s"])


def plan() -> Any:
    return hs.plan(TASKS, C, settings=FEW)


class OneArgument(Policy):
    """A policy whose `decide` takes no view."""

    name = "one-argument"
    traits = Traits(False, False, False)

    def decide(self, event: object) -> list[Any]:  # type: ignore[override]
        return []


def run_function(decide: Any) -> Any:
    try:
        function_policy("wrong-use")(decide)
        return hs.run(TASKS, C, "wrong-use")
    finally:
        registry.unregister("wrong-use")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # Task sets
    "n=0": (lambda: hs.task_set(0), "argument n: found 0"),
    "n=2.5": (lambda: hsx.task_set(2.5), "argument n: found 2.5"),
    "n='20'": (lambda: hsx.task_set("20"), "argument n: found '20'"),
    "load": (lambda: hs.task_set(3, load="heavy"), "one of low, medium, high, mixed"),
    "arrivals": (lambda: hs.task_set(3, arrivals="Poisson"), "a Poisson process is `exponential`"),
    "interval of none": (lambda: hs.task_set(3, interval_s=30), "found 30 with the arrivals 'at_once'"),
    "interval and load": (lambda: hs.task_set(3, arrivals="miso@1", cluster=C, interval_s=9), "found 9 with a load"),
    "interval_s=0": (lambda: hs.task_set(3, arrivals="miso", interval_s=0), "a finite number above zero"),
    "load of no cluster": (lambda: hs.task_set(3, arrivals="miso@0.8"), "miso@0.8 without a cluster"),
    "load of one task": (lambda: hs.task_set(1, arrivals="miso@0.8", cluster=C), "tasks at more than one moment"),
    "at_once@1": (lambda: hs.task_set(3, arrivals="at_once@1", cluster=C), "arrivals at more than one moment"),
    "too few arrivals": (lambda: hs.task_set(3, arrivals=[0, 5]), "found 2 arrivals; expected at least 3"),
    "arrivals back": (lambda: hs.task_set(3, arrivals=[0, 5, 4]), "arrivals in ascending order"),
    "arrivals nan": (lambda: hs.task_set(3, arrivals=[0, math.nan, 4]), "a list of finite seconds"),
    "arrivals=5": (lambda: hsx.task_set(3, arrivals=5), "argument arrivals: found int"),
    "given and load": (lambda: hs.compare(TASKS, C, "random", load="high"), "tasks that are given, and load"),
    "given and arrivals": (lambda: hs.compare(TASKS, C, "random", arrivals=[0, 1, 2]), "tasks that are given, and arr"),
    "given and sizes": (lambda: hs.compare(TASKS, C, "random", batch_sizes=[16]), "tasks that are given, and batch"),
    "duration": (lambda: hs.iterations("resnet50:8", 0), "argument duration_s: found 0"),
    "duration of none": (lambda: hs.iterations("resnet51:8", 60), "Did you mean 'resnet50'"),
    "batch_sizes=(0,)": (lambda: hs.task_set(3, batch_sizes=(0,)), "argument batch_sizes: found 0"),
    "batch_sizes=8": (lambda: hsx.task_set(3, batch_sizes=8), "a list of inference batch sizes, such as"),
    "compare batch_sizes=8": (lambda: hsx.compare(3, C, "random", batch_sizes=8), "argument batch_sizes: found 8"),
    "batch too large": (lambda: hs.plan(hs.task_set(3, batch_sizes=(4096,)), C), "fits no GPU"),
    "duration of an array": (lambda: hsx.iterations("resnet50:8", np.ones(2)), "Give one time, s"),
    "jobs of a frame": (lambda: hsx.import_jobs(frame(), {}), "found an object of DataFrame; expected a CSV file"),
    "limit of a list": (lambda: hs.run(TASKS, C, "random", power_limit=[900]), "limit_w. of each step"),
    # Seeds
    **{
        name: (call, "argument seed: found -1; expected a whole number of at least 0")
        for name, call in (
            ("task_set seed", lambda: hs.task_set(3, seed=-1)),
            ("plan seed", lambda: hs.plan(TASKS, C, seed=-1)),
            ("optimise seed", lambda: hs.optimise(TASKS, C, seed=-1)),
            ("run seed", lambda: hs.run(TASKS, C, "random", seed=-1)),
            ("compare seed", lambda: hs.compare(3, C, "random", seed=-1)),
        )
    },
    "repetition=-1": (lambda: hs.task_set(3, repetition=-1), "argument repetition: found -1"),
    # Workloads and tasks
    "unknown model": (lambda: hs.plan([hs.Task(0, hs.Workload("resnet-50", 8), 9.0)], C), "one of resnet18"),
    "batch_size=7.5": (lambda: hsx.Workload("resnet50", 7.5), "a whole number of at least 1"),
    "workload reversed": (lambda: hsx.Workload(8, "resnet50"), r"Write Workload\('resnet50', 8\)"),
    "iterations nan": (lambda: hs.Task(0, RESNET, math.nan), "a finite number above zero"),
    "iterations '100'": (lambda: hsx.Task(0, RESNET, "100"), "found '100' in task 0; expected numbers for iterations"),
    "arrival nan": (lambda: hs.Task(0, RESNET, 1.0, math.nan), "a time of at least zero"),
    "deadline": (lambda: hs.Task(0, RESNET, 1.0, 5.0, deadline_s=3.0), "a time after its arrival"),
    "priority=-1": (lambda: hs.Task(0, RESNET, 1.0, priority=-1), "a class of at least zero"),
    "gpus=1.5": (lambda: hsx.Task(0, RESNET, 1.0, gpus=1.5), "whole numbers for id, gpus"),
    "id 'a'": (lambda: hsx.Task("a", RESNET, 1.0), "found 'a' in task 'a'"),
    "workload text": (lambda: hsx.Task(0, "resnet50:8", 1.0), r"like Workload\('resnet50', 8\)"),
    # Task sets as arguments
    "optimise: no tasks": (lambda: hs.optimise([], C), "found no task; expected at least one"),
    "run: no tasks": (lambda: hs.run([], C, "random"), "found no task; expected at least one"),
    "compare: no tasks": (lambda: hs.compare([], C, "random", seeds=1), "found no task; expected at least one"),
    **{
        f"plan: {what}": (lambda tasks=tasks: hsx.plan(tasks, C), message)
        for what, tasks, message in (
            ("no tasks", [], "found no task; expected at least one"),
            ("ids from 1", renumbered(lambda number: number + 1), "ids 1, 2, 3; expected each id of 0 to n-1 once"),
            ("4.0", 4.0, "argument tasks: found 4.0"),
            ("0", 0, "found 0; expected a"),
            ("numbers", [1, 2], "found 1 among them; expected tasks"),
            ("a file", "none.csv", "found 'none.csv'; expected tasks.* hs.read_tasks reads a file"),
            ("a number as text", "20", "a number has no quotes"),
            ("a cluster", hs.Cluster.parse(C), "Tasks come first, then the cluster"),
            ("frame without a column", frame().drop(columns="iterations"), "column iterations: found a header without"),
            (
                "frame with a bad cell",
                frame().assign(batch_size=7.5),
                "DataFrame, row 0, column batch_size: found '7.5'",
            ),
            ("empty frame", frame(()), "DataFrame: found no task"),
        )
    },
    "plan reversed": (lambda: hsx.plan(C, TASKS), "Tasks come first, then the cluster"),
    "run reversed": (lambda: hsx.run(C, TASKS), "Tasks come first, then the cluster"),
    "compare reversed": (lambda: hsx.compare(C, 5), "argument cluster: found an object of int"),
    "plan of arrivals": (lambda: hs.plan(hs.task_set(3, arrivals="miso"), C), "this search ignores arrivals"),
    "optimise of arrivals": (
        lambda: hs.optimise(hs.task_set(3, arrivals="miso"), C),
        "this search ignores arrivals",
    ),
    # Clusters
    **{
        f"cluster {cluster!r}": (lambda cluster=cluster: hsx.plan(TASKS, cluster), "argument (cluster|gpu): found")
        for cluster in ("0xT4", "", "4 T4", "4xRTX9000")
    },
    **{
        f"{name} on a list": (call, "text such as 4xT4, or a Cluster")
        for name, call in (
            ("plan", lambda: hsx.plan(TASKS, ["4xT4"])),
            ("run", lambda: hsx.run(TASKS, ["4xT4"], "random")),
            ("compare", lambda: hsx.compare(3, ["4xT4"], "random")),
        )
    },
    # Policies
    **{
        f"policy {name!r}": (lambda name=name: hs.run(TASKS, C, name), message)
        for name, message in (
            ("morack", "Did you mean 'morak'"),
            ("morak(kap=0.7)", "one of its parameters"),
            ("morak(cap=abc)", "expected a number"),
            ("morak(cap=-1)", "argument cap: found -1"),
            ("morak(cap=0.7", "a name with parameters such as"),
        )
    },
    "policy 3": (lambda: hsx.run(TASKS, C, 3), "a policy's name, a Policy, or a Plan"),
    "policy object": (lambda: hsx.run(TASKS, C, object()), "found an object of object"),
    "policy class": (lambda: hsx.run(TASKS, C, OneArgument), r"Pass an object of the class: OneArgument\(...\)"),
    "policy front": (lambda: hsx.run(TASKS, C, plan()), "Choose one of its plans, such as front.trade_off"),
    "plan, other tasks": (lambda: hs.run(hs.task_set(3, seed=9), C, plan().trade_off), "that is not the plan's"),
    "plan, fewer tasks": (lambda: hs.run(hs.task_set(2), C, plan().trade_off), "found 2 tasks"),
    "plan, other cluster": (lambda: hs.run(TASKS, "2xA100", plan().trade_off), "found the cluster 2xA100"),
    "policies=[]": (lambda: hs.compare(2, C, []), "at least one name of a policy"),
    "no module": (lambda: hs.compare(2, C, "no_such:make"), "No module named 'no_such'"),
    "no function": (lambda: hs.compare(2, C, "heshare.api:nothing"), "has no attribute 'nothing'"),
    "no policy of it": (lambda: hs.compare(2, C, ["math:pi"]), "a function or class that returns a policy"),
    "metrics=[f]": (lambda: hsx.compare(2, C, "random", metrics=[len]), "functions of a run by name"),
    "metric of a name": (
        lambda: hs.compare(2, C, "random", seeds=1, metrics={"avg_jct_s": lambda run: 1.0}),
        "found the name avg_jct_s; expected a name not in the results",
    ),
    "metric of text": (
        lambda: hsx.compare(2, C, "random", seeds=1, metrics={"x": lambda run: "1"}),
        "found str from x; expected a function that returns a number",
    ),
    "policies=3": (lambda: hsx.compare(2, C, 3), "at least one name of a policy"),
    "decide with one argument": (lambda: hsx.run(TASKS, C, OneArgument()), "2 arguments: the event and the view"),
    "function with two arguments": (lambda: run_function(lambda event, view: []), "3 arguments: the event, the view"),
    "decide returns None": (lambda: run_function(lambda *_: None), "decide returned None. Return a list of actions"),
    "decide returns an action": (lambda: run_function(lambda *_: Start(0, 0)), "Return a list of actions"),
    "decide returns tuples": (lambda: run_function(lambda *_: [(0, 0)]), "Return Start, SetClock"),
    "decide starts nothing": (lambda: run_function(lambda *_: []), "Start every waiting task"),
    "no such GPU": (lambda: run_function(lambda *_: [Start(0, 7)]), "no GPU 7"),
    "share of 0.5 %": (lambda: run_function(lambda *_: [Start(0, 0, any_type(0.5))]), "Choose one from 1 to 100"),
    # Settings
    "n_jobs=0": (lambda: hs.compare(3, C, "random", n_jobs=0), "argument n_jobs: found 0"),
    "seeds=0": (lambda: hs.compare(3, C, "random", seeds=0), "argument seeds: found 0"),
    "settings": (lambda: hsx.plan(TASKS, C, settings={"solutions": 3}), r"expected Settings\(...\). Import Settings"),
    "Settings of text": (lambda: Settings(population=any_type("x")), "argument population: found x"),
    "too few samples of a front": (lambda: hs.problem(TASKS, C).front(np.zeros((2, 2))), r"shape \(p, 3\)"),
    "no result of a search": (lambda: hs.problem(TASKS, C).front(None), "found NoneType of shape"),
    "a GPU that is not there": (lambda: hs.problem(TASKS, C).front(np.full((1, 3), 9)), "GPU indices from 0 to 1"),
    "watts above the card": (lambda: hs.advise("A100", ["a=per_s:9,sm:5,w:900"]), "1.1 times its limit of 400 W"),
    "contract of a policy": (lambda: check_policy(any_type(lambda event, view: [])), "for a function that returns"),
    "effort": (lambda: hsx.optimise(TASKS, C, effort=3), r"expected SearchSettings\(...\)"),
    "explore": (lambda: hsx.explore(plan().trade_off), r"found an object of Plan; expected a Front. Pass a front"),
    "plan predictor": (lambda: hsx.plan(TASKS, C, predictor="forest"), r"hs.load_predictor\(kind='random-forest'\)"),
    "run predictor": (lambda: hsx.run(TASKS, C, predictor="forest"), r"hs.load_predictor\(kind='random-forest'\)"),
    **{
        f"budget_s={budget!r}": (
            lambda budget=budget: hsx.optimise(TASKS, C, budget_s=budget),
            "finite seconds above zero",
        )
        for budget in (math.nan, 0, "2")
    },
    # Estimates
    **{
        f"estimate {residents!r}": (lambda residents=residents: hsx.estimate("V100", residents), message)
        for residents, message in (
            ("resnet50:8@150", "an MPS percentage from 1 to 100"),
            ("resnet50:0", "a whole number of at least 1"),
            ("resnet50:8@half", "model:batch_size@mps_pct"),
            ([8], "found 8; expected model:batch_size"),
            ([], r"expected workloads such as"),
            ("resnet50:100000", "MiB of memory or more; expected at most 32510 MiB"),
            (["resnet18:1@1"] * 60, "found 60 residents on V100; expected at most 48"),
        )
    },
    "estimate off the clock grid": (lambda: hs.estimate("V100", "resnet50:8", 1000), "nearest are 997 and 1005"),
    "estimate clock text": (lambda: hsx.estimate("V100", "resnet50:8", "1000"), "a clock in MHz"),
    "estimate bf16": (lambda: hs.estimate("V100", "resnet50:8", precision="bf16"), "fp32 or tf32 or fp16"),
    "estimate no GPU": (lambda: hsx.estimate(None, "resnet50:8"), "argument gpu: found None; expected one of T4"),
    "estimate cap": (lambda: hs.estimate("V100", "resnet50:8", power_cap_w=math.nan), "argument power_cap_w"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_use_is_refused_with_one_clear_message(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(HeShareError, match=message) as raised:
        call()
    assert isinstance(raised.value, InputError | PolicyError)
    assert len(str(raised.value)) < 1200


@pytest.mark.parametrize(
    "same",
    [
        lambda folder: hs.task_set(np.int64(3)),
        lambda folder: list(TASKS),
        lambda folder: iter(TASKS),
        lambda folder: reversed(TASKS),
        lambda folder: [replace(task, id=np.int64(task.id)) for task in TASKS],
        lambda folder: frame(),
        lambda folder: frame().assign(gpus=1, widths="", deadline_s=math.inf, epochs=None, priority=np.nan),
        lambda folder: hs.read_tasks(write_tasks(folder / "tasks.csv", TASKS)),
    ],
    ids=["np.int64", "list", "iterator", "reversed", "np.int64 ids", "frame", "wide frame", "file"],
)
def test_a_task_set_in_any_form_is_planned_run_and_compared_alike(same: Callable[[Path], Any], tmp_path: Path) -> None:
    own = hs.run(TASKS, C, "random").summary()["avg_jct_s"]
    assert hs.run(same(tmp_path), C, "random").summary()["avg_jct_s"] == own
    assert hs.compare(same(tmp_path), hs.Cluster.parse(C), "random", seeds=1)["avg_jct_s"].item() == own
    assert hs.plan(same(tmp_path), C, settings=FEW).plans == plan().plans


def test_frame_of_a_task_set_is_read_back_with_every_field() -> None:
    gang = hs.Task(0, RESNET, 2.5, 1.5, gpus=2, widths=(1, 4), priority=2, deadline_s=9.0, epochs=3)
    half = hs.Task(1, replace(RESNET, precision="fp16", engine="tensorrt"), 1 / 3)
    for tasks in ((gang, half), (half, gang), TASKS):
        numbered = TaskSet(replace(task, id=index) for index, task in enumerate(tasks))
        assert read_frame(numbered.to_frame()) == numbered


def test_number_of_tasks_is_drawn_by_plan_optimise_and_run() -> None:
    assert hs.plan(3, C).trade_off.tasks == TASKS
    assert hs.optimise(np.int64(2), C).trade_off.tasks == hs.task_set(2)
    assert hs.run(3, C, "random", repetition=2).tasks == hs.task_set(3, repetition=2)


def test_run_takes_a_name_a_policy_and_a_plan() -> None:
    name = f"heshare:trade-off(generations={FEW.generations})"
    named = hs.run(TASKS, C, name).summary()
    assert hs.run(TASKS, C, registry.make(name)).summary()["avg_jct_s"] == named["avg_jct_s"]
    assert hs.run(TASKS, C, plan().trade_off).summary()["energy_active_j"] == named["energy_active_j"]
    assert hs.run(TASKS, C, Random()).jct_s.tolist() == hs.run(TASKS, C, "random").jct_s.tolist()


def test_compare_takes_one_name_and_estimate_one_resident() -> None:
    pd.testing.assert_frame_equal(
        hs.compare(3, C, "random", seeds=1).drop(columns="planning_s"),
        hs.compare(3, C, ["random"], seeds=1).drop(columns="planning_s"),
    )
    assert hs.estimate("V100", "resnet50:8") == hs.estimate("V100", ["resnet50:8"])


@pytest.fixture
def own_policies() -> Iterator[None]:
    yield
    registry.unregister("cell")


@pytest.mark.usefixtures("own_policies")
def test_register_replaces_a_class_of_a_notebook_whose_cell_is_run_again() -> None:
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
