"""Sweep cheap cells and log each when it begins: `python sweep_program.py FOLDER LOG CELLS PROCESSES`."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from heshare.experiments.sweeps.cell_store import CellStore, Description, Row, cell_key
from heshare.experiments.sweeps.hashes import code_hash
from heshare.experiments.sweeps.sweep import run_cells


def bundles(n: int) -> list[list[dict[str, int]]]:
    """Return bundles of two cells, n in all."""
    return [[{"seed": number, "half": half} for half in (1, 2)] for number in range(n // 2)]


def log_and_compute(cells: Sequence[Description]) -> Iterator[Row]:
    """Yield the mean of numbers drawn with each cell's seed; write a cell to the log when it begins."""
    log = os.open(os.environ["SWEEP_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        for cell in cells:
            os.write(log, f"{cell_key(cell, code_hash())}\n".encode())
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
    return set(CellStore(folder).read_all(cell_key(cell, code_hash()) for bundle in bundles(n) for cell in bundle))


if __name__ == "__main__":
    place, log, count, jobs = sys.argv[1:]
    os.environ["SWEEP_LOG"] = log
    sys.stdout.write(sweep(Path(place), int(count), int(jobs)))
