"""`heshare profile` and `heshare calibrate`: take measurements of a device, and fit the emulated one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heshare.cli.common import Json, Seed, emit, emit_json


def profile(
    device: Annotated[str, typer.Option(help="What to record, such as emulated:T4.")],
    out: Annotated[Path, typer.Option(help="Folder of profiles; the table becomes OUT/<gpu>/profile.csv.")],
    samples: Annotated[int, typer.Option(min=0, help="Samples beside the workloads alone.")] = 334,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Record a GPU's profile; an interrupted recording goes on where it stopped."""
    from heshare.profiles.record import profile as record
    from heshare.profiles.regenerate import open_device

    path = record(open_device(device, seed=seed), out, samples=samples, seed=seed, progress=not json)
    if json:
        emit_json({"profile": str(path)})
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
