"""Options that several commands share, and the two ways to answer: a small table, or JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

PAPER_CLUSTER = "4xT4,2xV100,2xA100"

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
ClusterText = Annotated[str, typer.Option("--cluster", help="GPUs, such as 4xT4,2xV100,2xA100.")]
TasksText = Annotated[
    str,
    typer.Option(
        "--tasks", help="How many tasks to draw, a CSV file of tasks, or (run) venus:N, venus:all, venus:N@LOAD."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
Load = Annotated[str, typer.Option("--load", help="Which models are drawn: low, medium, high or mixed.")]
Arrivals = Annotated[str, typer.Option("--arrivals", help="at_once, poisson or front_loaded.")]
Trace = Annotated[Path | None, typer.Option("--trace", help="A Helios trace (CSV) to take the durations from.")]
Profiles = Annotated[Path | None, typer.Option("--profiles", help="Profile (CSV or folder) to train the predictor on.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.")]


def plain(value: Any) -> Any:
    """`value` as JSON knows it: NumPy numbers become Python's, what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def emit_json(value: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def emit(frame: pd.DataFrame, as_json: bool, **more: Any) -> None:
    """Print a frame as a table with `more` below it, or all of it as one JSON document with the rows under `rows`."""
    if as_json:
        records = frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
        emit_json({**more, "rows": records})
        return
    from heshare.reporting.tables import cell, to_text

    typer.echo(to_text(frame))
    for name, value in more.items():
        typer.echo(f"{name}: {cell(value)}")
