"""`heshare status`, `top`, `drain` and `stop`: see and end a run on real GPUs from another terminal."""

from pathlib import Path
from typing import Annotated

import typer

from heshare.cli.options import Json, print_json

RunFolder = Annotated[Path, typer.Argument(help="The folder of the run.", metavar="RUN", show_default=False)]


def status(run: RunFolder, json: Json = False) -> None:
    """Show the state of a run on real GPUs, from its journal, while it goes on or afterwards."""
    from heshare.ops.steering.run_status import run_status

    found = run_status(run)
    if json:
        print_json(found.as_dict())
    else:
        typer.echo(found.text())


def top(
    run: RunFolder,
    interval: Annotated[float, typer.Option(min=0.5, max=3600.0, help="Time between two looks, s.")] = 2.0,
) -> None:
    """Watch a run on real GPUs in the terminal, from its journal; q or Ctrl-C ends it. Elsewhere, print it once."""
    from heshare.ops.metrics.run_top import show

    show(run, interval_s=interval)


def drain(run: RunFolder) -> None:
    """Have a run start nothing more, and end when what runs has ended; `heshare run --resume` continues it."""
    from heshare.ops.steering.run_control import DRAIN, ask

    ask(run, DRAIN)
    typer.echo(f"Requested: {run} starts nothing more, and ends when what runs has ended.")


def stop(run: RunFolder) -> None:
    """Have a run end now, in order, as SIGTERM does; `heshare run --resume` continues it."""
    from heshare.ops.steering.run_control import STOP, ask

    ask(run, STOP)
    typer.echo(f"Requested: {run} ends its jobs and gives its GPUs back.")
