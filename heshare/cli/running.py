"""`heshare run` on emulated GPUs: a task set, or the jobs of Venus at any length, with checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heshare.cli.common import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heshare.running.result import Run
    from heshare.world.cluster import Cluster
    from heshare.world.task import Task

VENUS = "venus:"


def run_emulated(
    policy: str,
    cluster: str,
    tasks: str,
    *,
    load: str,
    arrivals: str,
    trace: Path | None,
    profiles: Path | None,
    seed: int,
    out: Path | None,
    timeline: Path | None,
    checkpoint: Path | None,
    progress: bool,
    skip_bad: bool,
    json: bool,
) -> None:
    """Run a task set under a policy on emulated GPUs: JCT, both energy accounts, and the timeline with --out."""
    from heshare.cli.planning import _predictor, _rng, _tasks
    from heshare.policies.registry import make
    from heshare.running.run import FULL, SUMMARY
    from heshare.running.run import run as run_tasks
    from heshare.world.cluster import Cluster

    chosen, gpus = make(policy), Cluster.parse(cluster)
    long = tasks.startswith(VENUS)
    drawn = venus_tasks(tasks, seed, gpus, trace, skip_bad) if long else _tasks(tasks, seed, load, arrivals, trace)
    try:
        done = run_tasks(
            drawn,
            gpus,
            chosen,
            predictor=_predictor(profiles)(),
            rng=_rng(seed, 1),
            record=FULL if not long or timeline else out or SUMMARY,
            checkpoint=checkpoint,
            progress=progress,
        )
    except KeyboardInterrupt as signal:
        typer.echo(f"heshare: interrupted{f': {signal}' if str(signal) else ''}", err=True)
        raise typer.Exit(130) from None
    _write(done, out, timeline)
    summary = done.summary()
    if json:
        emit(done.to_frame(), True, **summary)
        return
    from heshare.reporting.tables import cell

    for name, value in summary.items():
        typer.echo(f"{name}: {cell(value)}")


def venus_tasks(text: str, seed: int, cluster: Cluster, trace: Path | None, skip_bad: bool) -> Sequence[Task]:
    """The tasks of `venus:N`, `venus:all` or `venus:N@LOAD`; says on stderr where they come from.

    Raises:
        InputError: another form, or a bad trace.
    """
    from heshare.cli.planning import _rng
    from heshare.errors import InputError
    from heshare.running.draw import venus

    count, _, wanted = text.removeprefix(VENUS).partition("@")
    try:
        n, load = None if count == "all" else int(count), float(wanted) if wanted else None
    except ValueError as error:
        raise InputError(
            column="--tasks",
            found=repr(text),
            expected="venus:N, venus:all, or with a load such as venus:1000@0.8",
            action="Write it in that form.",
        ) from error
    on_bad = "skip" if skip_bad else "raise"
    tasks, source = venus(n, rng=_rng(seed, 0), gpus=len(cluster), load=load, file=trace, on_bad=on_bad)
    typer.echo(f"{source.report()}; {source.origin}", err=True)
    return tasks


def _write(done: Run, out: Path | None, timeline: Path | None) -> None:
    if out is not None:
        from heshare import files
        from heshare.reporting.tables import to_csv

        files.write_text(out / "tasks.csv", to_csv(done.to_frame()))
        if done.totals is None:
            files.write_text(out / "timeline.csv", to_csv(done.timeline))
    if timeline is not None:
        from heshare.running.trace_events import write_trace

        write_trace(done, timeline)
