"""`heshare doctor` and `heshare restore`: what this machine can do, and putting back what was changed."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from heshare.cli.common import Json, emit_json


def doctor(
    hosts: Annotated[
        str | None,
        typer.Option(help="Ask the workers of a Dask scheduler, dask://HOST:PORT, instead.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Say what this machine can and cannot do (GPUs, NVML, clocks, MPS, models) and what follows from it."""
    from heshare.devices.probe import probe

    if hosts is not None:
        _of_hosts(hosts, json)
        return
    found: dict[str, Any] = {"python": sys.version.split()[0], **probe()}
    if json:
        emit_json(found)
    else:
        _show(found)


def _of_hosts(address: str, json: bool) -> None:
    """The same of every host."""
    from heshare.running.hosts import connected, offers

    with connected(address) as client:
        every = offers(client)
    if json:
        emit_json([{**one.found, "host": one.host, "offers": one.uuids} for one in every])
        return
    for one in every:
        typer.echo(f"Host {one.host}, which offers {', '.join(one.uuids) or 'no GPU'}")
        _show(one.found)


def _show(found: dict[str, Any]) -> None:
    typer.echo(f"Python {found['python']}")
    typer.echo(f"NVML: {found['nvml']}" + (f", driver {found['driver']}" if found["driver"] else ""))
    for gpu in found["gpus"]:
        typer.echo(f"GPU {gpu['index']}: {_line(gpu)}")
    for name in ("mps_control", "mps_server"):
        typer.echo(f"{name}: {found[name] or 'not on the PATH'}")
    typer.echo(f"clock control: {'yes' if found['clock_control'] else 'no'}")
    there = [f"{name} {'yes' if there else 'no'}" for name, there in found["libraries"].items()]
    typer.echo(f"libraries: {', '.join(there)}")
    for line in found["follows"]:
        typer.echo(f"- {line}")


def _line(gpu: dict[str, Any]) -> str:
    """One GPU in one line; what it does not tell is a question mark."""
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
    """Put in order what an interrupted run left: its processes, its MPS daemons, the clocks that it locked."""
    from heshare.devices import machine, saved

    runs = machine.sweep()
    done = sorted({uuid for run in runs for uuid in run.restored} | set(saved.restore()))
    if json:
        emit_json({"restored": done, "runs": [{"folder": run.folder, "processes_ended": run.ended} for run in runs]})
        return
    for run in runs:
        typer.echo(f"The run in {run.folder} was killed: {run.ended} processes ended, its GPUs are free again.")
    if done:
        typer.echo(f"Clocks left to the card again: {', '.join(done)}")
    elif not runs:
        typer.echo("Nothing is saved: no GPU settings were changed by HeShare, so there is nothing to restore.")
