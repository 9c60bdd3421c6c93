"""`heshare run`: task sets, files of jobs and plans on emulated GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heshare.cli import options
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import MOST_TASKS, parse_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd

    from heshare.lab.sweeps.random_streams import Repetition
    from heshare.policies.policy import Policy
    from heshare.running.result import Run
    from heshare.world.cluster import Cluster
    from heshare.world.task import Task

VENUS = "venus:"
_NOT_WITH_A_PLAN = {"policy", "load", "arrivals", "interval", "trace", "profiles"}
"""Options that `--plan` excludes; `--tasks` and `--cluster` must name what the plan was made for."""
_OF_DRAWN_TASKS = {"load", "arrivals", "interval"}


def run(
    context: typer.Context,
    policy: options.OnePolicy = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Run a plan, a plan-*.json of plan --out, with its tasks.", show_default=False),
    ] = None,
    cluster: options.ClusterText = options.PAPER_CLUSTER,
    tasks: options.TasksText = "60",
    load: options.Load = "mixed",
    arrivals: options.Arrivals = "at_once",
    interval: options.Interval = None,
    trace: options.Trace = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    repetition: options.RepetitionNumber = 0,
    power_limit: options.PowerLimit = None,
    out: options.Out = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            help="Write the run as Chrome trace events (JSON); ui.perfetto.dev opens it.",
            callback=options.writable_file,
        ),
    ] = None,
    progress: Annotated[
        bool, typer.Option("--progress", help="Show the bar where stderr is no terminal, too.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows of a trace that cannot be run, and count them.")
    ] = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Run a task set, a file of jobs or a plan on emulated GPUs, under a policy."""
    source = context.get_parameter_source
    given = {name for name in context.params if getattr(source(name), "name", "") == "COMMANDLINE"}
    if plan is not None:
        refused = sorted(given & _NOT_WITH_A_PLAN)
        action = "Leave the others out: a plan has its tasks, its cluster and its clocks."
        require("--plan", f"--plan and {', '.join(refused)}", not refused, "a plan without them", action)
    from heshare.lab.limits import within_limit
    from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
    from heshare.policies.registry import make
    from heshare.prediction.predictor import LazyPredictor
    from heshare.running.run import run as run_tasks
    from heshare.world.cluster import Cluster

    streams, job_names, from_venus = Repetition(repetition, seed), None, tasks.startswith(VENUS)
    to_run: Sequence[Task]
    if plan is not None:
        own = tasks * ("tasks" in given), cluster * ("cluster" in given)
        made, to_run, gpus = _read_plan(plan, *own, streams)
    else:
        made, gpus = make(options.one_policy(policy)), Cluster.parse(cluster)
        jobs = Path(tasks).suffix in (".yaml", ".yml")
        refused = sorted(given & _OF_DRAWN_TASKS) if jobs or from_venus else []
        require("--tasks", f"{tasks} and {', '.join(refused)}", not refused, "one of the two", "Leave the others out.")
        if jobs:
            to_run, job_names = _read_job_tasks(Path(tasks))
        elif from_venus:
            to_run = _venus_tasks(tasks, streams.rng(TASKS), gpus, trace, skip_bad)
        else:
            how: dict[str, Any] = {"arrivals": arrivals, "interval_s": interval, "load": load, "trace": trace}
            to_run = options.task_set(tasks, streams, cluster=gpus, **how)
    with options.told("run", quiet or progress):
        result = run_tasks(
            to_run,
            gpus,
            within_limit(made, power_limit),
            predictor=LazyPredictor(options.predictor_factory(profiles)),
            rng=streams.rng(POLICY),
            progress=progress or options.shows_bar(quiet),
        )
    _write(result, job_names, out, timeline, json=json)


def _read_plan(file: Path, tasks: str, cluster: str, streams: Repetition) -> tuple[Policy, tuple[Task, ...], Cluster]:
    from heshare import arguments
    from heshare.lab.sweeps.plan_file import read_plan
    from heshare.world.cluster import Cluster

    plan = read_plan(file)
    given = options.task_set(tasks, streams) if tasks else plan.tasks
    to_run = arguments.as_tasks(given, streams)
    gpus = Cluster.parse(cluster) if cluster else plan.cluster
    return arguments.as_policy(plan, to_run, gpus), to_run, gpus


def _read_job_tasks(path: Path) -> tuple[Sequence[Task], list[str]]:
    from heshare.ops.executor.job_tasks import check_jobs, remaining_tasks
    from heshare.ops.jobs.job_file import read_jobs
    from heshare.ops.jobs.run_state import job_states

    specs = read_jobs(path)
    check_jobs(specs, path)
    tasks, assigned = remaining_tasks(job_states(specs))
    return tasks, [assigned[task.id].key for task in tasks]


def _venus_tasks(
    text: str, rng: np.random.Generator, cluster: Cluster, trace: Path | None, skip_bad: bool
) -> Sequence[Task]:
    from heshare.lab.systems.shared.trace_jobs import venus_tasks

    count, _, load_text = text.removeprefix(VENUS).partition("@")
    try:
        n = None if count == "all" else parse_whole(count, "--tasks", least=1, most=MOST_TASKS)
        load = float(load_text) if load_text else None
    except ValueError as error:
        expected = "venus:N, venus:all, or with a load such as venus:1000@0.8"
        raise InputError(repr(text), expected, "Write it in that form.", column="--tasks") from error
    on_bad = "skip" if skip_bad else "raise"
    tasks, source = venus_tasks(n, rng=rng, gpus=len(cluster), load=load, file=trace, on_bad=on_bad)
    typer.echo(f"{source.report()}; {source.origin}", err=True)
    return tasks


def _write(
    result: Run,
    job_names: list[str] | None,
    out: Path | None,
    timeline: Path | None,
    *,
    json: bool,
) -> None:
    if out is not None:
        from heshare.paper.tables import to_csv
        from heshare.shared import files

        files.write_text(out / "tasks.csv", to_csv(_task_rows(result, job_names)))
        files.write_text(out / "timeline.csv", to_csv(result.timeline))

    if timeline is not None:
        result.to_perfetto(timeline)

    summary = result.summary()
    if json:
        options.print_frame(_task_rows(result, job_names), True, **summary)
    else:
        options.print_values(summary)


def _task_rows(result: Run, job_names: list[str] | None) -> pd.DataFrame:
    frame = result.to_frame()
    frame.insert(len(frame.columns) - 1, "energy_j", result.energy_by_task()["energy_j"])

    if job_names is not None:
        frame.insert(1, "job", job_names)
    return frame
