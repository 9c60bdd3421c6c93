"""`heshare profile` and `heshare calibrate`: take measurements of a device, and fit the emulated one."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heshare.cli.common import Json, Seed, emit, emit_json
from heshare.errors import InputError


def profile(
    device: Annotated[str | None, typer.Option(help="What to record, such as emulated:T4 or nvml:0.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of profiles; the table becomes OUT/<gpu>/profile.csv.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Samples beside the workloads alone.")] = 334,
    budget: Annotated[str | None, typer.Option(help="Time to spend, such as 15m: most informative first.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Visits to each sample; a budget's plan has its own.")] = 5,
    clocks: Annotated[bool, typer.Option("--clocks", help="Set the SM clock of a real GPU as well.")] = False,
    kernels: Annotated[bool, typer.Option(help="Trace each workload's kernels on a real GPU as well.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and what it will take; measure nothing.")
    ] = False,
    accept: Annotated[Path | None, typer.Option(help="Take a table that was changed after it was recorded.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Record a GPU's profile; an interrupted recording goes on where it stopped."""
    from heshare.profiles import manifest

    if accept is not None:
        _tell("manifest", manifest.accept(accept), json)
        return
    if device is not None and dry_run:
        _plan(device, samples, budget, repeats, clocks, kernels, seed, json)
        return
    if device is None or out is None:
        raise typer.BadParameter("Say what to record with --device, and where to with --out.")
    from heshare.devices.open import opened
    from heshare.profiles.kernel_trace import tracer
    from heshare.profiles.protocol import Protocol
    from heshare.profiles.record import profile as record

    spend_s = None if budget is None else seconds(budget)
    wanted = f"--samples {samples}" if spend_s is None else f"--budget {budget}"
    options = [
        f"--device {device}",
        wanted,
        f"--repeats {repeats}",
        f"--seed {seed}",
        *(["--clocks"] if clocks else []),
        *([] if kernels else ["--no-kernels"]),
    ]
    with opened(device, seed=seed, clocks=clocks) as gpu, ExitStack() as ends:
        trace = tracer(gpu) if kernels else None
        if trace is not None:
            ends.callback(trace.close)
        path = record(
            gpu,
            out,
            samples=samples,
            budget_s=spend_s,
            clocks=clocks or gpu.provenance == "emulated",
            seed=seed,
            protocol=Protocol(repeats=repeats),
            command=" ".join(["heshare profile", *options]),
            trace=trace,
            progress=not json,
        )
    _tell("profile", path, json)


def _plan(
    device: str, samples: int, budget: str | None, repeats: int, clocks: bool, kernels: bool, seed: int, json: bool
) -> None:
    """Print the visits in their order, with the minute and the points so far."""
    from heshare.devices.open import opened
    from heshare.profiles.forecast import FREE, Costs, forecast
    from heshare.profiles.protocol import Protocol
    from heshare.profiles.record import items

    protocol, spend_s = Protocol(repeats=repeats), None if budget is None else seconds(budget)
    with opened(device, seed=seed, clocks=clocks) as gpu:
        live = gpu.provenance == "measured"
        plan = items(
            gpu, samples, spend_s, clocks=clocks or not live, seed=seed, repeats=repeats, kernels=kernels and live
        )
        planned = forecast(plan, protocol, spend_s, costs=Costs() if live else FREE)
        name = f"{gpu.gpu.name} ({gpu.provenance})"
    points, whole_s = sum(one.points for one in planned), planned[-1].begin_s + planned[-1].took_s if planned else 0.0
    if json:
        emit_json({"gpu": name, "points": points, "minutes": whole_s / 60, "plan": [asdict(one) for one in planned]})
        return
    typer.echo("minute  points  what")
    so_far = 0
    for one in planned:
        so_far += one.points
        typer.echo(f"{one.begin_s / 60:6.1f}  {so_far:6d}  {one.what}")
    starting = (
        "nothing takes time to start"
        if not live
        else f"about {sum(one.start_s for one in planned) / 60:.1f} min of it to start and stop tasks, an assumption"
    )
    typer.echo(f"{name}: {points} points in {whole_s / 60:.1f} min ({starting})")


def seconds(text: str) -> float:
    """A time such as `900`, `900s`, `15m` or `1.5h`, in seconds.

    Raises:
        InputError: another form, or no time at all.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text.strip())
    spend_s = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"] if found else 0.0
    if not spend_s > 0:
        raise InputError(
            column="budget", found=repr(text), expected="a time such as 90s, 15m or 2h", action="Say how long."
        )
    return spend_s


def _tell(what: str, path: Path, json: bool) -> None:
    if json:
        emit_json({what: str(path)})
    else:
        typer.echo(f"Written: {path}")


def calibrate(json: Json = False) -> None:
    """Fit the device model again: rewrite its constants and print its errors on points left out of the fit."""
    from contextlib import redirect_stdout
    from io import StringIO

    import pandas as pd

    from heshare import files
    from heshare.devices.calibration import main as fit

    if not json:
        fit()
        return
    with redirect_stdout(StringIO()):
        fit()
    emit(pd.read_csv(files.data("calibration", "errors.csv")), True)
