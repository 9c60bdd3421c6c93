"""`heshare run`: task sets, files of jobs and plans on emulated GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from heshare import api
from heshare.cli import options
from heshare.cli.results import results_folder
from heshare.lab.sweeps.plan_file import read_plan
from heshare.lab.sweeps.random_streams import TASKS, Repetition
from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.ops.executor.job_tasks import check_jobs, remaining_tasks
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.jobs.run_state import job_states
from heshare.paper.provenance.results_folder import ResultsFolder
from heshare.paper.tables import to_csv
from heshare.policies import registry
from heshare.policies.policy import Policy
from heshare.running.result import Run
from heshare.scheduling.plan import Plan
from heshare.shared import files
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import MOST_TASKS, parse_whole
from heshare.world.cluster import Cluster
from heshare.world.task import Task

VENUS = "venus:"
_NOT_WITH_A_PLAN = {"policy", "load", "arrivals", "trace", "profiles"}
"""Options that `--plan` excludes; `--tasks` and `--cluster` must match the plan."""
_FILES = ("tasks.csv", "timeline.csv", "trace.json")
_OF_DRAWN_TASKS = {"load", "arrivals"}


def run(
    context: typer.Context,
    policy: options.Policies = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Run a plan, a plan-*.json of plan --out, with its tasks.", show_default=False),
    ] = None,
    cluster: options.ClusterText = options.PAPER_CLUSTER,
    tasks: options.TasksText = "60",
    load: options.Load = "mixed",
    arrivals: options.Arrivals = "at_once",
    trace: options.Trace = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    repetition: options.RepetitionNumber = 0,
    power_limit: options.PowerLimit = None,
    out: options.Out = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Run a task set, a file of jobs or a plan on emulated GPUs, under a policy.

    --out writes the tasks, the timeline as a table, trace.json (Chrome trace events, which ui.perfetto.dev opens) and
    run.json, what made them.
    """
    given = options.given(context)
    streams = Repetition(repetition, seed)
    chosen: Policy | Plan
    to_run: Sequence[Task]
    job_names = None

    if plan is not None:
        _refuse("--plan", "--plan", given & _NOT_WITH_A_PLAN, "A plan has its tasks, its cluster and its clocks.")
        chosen = read_plan(plan)
        gpus = Cluster.parse(cluster) if "cluster" in given else chosen.cluster
        to_run = options.task_set(tasks, streams) if "tasks" in given else chosen.tasks
    else:
        with options.only_json(json):
            chosen = registry.make(options.one_policy(policy))
        gpus = Cluster.parse(cluster)
        if Path(tasks).suffix in (".yaml", ".yml"):
            _refuse("--tasks", tasks, given & _OF_DRAWN_TASKS, "Leave the others out.")
            to_run, job_names = _read_job_tasks(Path(tasks))
        elif tasks.startswith(VENUS):
            _refuse("--tasks", tasks, given & _OF_DRAWN_TASKS, "Leave the others out.")
            to_run = _venus_tasks(tasks, streams.rng(TASKS), gpus, trace)
        else:
            to_run = options.task_set(tasks, streams, cluster=gpus, load=load, arrivals=arrivals, trace=trace)

    # A plan replaces the other options, so that their defaults are no parameters of its run.
    names = {*given, "plan", "seed", "repetition"}
    own = None if plan is None else {name: context.params[name] for name in sorted(names - {"out", "quiet", "json"})}
    folder = results_folder(context, out, _FILES, objects=[chosen] if plan is None else [], parameters=own)
    with options.working_line("run", quiet), options.only_json(json):
        result = api.run(
            to_run,
            gpus,
            chosen,
            seed=seed,
            repetition=repetition,
            predictor=None if profiles is None else options.predictor_factory(profiles)(),
            power_limit=power_limit,
            progress=options.shows_bar(quiet),
        )
    _write(result, job_names, folder, json=json)


def _refuse(column: str, what: str, others: set[str], action: str) -> None:
    """Raise `InputError` if options are given that exclude each other."""
    require(column, f"{what} and {', '.join(sorted(others))}", not others, "one of the two", action)


def _read_job_tasks(path: Path) -> tuple[Sequence[Task], list[str]]:
    specs = read_jobs(path)
    check_jobs(specs, path)
    tasks, assigned = remaining_tasks(job_states(specs))
    return tasks, [assigned[task.id].key for task in tasks]


def _venus_tasks(text: str, rng: np.random.Generator, cluster: Cluster, trace: Path | None) -> Sequence[Task]:
    count, _, load_text = text.removeprefix(VENUS).partition("@")
    try:
        n = None if count == "all" else parse_whole(count, "--tasks", least=1, most=MOST_TASKS)
        load = float(load_text) if load_text else None
    except ValueError as error:
        expected = "venus:N, venus:all, or with a load such as venus:1000@0.8"
        raise InputError(repr(text), expected, "Write it in that form.", column="--tasks") from error
    tasks, source = venus_tasks(n, rng=rng, gpus=len(cluster), load=load, file=trace)
    typer.echo(f"{source.report()}; {source.origin}", err=True)
    return tasks


def _write(result: Run, job_names: list[str] | None, folder: ResultsFolder | None, *, json: bool) -> None:
    if folder is not None:
        rows, timeline = to_csv(_task_rows(result, job_names)), to_csv(result.timeline)
        folder.write(
            {
                "tasks.csv": partial(files.write_text, text=rows),
                "timeline.csv": partial(files.write_text, text=timeline),
                "trace.json": result.to_perfetto,
            }
        )

    summary = result.summary()
    if json:
        options.print_frame(_task_rows(result, job_names), True, summary)
    else:
        options.print_values(summary)


def _task_rows(result: Run, job_names: list[str] | None) -> pd.DataFrame:
    frame = result.to_frame()
    frame.insert(len(frame.columns) - 1, "energy_j", result.energy_by_task()["energy_j"])

    if job_names is not None:
        frame.insert(1, "job", job_names)
    return frame
