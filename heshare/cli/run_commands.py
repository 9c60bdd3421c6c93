"""`heshare run`: task sets and jobs on emulated GPUs, jobs on real GPUs, and the continuation of both kinds of runs."""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heshare.cli.completion import policy_names
from heshare.cli.options import (
    PAPER_CLUSTER,
    Arrivals,
    ClusterText,
    Hold,
    Json,
    Load,
    Out,
    PowerLimit,
    Price,
    PriceStart,
    Profiles,
    Quiet,
    RepetitionNumber,
    Saving,
    Seed,
    TasksText,
    Trace,
    json_text,
    parse_limit,
    predictor_factory,
    price_terms,
    print_frame,
    print_json,
    print_values,
    shows_bar,
    task_set,
    to_records,
    told,
    writable_file,
)
from heshare.shared.errors import HeShareError, InputError, require
from heshare.shared.inputs.bounds import MOST_TASKS, parse_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd

    from heshare.lab.limits.power_budget import PowerBudget
    from heshare.lab.limits.prices.price_terms import PriceTerms
    from heshare.lab.sweeps.random_streams import Repetition
    from heshare.ops.metrics.run_meter import RunMeter
    from heshare.ops.steering.operator_log import OperatorLog
    from heshare.policies.policy import Policy
    from heshare.running.result import Run
    from heshare.world.cluster import Cluster
    from heshare.world.task import Task

VENUS = "venus:"
LOGS = ("text", "json")
_NOT_WITH_A_PLAN = {
    *("jobs", "policy", "devices", "hosts", "allow_clocks", "resume"),
    *("load", "arrivals", "trace", "profiles", "checkpoint", "log", "dry_run"),
}
"""Options that `--plan` excludes; `--tasks` and `--cluster` must name what the plan was made for."""


def checked_metrics(context: typer.Context, text: str | None) -> str | None:
    """Refuse a file or an address that metrics cannot go to, and a missing library, before the work."""
    if text is not None and not context.resilient_parsing:
        from heshare.ops.metrics.metrics_target import parse_target
        from heshare.shared.extras import require_extra

        parse_target(text)
        require_extra("metrics", "--metrics")
    return text


