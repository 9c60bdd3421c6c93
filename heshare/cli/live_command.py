"""`heshare live`: comparison of policies on this machine's real GPUs with the simulator."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from heshare.cli.json_output import print_json
from heshare.cli.options import Json, Seed, parse_duration_s, print_frame, writable_folder
from heshare.ops.executor import execute
from heshare.ops.executor.operator_log import OperatorLog
from heshare.ops.live import live_comparison
from heshare.ops.live.live_comparison import DEVICE_MODELS, LiveComparison
from heshare.paper.studies import live_results as results
from heshare.shared.signals import Interrupted

Policies = Annotated[list[str] | None, typer.Option(help="A policy; may be repeated. The paper's seven unless given.")]


def live(
    devices: Annotated[str, typer.Option(help="nvml for every GPU of this machine, or nvml:0,nvml:1.")] = "nvml",
    policy: Policies = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks.")] = 24,
    minutes: Annotated[
        float, typer.Option(min=0.01, help="Size of the task set: its time with one task after the other, min.")
    ] = 6.0,
    budget: Annotated[str, typer.Option(help="Time to record each type of GPU, such as 15m.")] = "15m",
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
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Record this machine's GPUs, run every policy on them, and compare with the simulator.

    The same command continues an interrupted comparison. Without a real GPU it stops with an error.
    """
    config = live_comparison.LiveComparisonConfig(
        devices=devices,
        policies=tuple(policy or live_comparison.POLICIES),
        tasks=tasks,
        minutes=minutes,
        budget_s=parse_duration_s(budget),
        seed=seed,
        allow_clocks=allow_clocks,
    )
    options = live_comparison.LiveOptions(
        execute=execute.ExecutorOptions(log=OperatorLog(sys.stderr)),
        report=lambda text: typer.echo(f"{text} ...", err=True),
        progress=not json,
    )
    try:
        comparison = live_comparison.run_live_comparison(config, work, options)
    except (Interrupted, KeyboardInterrupt) as interrupt:
        how = "ended by a signal" if isinstance(interrupt, Interrupted) else "interrupted"
        typer.echo(f"heshare: {how}; the same command continues where it stopped.", err=True)
        raise typer.Exit(128 + getattr(interrupt, "number", signal.SIGINT)) from None
    write_and_print(comparison, work, out, json)


def write_and_print(
    comparison: LiveComparison, work: Path, out: Path, json: bool, *, command: str = "heshare live"
) -> None:
    """Write the results of `command` and print them."""
    written = results.write(comparison, out, work / "profiles", command=command)
    table = written.tables["comparison"]
    if json:
        rows = table.to_dict("records")
        print_json({"out": str(written.folder), **written.manifest, "rows": rows})
        return
    print_frame(table.drop(columns=["policy"]), False)
    for model in DEVICE_MODELS:
        jct, energy = (results.worst(table, model, name) for name in ("average JCT", "energy"))
        typer.echo(
            f"{model}: at most {jct:.1f} % off in average JCT, {energy:.1f} % in energy (aim: {results.TARGET_PCT:g})"
        )
    if comparison.emulated:
        typer.echo("The GPUs were emulated stand-ins: nothing was measured on a real one.")
    else:
        names = sorted({live.gpu.name for live in comparison.gpus})
        records = ",".join(f"recorded:{written.folder}/profiles/{name}" for name in names)
        typer.echo(f"The paper's figures and statements on them: make figures SOURCE={records}")
    typer.echo(f"Written: {written.folder}")
