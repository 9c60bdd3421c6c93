"""`heshare doctor`, a check of this machine, and `heshare restore`, the cleanup after a killed run."""

import sys
from time import perf_counter
from typing import Annotated, Any

import typer

from heshare.cli.json_output import print_json
from heshare.cli.options import Json
from heshare.shared.errors import DeviceError

COMPILED = ("heshare:trade-off", "random:all-at-once", "heshare+:trade-off", "heshare+-online:trade-off", "fikit")
"""Policies whose runs of a small task set compile all numba functions of plans and runs."""


def doctor(
    json: Json = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="Instead: compile the code and train the predictor now, before first use.")
    ] = False,
) -> None:
    """Check this machine (GPUs, NVML, clocks, MPS, models) and print what to do next.

    Exit code 0 if jobs can run on every GPU, 1 if there is no GPU, if one is unusable, or if a run that ended left
    something for `heshare restore` to clean up.

    With --compile numeric code is compiled for this machine and the predictor is trained, as by the first plan and run,
    unless they are cached. Exit code 0.
    """
    if compile:
        taken_s = _compile()
        if json:
            print_json({"compiled_in_s": round(taken_s, 1)})
        else:
            typer.echo(f"Compiled and trained in {taken_s:.0f} s")
        return

    from heshare.ops.probe import probe

    machine: dict[str, Any] = {"python": sys.version.split()[0], **probe()}
    if json:
        print_json(machine)
    else:
        _print_machine(machine)
    if machine["obstacles"] or machine["to_restore"]:
        raise typer.Exit(1)


def _compile() -> float:
    # Returns the time taken, s.
    import heshare as hs

    began_s = perf_counter()
    for policy in COMPILED:
        hs.run(12, "2xT4,1xV100,1xA100", policy)
    return perf_counter() - began_s


def _print_machine(machine: dict[str, Any]) -> None:
    typer.echo(f"Python {machine['python']}")
    nvml = machine["nvml"].removeprefix("NVML: ")
    typer.echo(f"NVML: {nvml}" + (f", driver {machine['driver']}" if machine["driver"] else ""))
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

    Exit code 0, or 2 if something could not be restored. State files of other hosts and containers are left unchanged.
    """
    from heshare.ops import cleanup
    from heshare.ops.state.run_state_file import find_runs

    restored = cleanup.restore()
    left = [*[run.text for run in find_runs()], *restored.left]
    if json:
        rows = [{"folder": run.folder, "processes_ended": run.ended} for run in restored.runs]
        print_json({"restored": restored.unlocked, "runs": rows, "left": left, "refused": restored.refused})
    else:
        for run in restored.runs:
            typer.echo(f"The run in {run.folder} was killed: {run.ended} processes ended, its GPUs are free again.")
        if restored.unlocked:
            typer.echo(f"Clocks unlocked: {', '.join(restored.unlocked)}")
        for text in left:
            typer.echo(f"Left alone: {text}")
        if not (restored.runs or restored.unlocked or left or restored.refused):
            typer.echo("HeShare has changed no GPU settings, so there is nothing to restore.")
    if restored.refused:
        raise DeviceError(" ".join(restored.refused))
