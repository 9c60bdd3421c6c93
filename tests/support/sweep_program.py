"""Sweep cheap cells and log each when it begins: `python sweep_program.py FOLDER LOG CELLS PROCESSES`."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from heshare.lab.sweeps.cell_store import CellStore, Description, Row, cell_key
from heshare.lab.sweeps.sweep import run_cells
from heshare.shared.code_version import code_version


def bundles(n: int) -> list[list[dict[str, int]]]:
    """Return bundles of two cells, n in all."""
    return [[{"seed": number, "half": half} for half in (1, 2)] for number in range(n // 2)]


def log_and_compute(cells: Sequence[Description]) -> Iterator[Row]:
    """Yield the mean of numbers drawn with each cell's seed; write a cell to the log when it begins."""
    log = os.open(os.environ["SWEEP_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        for cell in cells:
            os.write(log, f"{cell_key(cell, code_version(log_and_compute.__module__))}\n".encode())
            draws = random.Random(cell["seed"] * cell["half"])
            yield {**cell, "mean": sum(draws.random() for _ in range(2000)) / 2000}
    finally:
        os.close(log)


def sweep(folder: Path | None, n: int, n_jobs: int) -> str:
    """Return the rows of all cells as JSON lines."""
    rows = run_cells(log_and_compute, bundles(n), folder=folder, n_jobs=n_jobs)
    return "".join(json.dumps(row) + "\n" for row in rows)


def finished(folder: Path, n: int) -> set[str]:
    """Return the names of the cells that are finished and whole."""
    names = [cell_key(cell, code_version(log_and_compute.__module__)) for bundle in bundles(n) for cell in bundle]
    return set(CellStore(folder).read_all(names))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    # By its name: other processes, and the key of a cell, need the module's file.
    from support import sweep_program

    place, log, count, jobs = sys.argv[1:]
    os.environ["SWEEP_LOG"] = log
    sys.stdout.write(sweep_program.sweep(Path(place), int(count), int(jobs)))
