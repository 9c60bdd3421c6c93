"""`heshare run jobs.yaml` and `heshare run --resume FOLDER`: jobs on real GPUs, or the same in virtual time."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from heshare.cli.common import (
    PAPER_CLUSTER,
    Arrivals,
    ClusterText,
    Json,
    Load,
    Out,
    Profiles,
    Seed,
    TasksText,
    Trace,
    emit,
    emit_json,
)
from heshare.errors import InputError


def live(
    jobs: Path | None,
    resume: Path | None,
    *,
    devices: str,
    hosts: str | None,
    policy: str,
    allow_clocks: bool,
    profiles: Path | None,
    seed: int,
    out: Path | None,
    json: bool,
) -> None:
    """Run or go on with jobs on real GPUs; the exit code is 0 only if every job has completed."""
    from heshare.cli.planning import _predictor
    from heshare.devices.interrupts import Interrupted
    from heshare.prediction.late import LatePredictor
    from heshare.running import execute
    from heshare.running.attendant import terminal

    ways = execute.Ways(show=terminal())
    folder = resume
    try:
        if resume is not None:
            result = execute.resume(resume, predictor=LatePredictor(_predictor(profiles)), hosts=hosts, ways=ways)
        else:
            assert jobs is not None
            folder = out or Path(f"{jobs.stem}-run")
            result = execute.execute(
                jobs,
                folder,
                policy=policy,
                devices=devices,
                hosts=hosts,
                predictor=LatePredictor(_predictor(profiles)),
                seed=seed,
                allow_clocks=allow_clocks,
                ways=ways,
            )
    except Interrupted as ended:
        number = signal.Signals(ended.number)
        typer.echo(f"heshare: ended by {number.name}; go on with: heshare run --resume {folder}", err=True)
        raise typer.Exit(128 + ended.number) from None
    if json:
        rows: list[Any] = result.jobs.astype(object).where(result.jobs.notna(), None).to_dict("records")
        gpus: list[Any] = result.gpus.astype(object).where(result.gpus.notna(), None).to_dict("records")
        emit_json({**result.totals, "gpus": gpus, "jobs_list": rows, "notes": result.notes})
    else:
        typer.echo(execute.report(result), nl=False)
    if not result.complete:
        raise typer.Exit(1)


def rehearse(
    jobs: Path, *, cluster: str, policy: str, profiles: Path | None, seed: int, out: Path | None, json: bool
) -> None:
    """Run the tasks that a file of jobs stands for on emulated GPUs: what the plan promises, with nothing started."""
    from heshare.cli.planning import _predictor, _rng
    from heshare.policies.registry import make
    from heshare.running.jobs import History, copies, left
    from heshare.running.run import run as run_tasks
    from heshare.world.cluster import Cluster
    from heshare.world.jobfile import read_jobs

    tasks, assigned = left(copies(read_jobs(jobs)), History())
    chosen = make(policy)
    done = run_tasks(tasks, Cluster.parse(cluster), chosen, predictor=_predictor(profiles)(), rng=_rng(seed, 1))
    frame = done.to_frame()
    frame.insert(1, "job", [assigned[task].key for task in frame["task"]])
    if out is not None:
        from heshare import files
        from heshare.reporting.tables import to_csv

        files.write_text(out / "tasks.csv", to_csv(frame))
        files.write_text(out / "timeline.csv", to_csv(done.timeline))
    summary = done.summary()
    if json:
        emit(frame, True, **summary)
        return
    from heshare.reporting.tables import cell

    for name, value in summary.items():
        typer.echo(f"{name}: {cell(value)}")


def wanted(jobs: Path | None, resume: Path | None, devices: str, hosts: str | None = None) -> bool:
    """Whether real GPUs are asked for.

    Raises:
        InputError: options that do not go together.
    """
    if resume is not None and jobs is not None:
        raise _together("both a file of jobs and --resume", "Leave the file out: the run's folder knows its jobs.")
    if devices != "emulated" and not devices.startswith("nvml"):
        raise _together(f"--devices {devices!r}", "Ask for emulated (the default), nvml, or nvml:0,nvml:1.")
    if hosts is not None and devices == "emulated" and resume is None:
        raise _together("--hosts with emulated GPUs", "Ask for those of the hosts: --devices nvml --hosts dask://...")
    if devices != "emulated" and jobs is None and resume is None:
        raise _together("real GPUs without jobs", "Name a file of jobs: heshare run jobs.yaml --devices nvml.")
    return resume is not None or devices != "emulated"


def _together(found: str, action: str) -> InputError:
    return InputError(
        column="heshare run", found=found, expected="a file of jobs with --devices, or --resume FOLDER", action=action
    )


def run(
    jobs: Annotated[
        Path | None,
        typer.Argument(help="A file of jobs (YAML): commands, or workloads of Table IV.", show_default=False),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="Who decides, such as heshare:trade-off or random.")
    ] = "heshare:trade-off",
    devices: Annotated[
        str, typer.Option(help="Where: emulated, nvml for every GPU of this machine, or nvml:0,nvml:1.")
    ] = "emulated",
    hosts: Annotated[
        str | None,
        typer.Option(help="With nvml, whose: a Dask scheduler, dask://HOST:PORT, with a worker on each host."),
    ] = None,
    allow_clocks: Annotated[bool, typer.Option("--allow-clocks", help="Let the policy lock the GPUs' clocks.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.", show_default=False)] = None,
    cluster: ClusterText = PAPER_CLUSTER,
    tasks: TasksText = "60",
    load: Load = "mixed",
    arrivals: Arrivals = "at_once",
    trace: Trace = None,
    profiles: Profiles = None,
    seed: Seed = 0,
    out: Out = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Write an emulated run as Chrome trace events (JSON); ui.perfetto.dev opens it.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="File from which an emulated run that was interrupted goes on, with the same result."),
    ] = None,
    progress: Annotated[
        bool, typer.Option("--progress", help="Show how many tasks of an emulated run are done.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows of a trace that cannot be run, and count them.")
    ] = False,
    json: Json = False,
) -> None:
    """Run jobs on real GPUs (--devices nvml), or a task set or jobs on emulated ones, under a policy.

    On real GPUs everything about the run goes into --out (by default a folder beside the file): journal, outputs,
    report. Whatever ends it, clocks, MPS and processes are put in order, and --resume goes on.
    """
    if wanted(jobs, resume, devices, hosts):
        live(
            jobs,
            resume,
            devices=devices,
            hosts=hosts,
            policy=policy,
            allow_clocks=allow_clocks,
            profiles=profiles,
            seed=seed,
            out=out,
            json=json,
        )
    elif jobs is not None:
        rehearse(jobs, cluster=cluster, policy=policy, profiles=profiles, seed=seed, out=out, json=json)
    else:
        from heshare.cli.running import run_emulated

        run_emulated(
            policy,
            cluster,
            tasks,
            load=load,
            arrivals=arrivals,
            trace=trace,
            profiles=profiles,
            seed=seed,
            out=out,
            timeline=timeline,
            checkpoint=checkpoint,
            progress=progress,
            skip_bad=skip_bad,
            json=json,
        )
