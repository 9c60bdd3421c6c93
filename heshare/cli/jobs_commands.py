"""`heshare jobs`: run jobs on real GPUs; show the status of a run, stop it, and write its report."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from heshare.cli import options
from heshare.cli.json_output import json_text, print_json
from heshare.lab.limits import PowerLimit
from heshare.ops.executor import execute
from heshare.ops.executor.dry_run import dry_run as run_dry
from heshare.ops.executor.execute import ExecutorOptions
from heshare.ops.executor.operator_log import OperatorLog
from heshare.ops.jobs.report import RunReport, read_report
from heshare.ops.jobs.run_status import RunStatus
from heshare.ops.jobs.run_status import stop as stop_run
from heshare.shared.errors import InputError
from heshare.shared.signals import Interrupted
from heshare.shared.standard_streams import print_or_drop

app = typer.Typer(help="Run jobs on real GPUs; show or stop such a run.", no_args_is_help=True, rich_markup_mode=None)

RunFolder = Annotated[Path, typer.Argument(help="The folder of the run.", metavar="RUN", show_default=False)]


@app.command()
def run(
    jobs: Annotated[
        Path | None,
        typer.Argument(help="A file of jobs (YAML): commands, or workloads of Table IV.", show_default=False),
    ] = None,
    policy: options.Policies = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="The GPUs: nvml for all of this machine, or nvml:0,nvml:1.",
            show_default="nvml; with --resume the GPUs with which the run began",
        ),
    ] = None,
    allow_clocks: Annotated[bool, typer.Option("--allow-clocks", help="Let the policy lock the GPUs' clocks.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.", show_default=False)] = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    power_limit: options.PowerLimit = None,
    out: options.Out = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what a run would do; start and change nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Run jobs on real GPUs under a policy; the exit code is 0 only if every job has completed.

    The journal, the jobs' outputs and the report are written to --out (by default FILE-run in the current folder).
    However the run ends, clocks are unlocked, MPS and all processes are ended, and --resume continues it.
    """
    _check_together(jobs, resume, power_limit)
    if devices is not None and not devices.startswith("nvml"):
        action = "Choose nvml or nvml:0,nvml:1; emulated GPUs: heshare run --tasks JOBS.yaml."
        raise _conflict(f"--devices {devices!r}", action)

    predictor = options.predictor_factory(profiles)()
    policy_name = options.one_policy(policy)
    limit = None if power_limit is None else PowerLimit.parse(power_limit)
    folder = resume or out or Path(f"{jobs.stem if jobs else ''}-run")
    if dry_run:
        if jobs is None:
            raise _conflict("--dry-run with --resume", "Name a file of jobs.")

        shown = run_dry(
            jobs,
            folder,
            policy=policy_name,
            devices=devices or "nvml",
            predictor=predictor,
            seed=seed,
            allow_clocks=allow_clocks,
            power_limit=limit,
        )
        if json:
            print_json({**shown.totals, "jobs_list": options.to_records(shown.jobs), "notes": shown.notes})
        else:
            typer.echo(shown.text(), nl=False)
        return

    def start(executor_options: ExecutorOptions) -> RunReport:
        if resume is not None:
            return execute.resume(resume, predictor=predictor, devices=devices, options=executor_options)
        assert jobs is not None
        return execute.execute(
            jobs,
            folder,
            policy=policy_name,
            devices=devices or "nvml",
            predictor=predictor,
            seed=seed,
            allow_clocks=allow_clocks,
            power_limit=limit,
            options=executor_options,
        )

    _run_jobs(start, folder, json=json)


def _check_together(jobs: Path | None, resume: Path | None, power_limit: str | None) -> None:
    if resume is not None and jobs is not None:
        raise _conflict("both a file of jobs and --resume", "Leave the file out: the run's folder has its jobs.")
    if resume is not None and power_limit is not None:
        raise _conflict("--power-limit with --resume", "Leave it out: the run has the limit with which it began.")
    if resume is None and jobs is None:
        raise _conflict("neither a file of jobs nor --resume", "Name one: heshare jobs run JOBS.yaml.")


def _conflict(found: str, action: str) -> InputError:
    return InputError(found, "a file of jobs, or --resume FOLDER", action, column="options")


def _run_jobs(start: Callable[[ExecutorOptions], RunReport], folder: Path, *, json: bool) -> None:
    log = OperatorLog(sys.stderr)
    try:
        result = start(ExecutorOptions(log=log))
    except Interrupted as interrupt:
        name = signal.Signals(interrupt.number).name
        typer.echo(f"heshare: ended by {name}; continue with: heshare jobs run --resume {folder}", err=True)
        raise typer.Exit(128 + interrupt.number) from None

    unwritten = _print_report(result, json=json)
    if unwritten:
        log.event(f"the report cannot be printed ({unwritten}); it is in {folder}/report.txt")
    if result.unwritten:
        log.event(result.unwritten)
    if not result.complete:
        raise typer.Exit(1)


def _print_report(result: RunReport, *, json: bool) -> str:
    """Print a report; return the reason if that fails, else an empty text."""
    text = result.text()
    if json:
        rows, gpus = options.to_records(result.jobs), options.to_records(result.gpus)
        text = json_text({**result.totals, "gpus": gpus, "jobs_list": rows, "notes": result.notes})
    return print_or_drop(text)


@app.command()
def status(run: RunFolder, json: options.Json = False) -> None:
    """Show the state of a run on real GPUs from its journal, during the run or afterwards."""
    view, now_s = RunStatus(run), time.time()
    if json:
        print_json(view.as_dict(now_s))
    else:
        typer.echo(view.text(now_s), nl=False)


@app.command()
def stop(run: RunFolder) -> None:
    """Request an orderly end of a run of this user, as by SIGTERM; `heshare jobs run --resume` continues it."""
    stop_run(run)
    typer.echo(f"Requested: {run} ends its jobs and releases its GPUs.")


@app.command()
def report(run: RunFolder, json: options.Json = False) -> None:
    """Write jobs.csv, gpus.csv and report.txt of a run again, from its journal, and print the report.

    Needs no GPU. Jobs that are running count as lost.
    """
    result = read_report(run).write(run)
    _print_report(result, json=json)
    if result.unwritten:
        typer.echo(result.unwritten, err=True)
        raise typer.Exit(2)