def run(
    context: typer.Context,
    jobs: Annotated[
        Path | None,
        typer.Argument(help="A file of jobs (YAML): commands, or workloads of Table IV.", show_default=False),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="The policy, such as random; heshare:trade-off unless given.", autocompletion=policy_names),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Run a plan, a plan-*.json of plan --out, with its tasks.", show_default=False),
    ] = None,
    devices: Annotated[
        str, typer.Option(help="The GPUs: emulated, nvml for all of this machine, or nvml:0,nvml:1.")
    ] = "emulated",
    hosts: Annotated[
        str | None,
        typer.Option(
            help="With nvml: GPUs of several hosts, each with a worker of the Dask scheduler tls://HOST:PORT."
        ),
    ] = None,
    allow_clocks: Annotated[bool, typer.Option("--allow-clocks", help="Let the policy lock the GPUs' clocks.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.", show_default=False)] = None,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="With --resume: leave damaged lines of the journal out, and count them.")
    ] = False,
    cluster: ClusterText = PAPER_CLUSTER,
    tasks: TasksText = "60",
    load: Load = "mixed",
    arrivals: Arrivals = "at_once",
    trace: Trace = None,
    profiles: Profiles = None,
    seed: Seed = 0,
    repetition: RepetitionNumber = 0,
    power_limit: PowerLimit = None,
    price: Price = None,
    price_start: PriceStart = None,
    hold: Hold = None,
    saving: Saving = None,
    out: Out = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            help="Write an emulated run as Chrome trace events (JSON); ui.perfetto.dev opens it.",
            callback=writable_file,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File from which an interrupted emulated run continues, same result. It is code: use your own only.",
            callback=writable_file,
        ),
    ] = None,
    progress: Annotated[
        bool, typer.Option("--progress", help="Show the bar of an emulated run where stderr is no terminal, too.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows of a trace that cannot be run, and count them.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With nvml: show what a run would do; start and change nothing."),
    ] = False,
    log: Annotated[
        str, typer.Option(help="Events of a run on real GPUs on stderr: text, or json (one object a line).")
    ] = "text",
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics for Prometheus: FILE.prom for node_exporter, or, of real GPUs, HOST:PORT to listen at.",
            callback=checked_metrics,
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run jobs on real GPUs (--devices nvml), or a task set or jobs on emulated ones, under a policy.

    On real GPUs the journal, the jobs' outputs and the report are written to --out (by default a folder beside the
    file). However the run ends, clocks, MPS and processes are restored, and --resume continues it.
    """
    source = context.get_parameter_source
    given = {name for name in context.params if getattr(source(name), "name", "") == "COMMANDLINE"}
    if plan is not None:
        refused = sorted(given & _NOT_WITH_A_PLAN)
        action = "Leave the others out: a plan has its tasks, its cluster and its clocks, and runs on emulated GPUs."
        require("--plan", f"--plan and {', '.join(refused)}", not refused, "a plan without them", action)
    real = _needs_real_gpus(jobs, resume, devices, hosts, salvage)
    budget = _parse_limit(power_limit, resume)
    terms = price_terms(price, price_start, hold, saving, live=real, resumes=resume is not None)
    _check_real_options(log if "log" in given else "", dry_run, real, metrics)
    if real:
        settings: dict[str, Any] = {"policy": _one_policy(policy), "devices": devices, "hosts": hosts, "seed": seed}
        settings |= {"allow_clocks": allow_clocks, "power_limit": budget, "price": terms}
        live = partial(_run_jobs, resume=resume, salvage=salvage, log_json=log == "json", metrics=metrics)
        start = _dry_run if dry_run else live
        start(jobs, settings, profiles=profiles, out=out, json=json)
        return
    from heshare.lab.limits.budget_policy import within_budget
    from heshare.lab.long_runs.run_long import FULL, SUMMARY, run_long
    from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
    from heshare.policies.registry import make
    from heshare.prediction.predictor import LazyPredictor
    from heshare.world.cluster import Cluster

    streams, job_names, from_venus = Repetition(repetition, seed), None, jobs is None and tasks.startswith(VENUS)
    to_run: Sequence[Task]
    if plan is not None:
        own = tasks * ("tasks" in given), cluster * ("cluster" in given)
        made, to_run, gpus, budget = _read_plan(plan, *own, streams, budget)
    else:
        made, gpus = make(_one_policy(policy)), Cluster.parse(cluster)
        if jobs is not None:
            to_run, job_names = _read_job_tasks(jobs)
        elif from_venus:
            to_run = _venus_tasks(tasks, streams.rng(TASKS), gpus, trace, skip_bad)
        else:
            to_run = task_set(tasks, streams, load, arrivals, trace)
    with told("run", quiet or progress):
        result = run_long(
            to_run,
            gpus,
            within_budget(made if terms is None else terms.wrap(made), budget),
            predictor=LazyPredictor(predictor_factory(profiles)),
            rng=streams.rng(POLICY),
            # The timeline of a long run is streamed to files, unless all of it is needed for --timeline.
            record=FULL if not from_venus or timeline or terms else out or SUMMARY,
            checkpoint=checkpoint,
            progress=progress or shows_bar(quiet),
        )
    _write(result, job_names, out, timeline, metrics, terms, json=json)


def _parse_limit(text: str | None, resume: Path | None) -> PowerBudget | None:
    """Return the power limit of `--power-limit`, which a run that is resumed has already."""
    if text is None:
        return None
    if resume is not None:
        raise _conflict("--power-limit with --resume", "Leave it out: the run keeps the limit that it began with.")
    return parse_limit(text)


def _one_policy(policies: list[str] | None) -> str:
    """Return the only policy of `--policy`.

    Raises:
        InputError: more than one.
    """
    named = policies or ["heshare:trade-off"]
    action = "Compare several with `heshare compare`, where --policy may be repeated."
    require("--policy", " and ".join(named), len(named) == 1, "one policy", action)
    return named[0]


def _needs_real_gpus(jobs: Path | None, resume: Path | None, devices: str, hosts: str | None, salvage: bool) -> bool:
    """Return whether the options name real GPUs.

    Raises:
        InputError: options that exclude each other.
    """
    if salvage and resume is None:
        raise _conflict("--salvage without --resume", "Name the run whose journal is damaged: --resume FOLDER.")
    if resume is not None and jobs is not None:
        raise _conflict("both a file of jobs and --resume", "Leave the file out: the run's folder has its jobs.")
    if devices != "emulated" and not devices.startswith("nvml"):
        raise _conflict(f"--devices {devices!r}", "Choose emulated (the default), nvml, or nvml:0,nvml:1.")
    if hosts is not None and devices == "emulated" and resume is None:
        raise _conflict("--hosts with emulated GPUs", "Choose those of the hosts: --devices nvml --hosts tls://...")
    if devices != "emulated" and jobs is None and resume is None:
        raise _conflict("real GPUs without jobs", "Name a file of jobs: heshare run jobs.yaml --devices nvml.")
    return resume is not None or devices != "emulated"


def _check_real_options(log: str, dry_run: bool, real: bool, metrics: str | None) -> None:
    """Raise `InputError` for `--log` (empty if not given), `--dry-run` and `--metrics` where they mean nothing."""
    require("--log", repr(log), log in ("", *LOGS), " or ".join(LOGS), "Choose one of them.")
    require("--log", "--log with emulated GPUs", real or not log, "real GPUs", "Leave it out: there are no events.")
    action = "Leave it out: nothing real is run."
    require("--dry-run", "--dry-run with emulated GPUs", real or not dry_run, "real GPUs", action)
    if metrics is not None:
        from heshare.ops.metrics.metrics_target import parse_target

        action = "Leave --metrics out: nothing is run."
        require("--metrics", "--metrics with --dry-run", not dry_run, "one of the two", action)
        found, action = f"{metrics} with emulated GPUs", "Name a file: the run is over before anybody can ask."
        require("--metrics", found, real or isinstance(parse_target(metrics), Path), "a file FILE.prom", action)


def _conflict(found: str, action: str) -> InputError:
    return InputError(found, "a file of jobs with --devices, or --resume FOLDER", action, column="heshare run")


def _read_plan(
    file: Path, tasks: str, cluster: str, streams: Repetition, budget: PowerBudget | None
) -> tuple[Policy, tuple[Task, ...], Cluster, PowerBudget | None]:
    """Return the policy that releases the plan of a file, its tasks, its cluster and the power limit of the run.

    Raises:
        InputError: no plan, or `tasks` or `cluster`, where they are not empty, are not the plan's.
    """
    from heshare import arguments
    from heshare.lab.sweeps.plan_file import read_plan
    from heshare.world.cluster import Cluster

    plan = read_plan(file)
    given = task_set(tasks, streams, "mixed", "at_once", None) if tasks else plan.tasks
    to_run = arguments.as_tasks(given, streams)
    gpus = Cluster.parse(cluster) if cluster else plan.cluster
    return arguments.as_policy(plan, to_run, gpus), to_run, gpus, arguments.limit_of(plan, budget)


def _read_job_tasks(path: Path) -> tuple[Sequence[Task], list[str]]:
    """Return the tasks of a file of jobs, and the name of each task's job; a file is refused as for real GPUs."""
    from heshare.ops.executor.job_file import read_jobs
    from heshare.ops.executor.job_tasks import (
        JobHistory,
        assigned_jobs,
        check_names,
        check_programs,
        remaining_tasks,
    )

    specs = read_jobs(path)
    check_names(specs, path)
    check_programs(specs, path)
    tasks, assigned = remaining_tasks(assigned_jobs(specs), JobHistory())
    return tasks, [assigned[task.id].key for task in tasks]


