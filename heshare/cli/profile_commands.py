"""`heshare profile`, `trace-kernels`, `regenerate-profiles` and `calibrate`: recordings and the fitted device model."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heshare.cli import options
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.inputs.bounds import MOST_BATCH, MOST_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heshare.devices.device import Device


def profile(
    device: Annotated[str | None, typer.Option(help="The device to record, such as emulated:T4 or nvml:0.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of profiles; the table becomes OUT/<gpu>/profile.csv.", callback=options.writable_folder
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, max=MOST_SAMPLES, help="Samples in addition to each workload alone.")
    ] = 334,
    budget: Annotated[
        str | None, typer.Option(help="Time for the recording, such as 15m; the most informative settings come first.")
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, max=MOST_SAMPLES, help="Visits to each sample; with --budget the plan chooses them.")
    ] = 5,
    clocks: Annotated[bool, typer.Option("--clocks", help="Set SM clocks of a real GPU too.")] = False,
    kernels: Annotated[bool, typer.Option(help="On a real GPU, trace each workload's kernels afterwards.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its duration; measure nothing.")
    ] = False,
    workload: Annotated[
        list[str] | None, typer.Option(help="Record this workload of the catalogue too; may be repeated.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Check a recorded profile: a folder of profiles or a table; measure nothing.")
    ] = None,
    accept: Annotated[Path | None, typer.Option(help="Accept a table that was changed after it was recorded.")] = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Record a GPU's profile; the same command continues an interrupted recording."""
    from heshare.profiles import manifest

    if check is not None:
        _check(check, json)
        return
    if accept is not None:
        _print_path("manifest", manifest.accept(accept), json)
        return
    if device is not None and dry_run:
        _print_plan(device, samples, budget, repeats, clocks, workload or [], seed, json)
        return
    if device is None or out is None:
        raise typer.BadParameter("Name the device with --device and the folder with --out.")
    from heshare.ops.open_device import opened
    from heshare.ops.recording.profile_device import profile as record
    from heshare.profiles.visit import MeasurementProtocol

    budget_s = None if budget is None else options.parse_duration_s(budget)
    parts = [
        f"--device {device}",
        f"--samples {samples}" if budget_s is None else f"--budget {budget}",
        f"--repeats {repeats}",
        f"--seed {seed}",
        *(["--clocks"] if clocks else []),
        *([] if kernels else ["--no-kernels"]),
        *(f"--workload {name}" for name in workload or ()),
    ]
    with options.told("profile", quiet), opened(device, seed=seed, clocks=clocks) as gpu:
        path = record(
            gpu,
            out,
            samples=samples,
            budget_s=budget_s,
            clocks=clocks or gpu.provenance == "emulated",
            seed=seed,
            protocol=MeasurementProtocol(repeats=repeats),
            command=" ".join(["heshare profile", *parts]),
            more_models=workload or (),
            progress=not quiet,
        )
    if kernels:
        _trace_too(gpu, path, workload or ())
    _print_path("profile", path, json)


def _trace_too(gpu: Device, table: Path, more_models: Sequence[str]) -> None:
    from heshare.lab.systems.fikit import kernel_table
    from heshare.ops.recording import kernel_recorder
    from heshare.profiles.design import traced_workloads

    uuid = getattr(gpu, "uuid", None)
    if gpu.provenance != "measured" or not isinstance(uuid, str):
        return  # an emulated or replayed device runs no kernels
    workloads, path = traced_workloads(gpu.gpu, more_models), table.with_name(kernel_table.NAME)
    try:
        kernel_recorder.record(workloads, gpu.gpu.name, path, gpu_uuid=uuid)
    except (DeviceError, InputError) as error:
        # A profiler that does not work leaves the profile as good as it is.
        typer.echo(f"heshare: no kernel traces: {error}", err=True)


