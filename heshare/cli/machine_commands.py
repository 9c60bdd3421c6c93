"""`heshare doctor`, `restore` and `clock-service`: this machine's abilities, settings and clocks."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from heshare.cli.options import Json, print_json
from heshare.shared.errors import DeviceError, require


def doctor(json: Json = False) -> None:
    """Report what this machine can do (GPUs, NVML, clocks, MPS, models) and what follows from it.

    Exit code 0 if nothing is left to do, 1 if a run that ended left something that `heshare restore` mends.
    """
    from heshare.ops.probe import probe

    machine: dict[str, Any] = {"python": sys.version.split()[0], **probe()}
    if json:
        print_json(machine)
    else:
        _print_machine(machine)
    if machine["to_restore"]:
        raise typer.Exit(1)


def _print_machine(machine: dict[str, Any]) -> None:
    typer.echo(f"Python {machine['python']}")
    typer.echo(f"NVML: {machine['nvml']}" + (f", driver {machine['driver']}" if machine["driver"] else ""))
    for gpu in machine["gpus"]:
        typer.echo(f"GPU {gpu['index']}: {_gpu_line(gpu)}")
    for name in ("mps_control", "mps_server"):
        typer.echo(f"{name}: {machine[name] or 'not on the PATH'}")
    typer.echo(f"clock control: {_yes(machine['clock_control'])}")
    libraries = [f"{name} {_yes(installed)}" for name, installed in machine["libraries"].items()]
    typer.echo(f"libraries: {', '.join(libraries)}")
    for sentence in machine["follows"]:
        typer.echo(f"- {sentence}")


def _gpu_line(gpu: dict[str, Any]) -> str:
    clocks = gpu["clocks_mhz"]
    parts = [
        str(gpu["name"] or "?"),
        str(gpu["uuid"] or "?"),
        "? MiB" if gpu["memory_mib"] is None else f"{gpu['memory_mib']:.0f} MiB",
        "clocks ?" if clocks is None else f"{clocks[0]} to {clocks[1]} MHz",
        "power ?" if gpu["power_w"] is None else f"{gpu['power_w']:.0f} W ({gpu['power_kind']})",
        "? C" if gpu["temperature_c"] is None else f"{gpu['temperature_c']:.0f} C",
        f"GPM {_yes(gpu['gpm'])}",
        f"persistence {_yes(gpu['persistence'])}",
        f"compute mode {gpu['compute_mode'] or '?'}",
        f"MIG {_yes(gpu['mig'])}",
    ]
    return ", ".join(parts)


def _yes(value: bool | None) -> str:
    return "?" if value is None else "yes" if value else "no"


def restore(json: Json = False) -> None:
    """Clean up after a killed run: end its processes and MPS daemons, unlock the clocks that it locked.

    Exit code 0, or 2 if a clock could not be unlocked. Notes of other hosts and containers are listed and left alone.
    """
    from heshare.ops.clocks import clock_notes
    from heshare.ops.executor.watchdog import clean_up_killed_runs
    from heshare.ops.state.run_note import noted_runs

    runs = clean_up_killed_runs()
    clocks = clock_notes.restore()
    left = [*[run.text for run in noted_runs()], *clocks.left]
    if json:
        rows = [{"folder": run.folder, "processes_ended": run.ended} for run in runs]
        print_json({"restored": clocks.unlocked, "runs": rows, "left": left, "refused": clocks.refused})
    else:
        for run in runs:
            typer.echo(f"The run in {run.folder} was killed: {run.ended} processes ended, its GPUs are free again.")
        if clocks.unlocked:
            typer.echo(f"Clocks unlocked: {', '.join(clocks.unlocked)}")
        for text in left:
            typer.echo(f"Left alone: {text}")
        if not (runs or clocks.unlocked or left or clocks.refused):
            typer.echo("HeShare has changed no GPU settings, so there is nothing to restore.")
    if clocks.refused:
        raise DeviceError(" ".join(clocks.refused))


def clock_service(
    socket: Annotated[Path, typer.Option(help="Where to listen; systemd's socket is used instead if it gives one.")] = (
        Path("/run/heshare/clocks.sock")
    ),
    group: Annotated[
        str | None, typer.Option(help="The group that may connect; by default that of the service.", show_default=False)
    ] = None,
    mode: Annotated[str, typer.Option(help="The mode of the socket, octal.")] = "660",
    limits: Annotated[Path, typer.Option(help="The limits of the cards (TOML); root's, writable by nobody else.")] = (
        Path("/etc/heshare/clocks.toml")
    ),
    state: Annotated[Path, typer.Option(help="A folder of its own, for notes of clocks that are locked.")] = (
        Path("/var/lib/heshare-clocks")
    ),
) -> None:
    """Set SM clocks for runs that lack the right: a small service, run as root or with CAP_SYS_ADMIN.

    Runs ask it over a UNIX socket, and need no right of their own. A card's clock is given back when the run that has
    it ends, however that ends, and when this service does; after a kill at its next start.
    """
    from heshare.ops.clocks.clock_service import run_clock_service

    good = len(mode) <= 4 and set(mode) <= set("01234567") and int(mode or "0", 8) & 0o7117 == 0
    require("--mode", mode, good, "an octal mode without rights to execute and for others, such as 660")
    if not run_clock_service(socket, group=group, mode=int(mode, 8), limits=limits, state=state):
        raise typer.Exit(1)
