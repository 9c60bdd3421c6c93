"""`heshare live`: comparison of policies on this machine's real GPUs with the simulator."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from heshare.cli import notebook_commands
from heshare.cli.json_output import print_json
from heshare.cli.options import Json, Seed, only_json, parse_duration_s, print_frame, writable_folder
from heshare.ops.executor import execute
from heshare.ops.executor.operator_log import OperatorLog
from heshare.ops.live.live_comparison import (
    DEVICE_MODELS,
    POLICIES,
    LiveComparison,
    LiveComparisonConfig,
    LiveOptions,
    run_live_comparison,
)
from heshare.paper.studies import live_results as results
from heshare.paper.studies.live_results import Results
from heshare.shared.extras import require_extra
from heshare.shared.signals import Interrupted

Policies = Annotated[list[str] | None, typer.Option(help="A policy; may be repeated. The paper's seven unless given.")]


def live(
    devices: Annotated[str, typer.Option(help="nvml for every GPU of this machine, or nvml:0,nvml:1.")] = "nvml",
    policy: Policies = None,
    time: Annotated[
        str, typer.Option(help="Time of this call, after which no further policy begins; one always does.")
    ] = "10m",
    tasks: Annotated[
        int | None, typer.Option(min=1, help="How many tasks; unless given three for each GPU, at least six.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.01, help="Size of the task set: its time with one task after the other, min.")
    ] = 0.5,
    budget: Annotated[str, typer.Option(help="Time to record each type of GPU, such as 15m.")] = "4m",
    allow_clocks: Annotated[
        bool, typer.Option("--allow-clocks", help="Let the recorder and the policies lock clocks.")
    ] = False,
    work: Annotated[
        Path,
        typer.Option(help="Folder of recordings and runs; finished ones are not repeated.", callback=writable_folder),
    ] = Path("build/live"),
    out: Annotated[Path, typer.Option(help="Folder of results, to be committed.", callback=writable_folder)] = Path(
        "data/live"
    ),
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Then draw the paper's figures of these GPUs into a folder in this one.", callback=writable_folder
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Record this machine's GPUs, run every policy on them, and compare with the simulator.

    The same command continues a comparison that its time or an interruption ended.
    """
    config = LiveComparisonConfig(
        devices=devices,
        policies=tuple(policy or POLICIES),
        tasks=tasks,
        minutes=minutes,
        budget_s=parse_duration_s(budget),
        seed=seed,
        allow_clocks=allow_clocks,
    )
    options = LiveOptions(
        execute=execute.ExecutorOptions(log=OperatorLog(sys.stderr)),
        time_s=parse_duration_s(time, "time"),
        report=lambda text: typer.echo(f"{text} ...", err=True),
        progress=not json,
    )
    if figures is not None:
        require_extra("notebooks", "heshare live --figures")

    comparison = compare(config, work, options)
    written = write_and_print(comparison, out, json)
    if figures is not None:
        draw(written, figures, json)


def compare(config: LiveComparisonConfig, work: Path, options: LiveOptions) -> LiveComparison:
    """Run the comparison; an interruption is a message and the exit code of its signal."""
    try:
        return run_live_comparison(config, work, options)
    except (Interrupted, KeyboardInterrupt) as interrupt:
        how = "ended by a signal" if isinstance(interrupt, Interrupted) else "interrupted"
        typer.echo(f"heshare: {how}; the same command continues where it stopped.", err=True)
        raise typer.Exit(128 + getattr(interrupt, "number", signal.SIGINT)) from None


def write_and_print(comparison: LiveComparison, out: Path, json: bool, *, command: str = "heshare live") -> Results:
    """Write the results of `command`, print and return them."""
    written = results.write(comparison, out, command=command)
    table = written.tables["comparison"]
    if json:
        rows = table.to_dict("records")
        print_json({"out": str(written.folder), **written.manifest, "rows": rows})
        return written

    print_frame(results.beside(table), False)
    for model in DEVICE_MODELS:
        jct, energy = (results.worst(table, model, name) for name in ("average JCT", "energy"))
        typer.echo(
            f"{model}: at most {jct:.1f} % off in average JCT, {energy:.1f} % in energy (aim: {results.TARGET_PCT:g})"
        )
    if comparison.emulated:
        typer.echo("The GPUs were emulated stand-ins: nothing was measured on a real one.")
    if comparison.left:
        done, every = len(comparison.measured), len(comparison.config.policies)
        typer.echo(f"{done} of {every} policies have run; the same command continues with {', '.join(comparison.left)}")
    if source := results.source_of(written):
        typer.echo(f"The paper's figures and statements on them: make figures SOURCE={source}")
    typer.echo(f"Written: {written.folder}")
    return written


def draw(written: Results, figures: Path, json: bool) -> None:
    """Draw the paper's figures of the recorded GPUs, as `heshare notebook run --group paper --page`."""
    with only_json(json):
        notebook_commands.run(
            group="paper",
            parameter=[f"source={results.source_of(written)}"],
            out=figures,
            with_page=True,
            quiet=json,
        )
