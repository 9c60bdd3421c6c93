"""`heshare profile` and `calibrate`: recordings of GPUs with kernel traces, and the fitted device model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from heshare.cli import options
from heshare.cli.json_output import print_json
from heshare.devices.device import Device
from heshare.lab.calibration.calibrate import recalibrate
from heshare.lab.systems.fikit import kernel_table
from heshare.ops.open_device import opened
from heshare.ops.recording import kernel_recorder
from heshare.ops.recording.budget_plan import START_S, forecast
from heshare.ops.recording.profile_check import check_profile, summary
from heshare.ops.recording.profile_device import default_protocol, planned_steps
from heshare.ops.recording.profile_device import profile as record
from heshare.ops.recording.regenerate_profiles import regenerate
from heshare.profiles import design, manifest
from heshare.profiles.design import traced_workloads
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared.errors import DeviceError, InputError, require
from heshare.shared.inputs.bounds import MOST_SAMPLES
from heshare.shared.processes import SAME_BYTES, child_environment, has_same_bytes


class Kernels(StrEnum):
    """Choices of `--kernels`: when `heshare profile` traces the kernels of workloads on a real GPU."""

    AFTER = "after"
    ONLY = "only"
    NONE = "none"


def profile(
    device: Annotated[str | None, typer.Option(help="The device to record, such as emulated:T4 or nvml:0.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of profiles; the table is OUT/<gpu>/profile.csv.", callback=options.writable_folder),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, max=MOST_SAMPLES, help="Samples in addition to each workload alone.")
    ] = 334,
    budget: Annotated[
        str | None, typer.Option(help="Time for the recording, such as 15m; the most informative settings come first.")
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_SAMPLES,
            help="Visits to each sample (chosen by the plan with --budget), iterations of a kernel trace.",
        ),
    ] = 5,
    clocks: Annotated[bool, typer.Option("--clocks", help="Set SM clocks of a real GPU too.")] = False,
    kernels: Annotated[
        Kernels, typer.Option(help="Trace the kernels of a real GPU after the recording, or only trace, or not.")
    ] = Kernels.AFTER,
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
    if check is not None:
        _check(check, json)
        return
    if accept is not None:
        _print_path("manifest", manifest.accept(accept), json)
        return

    budget_s = None if budget is None else options.parse_duration_s(budget)
    more_models = workload or []
    if device is not None and dry_run:
        _print_plan(device, samples, budget_s, _protocol(budget_s, repeats), clocks, more_models, seed, json)
        return
    if device is None or out is None:
        raise typer.BadParameter("Name the device with --device and the folder with --out.")
    if kernels is Kernels.ONLY:
        _print_path("kernels", _trace_only(device, out, repeats, more_models), json)
        return

    parts = [
        f"--device {device}",
        f"--samples {samples}" if budget_s is None else f"--budget {budget}",
        f"--repeats {repeats}",
        f"--seed {seed}",
        *(["--clocks"] if clocks else []),
        *([] if kernels is Kernels.AFTER else [f"--kernels {kernels}"]),
        *(f"--workload {name}" for name in more_models),
    ]
    with options.working_line("profile", quiet), opened(device, seed=seed, clocks=clocks) as gpu:
        path = record(
            gpu,
            out,
            samples=samples,
            budget_s=budget_s,
            clocks=clocks or gpu.provenance == "emulated",
            seed=seed,
            protocol=_protocol(budget_s, repeats),
            command=" ".join(["heshare profile", *parts]),
            more_models=more_models,
            progress=not quiet,
        )

    if kernels is Kernels.AFTER:
        _trace_too(gpu, path, more_models)
    _print_path("profile", path, json)


def _protocol(budget_s: float | None, repeats: int) -> MeasurementProtocol:
    return replace(default_protocol(budget_s), repeats=repeats)


def _trace_only(device: str, out: Path, repeats: int, more_models: Sequence[str]) -> Path:
    return kernel_recorder.record_device(device, out, model_names=design.model_names(more_models), repeats=repeats)


def _trace_too(gpu: Device, table: Path, more_models: Sequence[str]) -> None:
    if gpu.provenance != "measured" or not gpu.uuid:
        return  # an emulated or replayed device runs no kernels

    workloads = traced_workloads(gpu.gpu, more_models)
    path = table.with_name(kernel_table.NAME)
    try:
        kernel_recorder.record(workloads, gpu.gpu.name, path, gpu_uuid=gpu.uuid)
    except (DeviceError, InputError) as error:
        # The profile is valid without kernel traces.
        typer.echo(f"heshare: no kernel traces: {error}", err=True)


def _check(path: Path, json: bool) -> None:
    found = check_profile(path)
    text = summary(path, found)
    errors = any(finding.level == "error" for finding in found)

    if json:
        print_json({"usable": not errors, "summary": text, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            typer.echo(str(finding))
        typer.echo(text)
    if errors:
        raise typer.Exit(2)


def _print_plan(
    device: str,
    samples: int,
    budget_s: float | None,
    protocol: MeasurementProtocol,
    clocks: bool,
    more_models: Sequence[str],
    seed: int,
    json: bool,
) -> None:
    with opened(device, seed=seed, clocks=clocks) as gpu:
        live = gpu.provenance == "measured"
        steps = planned_steps(
            gpu,
            samples,
            budget_s,
            clocks=clocks or not live,
            seed=seed,
            repeats=protocol.repeats,
            more_models=more_models,
        )
        visits = forecast(steps, protocol, budget_s, start_s=START_S if live else 0.0)
        name = f"{gpu.gpu.name} ({gpu.provenance})"

    points = sum(visit.points for visit in visits)
    total_s = visits[-1].begin_s + visits[-1].took_s if visits else 0.0
    if json:
        plan_rows = [asdict(visit) for visit in visits]
        print_json({"gpu": name, "points": points, "minutes": total_s / 60, "plan": plan_rows})
        return

    typer.echo("minute  points  what")
    points_so_far = 0
    for visit in visits:
        points_so_far += visit.points
        typer.echo(f"{visit.begin_s / 60:6.1f}  {points_so_far:6d}  {visit.what}")
    start_min = sum(visit.start_s for visit in visits) / 60
    typer.echo(f"{name}: {points} points in {total_s / 60:.1f} min (about {start_min:.1f} min of it to start tasks)")


def calibrate(
    profiles: Annotated[
        bool,
        typer.Option("--profiles", help="Instead, record the emulated T4, V100 and A100 with the present constants."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --profiles: the folder; data/profiles/emulated unless given.", callback=options.writable_folder
        ),
    ] = None,
    noise_of: Annotated[
        str | None, typer.Option(help="With --profiles: a recorded GPU, such as H100, whose repeat noise to use.")
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Fit the device model again: rewrite its constants; print errors and coverage on points left out of the fit.

    When the constants have changed, the profiles of the emulated GPUs have to be recorded again: add --profiles.
    """
    for name, value in (("--out", out), ("--noise-of", noise_of)):
        require(name, f"{name} without --profiles", profiles or value is None, "both", "Add --profiles.")
    if profiles:
        _record_emulated(out, noise_of or "", quiet, json)
    else:
        _fit(json)


