"""`heshare plan`, `estimate` and `list`: plans of a task set, estimates of the device model, lists of known names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated

import pandas as pd
import typer

from heshare import api, device_query
from heshare.cli import options
from heshare.cli.json_output import print_json
from heshare.cli.results import results_folder
from heshare.devices.uncertainty import Uncertainty
from heshare.lab import listings
from heshare.lab.plus.lower_bound import BOUND_TASKS, bound_along
from heshare.lab.sweeps.plan_file import write_plan
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.systems.shared.mps_or_time_slices import limit_note
from heshare.paper.provenance.answers import answer
from heshare.paper.provenance.results_folder import ResultsFolder
from heshare.paper.tables import to_csv
from heshare.scheduling.front import Front
from heshare.shared import files
from heshare.shared.errors import require
from heshare.world import catalogue
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_file import write_tasks
from heshare.world.workload import DEFAULT_PRECISION

_CHOICES = ("trade-off", "en-opt", "jct-opt")
_FILES = ("front.csv", "tasks.csv", *(f"plan-{name}.{end}" for name in _CHOICES for end in ("csv", "json")))
_BOUND_TOLERANCE = 1e-3
"""Tolerance of the bound from the linear program's value: gaps are at most 0.1 points larger, in half the time."""


def estimate(
    gpu: Annotated[
        str | None, typer.Argument(help="A GPU, such as T4, V100, V100-SXM2, A100.", autocompletion=options.gpu_names)
    ] = None,
    residents: Annotated[
        list[str] | None,
        typer.Argument(help="Workloads on it, such as resnet50:16@50 vgg19:8@50.", autocompletion=options.model_names),
    ] = None,
    sm_mhz: Annotated[int | None, typer.Option(help="SM clock, MHz; the GPU's default unless given.")] = None,
    precision: Annotated[str, typer.Option(help=options.PRECISION_HELP)] = DEFAULT_PRECISION,
    engine: Annotated[str, typer.Option(help="eager, or tensorrt (no host floor).")] = "eager",
    grid: Annotated[
        Path | None,
        typer.Option(help="Instead: a CSV file of queries: gpu, residents, sm_mhz, ..."),
    ] = None,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Estimate time, power and clock of workloads that share a GPU, by the device model.

    A workload is written model:inference_batch_size@mps_percentage; time_s is the time of an iteration. Time slices and
    MIG instances are written resnet50:16@time-slice and resnet50:16@mig-3g, training workloads eaco_vgg16-train:32.
    Low and high are the ends of the 90 % interval in any framework; inside one framework it is +- uncertainty_inside.
    The basis of a time without rows of its network on this GPU says what is missing, whether the host takes longer than
    the GPU, and the part of the peak rate where that is more than half.
    With --grid, answers.csv and run.json (commit, and hashes of queries, data and answers) are written to --out.
    """
    if grid is not None:
        require("--grid", repr(gpu), gpu is None, "no GPU together with a table of queries", "Leave one of them out.")
        require("--out", "no folder", out is not None, "a folder for the answers", "Add --out build/answers.")
        with options.working_line("estimate", quiet=False):
            number, path = answer(grid, out or Path())
        typer.echo(f"{number} queries answered: {path}")
        return
    require("gpu", "no GPU", gpu is not None, "a GPU and what runs on it, or --grid FILE", "Write A100 resnet50:8.")
    result = device_query.estimate(gpu or "", residents or (), sm_mhz=sm_mhz, precision=precision, engine=engine)
    parsed = [catalogue.resident(text, precision=precision, engine=engine) for text in residents or ()]
    if note := limit_note(result.gpu, parsed, sm_mhz):
        typer.echo(f"heshare: {note}", err=True)
    power = _interval("power", "w", result.power_w, result.power_uncertainty_parts)
    power["power_high_w"] = min(power["power_high_w"], catalogue.gpu(result.gpu).tdp_w)  # the GPU enforces its limit
    tasks = [{**asdict(task), **_interval("time", "s", task.time_s, task.uncertainty_parts)} for task in result.tasks]
    if json:
        print_json({**asdict(result), **power, "tasks": tasks})
        return
    frame = pd.DataFrame(tasks).drop(columns=["uncertainty_parts", "basis"])
    values = {"gpu": result.gpu, "sm_mhz": result.sm_mhz, "power_w": result.power_w, **power}
    values |= {f"basis of {task.workload}:{task.batch_size}": task.basis for task in result.tasks if task.basis}
    options.print_frame(frame, False, values)


def _interval(quantity: str, unit: str, value: float, parts: Uncertainty) -> dict[str, float]:
    low, high = parts.interval(value)
    name = "uncertainty" if quantity == "time" else f"{quantity}_uncertainty"
    return {
        f"{quantity}_low_{unit}": low,
        f"{quantity}_high_{unit}": high,
        name: parts.total,
        f"{name}_inside": parts.within_framework,
    }


def plan(
    context: typer.Context,
    cluster: options.ClusterText = options.PAPER_CLUSTER,
    tasks: options.TasksText = "60",
    load: options.Load = "mixed",
    arrivals: options.Arrivals = "at_once",
    trace: options.Trace = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    repetition: options.RepetitionNumber = 0,
    improved: Annotated[bool, typer.Option("--improved", help="Search near the optimum instead (HeShare+).")] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="With --improved: time budget of the search, such as 30s or 2m (a number: seconds)."),
    ] = None,
    bound: Annotated[
        bool | None,
        typer.Option(
            "--bound/--no-bound",
            help="With --improved: prove a lower bound, and print each plan's gap to it; by default for up to 60 tasks "
            "and without a budget, since it takes 3 to 10 s.",
        ),
    ] = None,
    out: options.Out = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Plan a task set with HeShare: print its Pareto front and the three plans named in the paper.

    --out writes the front, the tasks, each of the three plans as a table and as a file that `heshare run --plan` runs,
    and run.json, what made them. Tasks that arrive later are refused, since the search ignores arrivals. Ctrl-C prints
    the front so far.
    """
    start_s = perf_counter()
    _check_improved_options(improved, budget, bound)
    until_s = None if budget is None else start_s + options.parse_duration_s(budget)
    gpus = Cluster.parse(cluster)
    to_plan = options.task_set(tasks, Repetition(repetition, seed), load=load, arrivals=arrivals, trace=trace)
    predictor = options.predictor_factory(profiles)()
    shows = options.shows_bar(quiet)
    folder = results_folder(context, out, _FILES)

    with options.working_line("plan", quiet), options.interruption() as stopped:
        if improved:
            front = api.optimise(
                to_plan,
                gpus,
                seed=seed,
                repetition=repetition,
                budget_s=None if until_s is None else max(1e-3, until_s - perf_counter()),
                predictor=predictor,
                progress=shows,
            )
        else:
            front = api.plan(to_plan, gpus, seed=seed, repetition=repetition, predictor=predictor, progress=shows)

        frame = front.to_frame()
        no_gap = _gap_note(improved, bound, len(to_plan), budget is not None or bool(stopped))
        if improved and not no_gap:
            # The bound is for the batches and clocks that the improved search may choose.
            frame["gap_pct"] = bound_along(front, predictor, tolerance=_BOUND_TOLERANCE).gap_pct(front.objectives)

    if folder is not None:
        _write(folder, frame, front, to_plan)
    if json:
        more = {"cluster": str(gpus), "tasks": len(to_plan), "predictor_rows": front.predictor_rows, **no_gap}
        options.print_frame(frame, True, more)
    else:
        named = frame[frame["choice"] != ""].reset_index(drop=True)
        columns = [name for name in ("choice", "energy_j", "jct_s", "gap_pct") if name in named]
        counts = {"plans": len(front), "predictor_rows": front.predictor_rows, **no_gap}
        options.print_frame(named[columns], False, counts)
    if stopped:
        raise KeyboardInterrupt(stopped[0].removeprefix("interrupted: "))


def _write(folder: ResultsFolder, frame: pd.DataFrame, front: Front, tasks: Sequence[Task]) -> None:
    writers: dict[str, Callable[[Path], object]] = {
        "front.csv": partial(files.write_text, text=to_csv(frame)),
        "tasks.csv": partial(write_tasks, tasks=tasks),
    }
    for name, chosen in zip(_CHOICES, (front.trade_off, front.en_opt, front.jct_opt), strict=True):
        writers[f"plan-{name}.csv"] = partial(files.write_text, text=to_csv(chosen.to_frame()))
        writers[f"plan-{name}.json"] = partial(write_plan, plan=chosen)
    folder.write(writers)


def _gap_note(improved: bool, bound: bool | None, tasks: int, hurried: bool) -> dict[str, str]:
    if not improved or bound:
        return {}
    if bound is None and not hurried and tasks <= BOUND_TASKS:
        return {}
    reason = "--no-bound" if bound is False else "no time for it" if hurried else f"more than {BOUND_TASKS} tasks"
    return {"gap": f"not proven ({reason}); --bound proves it"}


def _check_improved_options(improved: bool, budget: str | None, bound: bool | None) -> None:
    action = "Add --improved: HeShare as published searches a fixed number of generations."
    require("--budget", "a budget without --improved", improved or budget is None, "both", action)
    if budget is not None:
        options.parse_duration_s(budget)
    action = "Add --improved: the bound holds for the batches and clocks that it may choose."
    require("--bound", "--bound or --no-bound without --improved", improved or bound is None, "both", action)


class Kind(StrEnum):
    """Choices of `heshare list`."""

    POLICIES = "policies"
    GPUS = "gpus"
    WORKLOADS = "workloads"


def list_names(what: Annotated[Kind, typer.Argument(help="What to list.")], json: options.Json = False) -> None:
    """List the known policies, GPUs or workloads; `heshare notebook list` has the notebooks."""
    tables = {Kind.POLICIES: listings.policies, Kind.GPUS: listings.gpus, Kind.WORKLOADS: listings.models}
    frame = tables[what]()
    # Policies have many parameters, which only the JSON output has.
    options.print_frame(frame if json else frame.drop(columns="parameters", errors="ignore"), json)