def _venus_tasks(
    text: str, rng: np.random.Generator, cluster: Cluster, trace: Path | None, skip_bad: bool
) -> Sequence[Task]:
    """Return the tasks of `venus:N`, `venus:all` or `venus:N@LOAD`; print their source to stderr.

    Raises:
        InputError: another form, or a bad trace.
    """
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
    metrics: str | None,
    price: PriceTerms | None,
    *,
    json: bool,
) -> None:
    """Write the files of an emulated run, and print its result."""
    frame = _with_names(result.to_frame(), job_names)
    if out is not None:
        from heshare.lab.tenants.tenant_energy import tenant_energy
        from heshare.paper.tables import to_csv
        from heshare.shared import files

        files.write_text(out / "tasks.csv", to_csv(frame))
        if result.totals is None:
            files.write_text(out / "timeline.csv", to_csv(result.timeline))
            files.write_text(out / "tenants.csv", to_csv(_with_names(tenant_energy(result), job_names)))
    if timeline is not None:
        from heshare.paper.figures.trace_events import write_trace

        write_trace(result, timeline)
    if metrics is not None:
        from heshare.ops.metrics.emulated_metrics import write_metrics

        write_metrics(result, Path(metrics), job_names)
    summary = result.summary()
    if price is not None:
        from heshare.lab.limits.prices.signal_cost import run_cost

        summary |= run_cost(result, price.signal).columns()
    if json:
        print_frame(frame, True, **summary)
    else:
        print_values(summary)