def _record_emulated(out: Path | None, noise_of: str, quiet: bool, json: bool) -> None:
    paths = regenerate(out, noise_of=noise_of, progress=not quiet)
    if json:
        print_json({"profiles": [str(path) for path in paths]})
        return
    for path in paths:
        typer.echo(f"Written: {path}")


_HEADINGS = {
    "errors": "Errors on half of the settings of each record, which a fit to the other half did not see, %:",
    "coverage": "How often the stated intervals hold on laboratories left out, %, and how sharp they are:",
    "laboratories": "Errors on each laboratory, left out whole, %:",
    "moved": "Which records move which constants, and the part of all information on it that a record holds, %:",
    "language_errors": "Errors on language models, %:",
}
"""What `recalibrate` returns, by name, and what each table is."""


def _fit(json: bool) -> None:
    if not has_same_bytes():  # too late in a process that has loaded numpy
        command = [sys.executable, "-m", "heshare", "calibrate", *(["--json"] if json else [])]
        raise typer.Exit(subprocess.call(command, env=child_environment(**SAME_BYTES)))

    tables = recalibrate(lambda laboratory: typer.echo(f"heshare: fitted without {laboratory}", err=True))
    if json:
        print_json({name: options.to_records(table.round(3)) for name, table in tables.items()})
        return

    for name, heading in _HEADINGS.items():
        typer.echo(f"\n{heading}")
        typer.echo(tables[name].to_string(index=False, float_format="%.3g", na_rep=""))


def _print_path(what: str, path: Path, json: bool) -> None:
    if json:
        print_json({what: str(path)})
    else:
        typer.echo(f"Written: {path}")
