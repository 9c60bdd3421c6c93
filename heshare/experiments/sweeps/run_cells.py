"""Cells of any kind, computed in bundles by an engine: each is stored at once, and none is computed twice."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from heshare.errors import InputError
from heshare.experiments.sweeps import hashes
from heshare.experiments.sweeps.cell_store import CellStore, Description, Row, cell_key, plain_row
from heshare.experiments.sweeps.engine import LOCAL, check_engine, map_unordered

ComputeCells = Callable[[Sequence[Description]], Iterator[Row]]
"""Computes the cells of a bundle; yields their rows in order, each as soon as it is known."""


def run_cells(
    compute: ComputeCells,
    bundles: Sequence[Sequence[Description]],
    *,
    folder: str | Path | None = None,
    engine: Any = LOCAL,
    n_jobs: int = 1,
    progress: bool = False,
    again: bool = False,
    code: str | None = None,
) -> list[Row]:
    """Compute cells with any function.

    Args:
        compute: a function of a module, pure. A cell's row must not depend on which other cells of its bundle are
            computed.
        bundles: cells that are computed together, by one process.
        folder: where finished cells are stored and looked up; None stores nothing.
        engine: see `heshare.experiments.sweeps.engine.map_unordered`.
        n_jobs: processes of `joblib` and `dask`.
        progress: show a progress bar over cells; those of the folder are counted from the start.
        again: compute every cell again, even if it is in the folder.
        code: a text in place of `code_hash()`, if other code computes the cells.

    Returns:
        The rows of all cells in the order given; each has been through JSON, whether read or computed.

    Raises:
        InputError: no such engine, or a worker runs another version of this package.
    """
    check_engine(engine)
    store = None if folder is None else CellStore(Path(folder).resolve())
    version = hashes.code_hash() if code is None else code
    names = [[cell_key(cell, version) for cell in bundle] for bundle in bundles]
    known: dict[str, Row] = {}
    if store is not None and not again:
        stored = {name: store.read(name) for bundle in names for name in bundle}
        known = {name: row for name, row in stored.items() if row is not None}
    local = engine == LOCAL
    jobs = []
    planned = set(known)
    for bundle, bundle_names in zip(bundles, names, strict=True):
        missing = {name: cell for name, cell in zip(bundle_names, bundle, strict=True) if name not in planned}
        if missing:
            planned |= missing.keys()
            # Other machines need not see the folder: what they compute is stored here.
            job_store = store if local else None
            jobs.append(_Job(compute, missing, job_store, again, os.getpid() if local else 0, code is None, version))
    with tqdm(total=len(planned), initial=len(known), desc="cells", unit="cell", disable=not progress) as bar:
        for index, rows in map_unordered(_run_job, jobs, engine=engine, n_jobs=n_jobs):
            if store is not None and not local:
                _store_rows(store, jobs[index].cells, rows)
            known |= rows
            bar.update(len(rows))
    return [known[name] for bundle in names for name in bundle]


@dataclass(frozen=True, slots=True)
class _Job:
    """The part of a sweep that one process computes.

    Attributes:
        compute: computes the cells.
        cells: descriptions by name.
        store: where to store them; None if the caller does.
        again: whether stored cells are computed again.
        parent: the process id of a caller on this machine; 0 if it may be another machine.
        packaged: whether the code is this package's, so that its hash must be the caller's.
        version: the caller's hash of its code.
    """

    compute: ComputeCells
    cells: dict[str, Description]
    store: CellStore | None
    again: bool
    parent: int
    packaged: bool
    version: str


def _run_job(job: _Job) -> dict[str, Row]:
    """Compute the cells of a job that no other process has finished meanwhile; store each at once."""
    if job.packaged and hashes.code_hash() != job.version:
        raise InputError(
            "a worker with other code, data or libraries than here",
            "the same on every machine",
            "Install the same version of heshare and of the lock on the workers.",
            column="engine",
        )
    if job.parent not in (0, os.getpid(), os.getppid()):
        # The caller was killed: no process reads the result, and a sweep that is started again must not wait for it.
        os._exit(1)
    if job.store is None:
        return dict(zip(job.cells, map(plain_row, job.compute(list(job.cells.values()))), strict=True))
    with job.store.claim(list(job.cells)):
        stored = {} if job.again else {name: job.store.read(name) for name in job.cells}
        rows = {name: row for name, row in stored.items() if row is not None}
        missing = {name: cell for name, cell in job.cells.items() if name not in rows}
        computed = job.compute(list(missing.values())) if missing else ()
        for (name, cell), row in zip(missing.items(), computed, strict=True):
            rows[name] = plain_row(row)
            job.store.write(name, cell, rows[name])
    return rows


def _store_rows(store: CellStore, cells: dict[str, Description], rows: dict[str, Row]) -> None:
    with store.claim(list(cells)):
        for name, row in rows.items():
            store.write(name, cells[name], row)