def _with_names(frame: pd.DataFrame, job_names: list[str] | None) -> pd.DataFrame:
    """Return rows of tasks with the names of their jobs, if they have any."""
    if job_names is not None:
        frame.insert(1, "job", job_names)
    return frame


def _dry_run(
    jobs: Path | None, settings: dict[str, Any], *, profiles: Path | None, out: Path | None, json: bool
) -> None:
    """Show what a run of jobs on this machine's GPUs would do.

    Raises:
        InputError: GPUs of several hosts, or a run that is resumed.
    """
    from heshare.ops.steering.dry_run import dry_run
    from heshare.prediction.predictor import LazyPredictor

    given = {name: value for name, value in settings.items() if name != "hosts"}
    if jobs is None or settings["hosts"] is not None:
        raise _conflict("--dry-run with --resume or --hosts", "Name a file of jobs, and GPUs of this machine.")
    predictor = LazyPredictor(predictor_factory(profiles))
    found = dry_run(jobs, out or Path(f"{jobs.stem}-run"), predictor=predictor, **given)
    if json:
        print_json({**found.totals, "jobs_list": to_records(found.jobs), "notes": found.notes})
    else:
        typer.echo(found.text(), nl=False)


def _run_meter(text: str, folder: Path, log: OperatorLog) -> RunMeter:
    """Return what publishes the metrics of a run in a folder, under the folder's name; errors as `RunMeter`."""
    from heshare.ops.metrics.metrics_target import parse_target
    from heshare.ops.metrics.run_meter import RunMeter

    return RunMeter(folder.absolute().name, parse_target(text), tell=log.tell)


def _run_jobs(
    jobs: Path | None,
    settings: dict[str, Any],
    *,
    resume: Path | None,
    salvage: bool,
    profiles: Path | None,
    out: Path | None,
    json: bool,
    log_json: bool,
    metrics: str | None,
) -> None:
    """Run jobs on real GPUs, or continue a run; the exit code is 0 only if every job has completed."""
    from heshare.lab.tenants.tenant_power import TenantPower
    from heshare.ops.executor import execute
    from heshare.ops.steering.operator_log import OperatorLog
    from heshare.prediction.predictor import LazyPredictor
    from heshare.profiles import store
    from heshare.shared.signals import Interrupted
    from heshare.shared.standard_streams import print_or_drop

    log = OperatorLog(sys.stderr, as_json=log_json)
    folder = resume or out or Path(f"{jobs.stem if jobs else ''}-run")
    tenant_power = TenantPower() if profiles is None else TenantPower.of_profile(store.read(profiles))
    predictor = LazyPredictor(predictor_factory(profiles))
    meter = None if metrics is None else _run_meter(metrics, folder, log)
    options = execute.ExecutorOptions(log=log, tenant_power=tenant_power, meter=meter)
    try:
        if resume is not None:
            result = execute.resume(
                resume, predictor=predictor, options=options, salvage=salvage, hosts=settings["hosts"]
            )
        else:
            assert jobs is not None
            result = execute.execute(jobs, folder, predictor=predictor, options=options, **settings)
    except Interrupted as interrupt:
        name = signal.Signals(interrupt.number).name
        text = f"ended by {name}; continue with: heshare run --resume {folder}"
        if log_json:
            log.tell("end", text)
        else:
            typer.echo(f"heshare: {text}", err=True)
        raise typer.Exit(128 + interrupt.number) from None
    except HeShareError as error:
        if log_json:
            log.tell("error", str(error))
        if json or not log_json:
            raise
        raise typer.Exit(error.exit_code) from None
    finally:
        if meter is not None:
            meter.close()
    if json:
        rows, gpus = to_records(result.jobs), to_records(result.gpus)
        text = json_text({**result.totals, "gpus": gpus, "jobs_list": rows, "notes": result.notes})
    else:
        text = result.report()
    if unwritten := print_or_drop(text):
        log.tell("output", f"standard output takes no report ({unwritten}); it is in {folder}/report.txt")
    if result.unwritten:
        log.tell("output", result.unwritten)
    if not result.complete:
        raise typer.Exit(1)