def _check(path: Path, json: bool) -> None:
    from heshare.ops.recording.profile_check import check_profile, summary

    found = check_profile(path)
    text, errors = summary(path, found), any(finding.level == "error" for finding in found)
    if json:
        options.print_json({"usable": not errors, "summary": text, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            typer.echo(str(finding))
        typer.echo(text)
    if errors:
        raise typer.Exit(2)


def _print_plan(
    device: str,
    samples: int,
    budget: str | None,
    repeats: int,
    clocks: bool,
    more_models: list[str],
    seed: int,
    json: bool,
) -> None:
    from heshare.ops.open_device import opened
    from heshare.ops.recording.budget_plan import START_S, forecast
    from heshare.ops.recording.profile_device import planned_steps
    from heshare.profiles.visit import MeasurementProtocol

    protocol, budget_s = (
        MeasurementProtocol(repeats=repeats),
        None if budget is None else options.parse_duration_s(budget),
    )
    with opened(device, seed=seed, clocks=clocks) as gpu:
        live = gpu.provenance == "measured"
        steps = planned_steps(
            gpu, samples, budget_s, clocks=clocks or not live, seed=seed, repeats=repeats, more_models=more_models
        )
        visits = forecast(steps, protocol, budget_s, start_s=START_S if live else 0.0)
        name = f"{gpu.gpu.name} ({gpu.provenance})"
    points = sum(visit.points for visit in visits)
    total_s = visits[-1].begin_s + visits[-1].took_s if visits else 0.0
    if json:
        plan_rows = [asdict(visit) for visit in visits]
        options.print_json({"gpu": name, "points": points, "minutes": total_s / 60, "plan": plan_rows})
        return
    typer.echo("minute  points  what")
    points_so_far = 0
    for visit in visits:
        points_so_far += visit.points
        typer.echo(f"{visit.begin_s / 60:6.1f}  {points_so_far:6d}  {visit.what}")
    start_min = sum(visit.start_s for visit in visits) / 60
    typer.echo(f"{name}: {points} points in {total_s / 60:.1f} min (about {start_min:.1f} min of it to start tasks)")


def calibrate(json: options.Json = False) -> None:
    """Fit the device model again: rewrite its constants; print errors and coverage on points left out of the fit."""
    from heshare.shared.processes import SAME_BYTES, child_environment, has_same_bytes

    if not has_same_bytes():  # too late in a process that has loaded numpy
        command = [sys.executable, "-m", "heshare", "calibrate", *(["--json"] if json else [])]
        raise typer.Exit(subprocess.call(command, env=child_environment(**SAME_BYTES)))
    from heshare.lab.calibration.calibrate import recalibrate

    tables = recalibrate()
    if json:
        options.print_json({name: options.to_records(table.round(3)) for name, table in tables.items()})
        return
    typer.echo(tables["errors"].to_string(index=False, float_format="%.2f", na_rep=""))
    typer.echo("\nHow often the stated intervals hold on those points, %, and how sharp they are:")
    typer.echo(tables["coverage"].to_string(index=False, float_format="%.3g"))
    typer.echo("\nErrors on each public record, left out whole, %:")
    typer.echo(tables["laboratories"].drop(columns=["without", "note"]).to_string(index=False, float_format="%.3g"))


def trace_kernels(
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of profiles; the table becomes OUT/<gpu>/kernels.csv.", callback=options.writable_folder
        ),
    ],
    device: Annotated[str, typer.Option(help="A GPU of this machine, such as nvml:0.")] = "nvml:0",
    repeats: Annotated[int, typer.Option(min=1, max=MOST_SAMPLES, help="Iterations to trace.")] = 5,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(min=1, max=MOST_BATCH, help="An inference batch size; may be repeated. 1 and 8 unless given."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model of Table IV; may be repeated. All unless given.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Record the kernels of each model alone on a real GPU; the same command continues an interrupted recording."""
    from heshare.ops.recording.kernel_recorder import BATCH_SIZES, record_device

    path = record_device(device, out, model_names=model or (), batch_sizes=batch_size or BATCH_SIZES, repeats=repeats)
    _print_path("kernels", path, json)


def regenerate_profiles(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of profiles; data/profiles/emulated unless given.", callback=options.writable_folder),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, max=MOST_SAMPLES, help="Training samples over T4, V100 and A100 together.")
    ] = 1000,
    noise_of: Annotated[str, typer.Option(help="A recorded GPU, such as H100, whose repeat noise to use.")] = "",
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Record the profiles of the emulated T4, V100 and A100 again: needed when the device model's constants change."""
    from heshare.ops.recording.regenerate_profiles import regenerate

    paths = regenerate(out, samples=samples, seed=seed, noise_of=noise_of, progress=not quiet)
    if json:
        options.print_json({"profiles": [str(path) for path in paths]})
        return
    for path in paths:
        typer.echo(f"Written: {path}")


def _print_path(what: str, path: Path, json: bool) -> None:
    if json:
        options.print_json({what: str(path)})
    else:
        typer.echo(f"Written: {path}")
