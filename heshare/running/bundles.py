"""Cells of any kind, computed in bundles wherever an engine runs them; kept at once, found again, none twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from heshare.errors import InputError
from heshare.running import engine as engines
from heshare.running import fingerprint
from heshare.running.cells import Cells, Description, Row, key, plain

Function = Callable[[Sequence[Description]], Iterator[Row]]
"""Computes cells that belong together; yields their rows in order, each as soon as it is known."""


def run_cells(
    function: Function,
    bundles: Sequence[Sequence[Description]],
    *,
    folder: str | Path | None = None,
    engine: Any = engines.LOCAL,
    n_jobs: int = 1,
    progress: bool = False,
    again: bool = False,
    code: str | None = None,
) -> list[Row]:
    """Compute cells with any function; each kept as soon as it is known, none twice.

    Args:
        function: a function of a module: cells of a bundle to their rows, pure. A cell's row must not depend on which
            other cells of its bundle are asked for.
        bundles: cells that are computed together, by one process.
        folder: as in `heshare.running.sweep.sweep`.
        engine: as in `sweep`.
        n_jobs: as in `sweep`.
        progress: as in `sweep`.
        again: as in `sweep`.
        code: what stands for the code that computes them, if that is not this package's (`fingerprint.code`).

    Returns:
        The rows of all cells in the order given; each has been through JSON, found or computed.

    Raises:
        InputError: no such engine, or a worker runs another version of this package.
    """
    engines.check(engine)
    store = None if folder is None else Cells(Path(folder).resolve())
    version = fingerprint.code() if code is None else code
    names = [[key(cell, version) for cell in bundle] for bundle in bundles]
    known: dict[str, Row] = {}
    if store is not None and not again:
        found = {name: store.read(name) for named in names for name in named}
        known = {name: row for name, row in found.items() if row is not None}
    at_home = engine == engines.LOCAL
    jobs = []
    planned = set(known)
    for bundle, named in zip(bundles, names, strict=True):
        left = {name: cell for name, cell in zip(named, bundle, strict=True) if name not in planned}
        if left:
            planned |= left.keys()
            writes = store if at_home else None
            jobs.append(_Job(function, left, writes, again, os.getpid() if at_home else 0, code is None, version))
    with tqdm(total=len(planned), initial=len(known), desc="cells", unit="cell", disable=not progress) as bar:
        for index, rows in engines.each(_work, jobs, engine=engine, n_jobs=n_jobs):
            if store is not None and not at_home:
                _keep(store, jobs[index].cells, rows)
            known |= rows
            bar.update(len(rows))
    return [known[name] for named in names for name in named]


@dataclass(frozen=True, slots=True)
class _Job:
    """What one process is asked to do: cells by name, where to keep them, and what must be as it is here."""

    function: Function
    cells: dict[str, Description]
    store: Cells | None
    again: bool
    parent: int
    own: bool
    version: str


def _work(job: _Job) -> dict[str, Row]:
    """Compute the cells of a job that nobody has finished meanwhile; keep each at once."""
    if job.own and fingerprint.code() != job.version:
        raise InputError(
            column="engine",
            found="a worker with other code, data or libraries than here",
            expected="the same on every machine",
            action="Install the same version of heshare and of the lock on the workers.",
        )
    if job.parent not in (0, os.getpid(), os.getppid()):
        # Whoever asked is gone, killed: nobody reads the answer, and the next sweep must not find this one at work.
        os._exit(1)
    if job.store is None:
        return dict(zip(job.cells, map(plain, job.function(list(job.cells.values()))), strict=True))
    with job.store.claim(list(job.cells)):
        found = {} if job.again else {name: job.store.read(name) for name in job.cells}
        rows = {name: row for name, row in found.items() if row is not None}
        left = {name: cell for name, cell in job.cells.items() if name not in rows}
        for (name, cell), row in zip(left.items(), job.function(list(left.values())) if left else (), strict=True):
            rows[name] = plain(row)
            job.store.write(name, cell, rows[name])
    return rows


def _keep(store: Cells, cells: dict[str, Description], rows: dict[str, Row]) -> None:
    with store.claim(list(cells)):
        for name, row in rows.items():
            store.write(name, cells[name], row)
