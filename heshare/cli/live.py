"""`heshare live`: policies on this machine's GPUs for real, beside what the simulator says of the same."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heshare.cli.common import Json, Seed, emit, emit_json

if TYPE_CHECKING:
    from heshare.running.live.trial import Trial

Policies = Annotated[list[str] | None, typer.Option(help="A policy; may be repeated. The paper's seven unless given.")]


def live(
    devices: Annotated[str, typer.Option(help="nvml for every GPU of this machine, or nvml:0,nvml:1.")] = "nvml",
    policy: Policies = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks.")] = 24,
    minutes: Annotated[float, typer.Option(min=0.01, help="Size of the task set: minutes, one after the other.")] = 6.0,
    budget: Annotated[str, typer.Option(help="Time to record each type of GPU, such as 15m.")] = "15m",
    allow_clocks: Annotated[bool, typer.Option("--allow-clocks", help="Let clocks be set.")] = False,
    work: Annotated[Path, typer.Option(help="Folder of records and runs; what is there is not done again.")] = Path(
        "build/live"
    ),
    out: Annotated[Path, typer.Option(help="Folder of results, which is meant for committing.")] = Path("data/live"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Record this machine's GPUs, run every policy for real, and compare with the simulator; interrupted, it goes on.

    It never falls back to an emulated GPU: without a real one it stops and says so.
    """
    from heshare.cli.recording import seconds
    from heshare.devices.interrupts import Interrupted
    from heshare.running import execute
    from heshare.running.attendant import terminal
    from heshare.running.live import trial

    asked = trial.Asked(
        devices=devices,
        policies=tuple(policy or trial.POLICIES),
        tasks=tasks,
        minutes=minutes,
        budget_s=seconds(budget),
        seed=seed,
        allow_clocks=allow_clocks,
    )
    ways = trial.Ways(
        execute=execute.Ways(show=terminal()),
        say=lambda text: typer.echo(f"{text} ...", err=True),
        progress=not json,
    )
    try:
        done = trial.conduct(asked, work, ways)
    except Interrupted as ended:
        typer.echo("heshare: ended by a signal; the same command goes on where it stopped.", err=True)
        raise typer.Exit(128 + ended.number) from None
    except KeyboardInterrupt:
        typer.echo("heshare: interrupted; the same command goes on where it stopped.", err=True)
        raise typer.Exit(128 + signal.SIGINT) from None
    tell(done, work, out, json)


def tell(done: Trial, work: Path, out: Path, json: bool, *, command: str = "heshare live") -> None:
    """Write the results of `command` and print them."""
    from heshare.reporting import live as results
    from heshare.running.live.simulating import MODELS

    written = results.write(done, out, work / "profiles", command=command)
    if json:
        rows = written.tables["comparison"].to_dict("records")
        emit_json({"out": str(written.folder), **written.manifest, "rows": rows})
        return
    emit(written.tables["comparison"].drop(columns=["policy"]), False)
    for model in MODELS:
        jct, energy = (results.worst(written.tables["comparison"], model, name) for name in ("average JCT", "energy"))
        typer.echo(
            f"{model}: at most {jct:.1f} % off in average JCT, {energy:.1f} % in energy (aim: {results.AIM_PCT:g})"
        )
    untested = written.manifest["claims_untested_for_clocks"]
    if untested:
        typer.echo(f"Clocks stay as they are here, so these claims are not tested: {', '.join(untested)}")
    if done.played:
        typer.echo("A stand-in played the GPUs: nothing was measured on a real one.")
    else:
        records = ",".join(
            f"{written.folder}/profiles/{name}" for name in sorted({card.gpu.name for card in done.cards})
        )
        typer.echo(f"Figs. 1 to 4 and the model's forms: heshare notebook run 01 13 -p source=recorded:{records}")
    typer.echo(f"Written: {written.folder}. Draw it: heshare notebook run 90_live -p results={written.folder}")
