"""Strict execution of one notebook: errors that papermill ignores are raised, and outputs are written all or none.

Papermill accepts a `SystemExit` in a cell, another kernel of the name `python3`, the caller's working directory and
outputs that were never written. This wrapper uses the kernel of this interpreter and the checkout as working directory,
checks that every code cell completed and that every declared output exists, and only then moves the outputs to their
folder.
"""

import json
import logging
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from heshare.paper.notebooks.parameters import Notebook
from heshare.paper.provenance.run_record import NAME as RECORD
from heshare.paper.provenance.run_record import SOURCE, RunRecord, changed_parameters
from heshare.paper.provenance.sidecar import FIGURE_SUFFIXES, TABLE_SUFFIXES
from heshare.paper.studies import sources
from heshare.shared import files
from heshare.shared.errors import HeShareError
from heshare.shared.extras import without_uri_grammars
from heshare.shared.processes import SAME_BYTES, child_environment

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class NotebookError(HeShareError):
    """A notebook failed, ended early or did not write a declared output."""

    exit_code = 1


class _CellError(NotebookError):
    """A cell failed; `line` is the message without the traceback."""

    def __init__(self, text: str, line: str) -> None:
        super().__init__(text)
        self.line = line

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        # It crosses from the process of a notebook to the one that started it.
        return type(self), (str(self), self.line)


class ParameterError(NotebookError):
    """A notebook of the commit failed with parameters that differ from its profile's."""

    exit_code = 2


class _StartError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class ExecutedNotebook:
    """One executed notebook: its wall time, the paths of its outputs, and the executed copy."""

    name: str
    seconds: float
    outputs: tuple[Path, ...]
    executed: Path
    out: Path
    profile: str


def missing_files(output: str, folder: Path) -> list[str]:
    """Return which files of an output are missing or empty in `folder`.

    `figNN_...` is a figure (PDF, PNG, CSV, JSON), `tableN_...` a table (CSV, Markdown, JSON). `xNNa_...` is a figure, a
    table, both, or data (CSV, JSON): its JSON names its files.
    """
    sidecar = folder / f"{output}.json"
    if output.startswith("x"):
        names = json.loads(sidecar.read_text("utf-8"))["files"] if sidecar.is_file() else [sidecar.name]
    else:
        suffixes = FIGURE_SUFFIXES if output.startswith("fig") else TABLE_SUFFIXES
        names = [f"{output}{suffix}" for suffix in suffixes]
    return [name for name in names if not (folder / name).is_file() or (folder / name).stat().st_size == 0]


def execute(
    notebook: Notebook, parameters: Mapping[str, object], out: Path, copies: Path, record: RunRecord | None = None
) -> ExecutedNotebook:
    """Run `notebook` and put its outputs into the folder `out`, all or none, and the executed copy into `copies`.

    `parameters`, already checked, replace the notebook's defaults. The sidecars of the outputs have the `record`, and
    the SHA-256 of the file as it was read here.

    Raises:
        NotebookError: a cell failed or never ran, or a declared output is missing or empty.
    """
    started_s = perf_counter()
    if record is None:
        changed = changed_parameters(parameters, notebook.defaults)
        record = RunRecord(notebook.name, str(parameters.get("profile", "paper")), changed)

    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    copies.mkdir(parents=True, exist_ok=True)
    executed = copies / notebook.path.name
    staging = Path(tempfile.mkdtemp(prefix=f".{notebook.name}-", dir=out))

    try:
        source = notebook.path.read_bytes()
        replace(record, notebook_sha256=sha256(source).hexdigest()).write(staging)

        text, skipped = without_unanswered(source.decode("utf-8"), str(parameters.get(SOURCE, sources.EMULATED)))
        try:
            run_cells(notebook, text, {**parameters, "out_dir": str(staging)}, executed, files.workplace())
        except _CellError as error:
            if record.changed and not record.edited:
                where = f"The cell and its traceback: {executed}"
                raise ParameterError(f"{notebook.name} with {record.departures()}: {error.line}. {where}") from None
            raise

        (staging / RECORD).unlink(missing_ok=True)
        check_outputs(replace(notebook, outputs=tuple(set(notebook.outputs) - set(skipped))), staging)
        moved = _move_outputs(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # of a failed notebook it is empty
                out.rmdir()
    return ExecutedNotebook(notebook.name, perf_counter() - started_s, moved, executed, out, record.profile)


def without_unanswered(text: str, source: str) -> tuple[str, list[str]]:
    """Return a notebook in which a sentence takes the place of each cell that its source cannot answer.

    Returns:
        The text, and the outputs that those cells would have written.
    """
    content = json.loads(text)
    skipped: list[str] = []
    for cell in content["cells"]:
        lack = sources.without(source, cell.get("metadata", {}).get("tags", []))
        if lack is not None and cell["cell_type"] == "code":
            skipped += re.findall(r"\b(?:fig|table|x)\d+[a-z]*_\w+", "".join(cell["source"]))
            del cell["outputs"], cell["execution_count"]
            cell |= {"cell_type": "markdown", "source": f"Not asked of {source}: {lack}"}
    return json.dumps(content), skipped


def run_cells(notebook: Notebook, text: str, parameters: Mapping[str, object], executed: Path, folder: Path) -> None:
    """Run the cells of a notebook in a new kernel that begins in `folder`; write the executed copy.

    Raises:
        NotebookError: a cell failed or never ran, or the kernel did not start.
    """
    for attempt in (1, 2):
        try:
            with warnings.catch_warnings(action="ignore"):
                _papermill(notebook, text, parameters, executed, folder)
            return
        except _StartError as error:  # two kernels that start at once can choose the same port: retry
            if attempt == 2:
                raise NotebookError(f"{notebook.name}: the kernel did not start, twice: {error}") from None


def _papermill(notebook: Notebook, text: str, parameters: Mapping[str, object], executed: Path, folder: Path) -> None:
    # Imported here: papermill is slow to import, and `missing_files` is needed without it.
    with without_uri_grammars():
        import nbformat
        import papermill
        from papermill.exceptions import PapermillExecutionError

    for name in ("papermill", "traitlets", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    ready: list[bool] = []
    try:
        result = papermill.execute_notebook(
            nbformat.reads(text, as_version=4),  # type: ignore[no-untyped-call]
            str(executed),
            parameters=dict(parameters),
            kernel_name="python3",
            language="python",
            progress_bar=False,
            log_output=False,
            request_save_on_cell_execute=False,
            cwd=str(folder),
            kernel_manager_class=_kernel_manager(),
            on_notebook_start=lambda notebook: ready.append(True),
            start_timeout=120,
        )
    except PapermillExecutionError as error:
        raise _failure(notebook, error) from None
    except (RuntimeError, OSError) as error:
        if not ready:
            raise _StartError(str(error)) from None
        raise NotebookError(f"{notebook.name}: {type(error).__name__}: {error}") from None
    _check_cells(notebook.name, result)


@cache
def _kernel_manager() -> type:
    # `python3` is this interpreter, independent of the kernels that the user has registered.
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class PinnedKernelManager(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            options = ["-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=50"]
            argv = [sys.executable, "-Xfrozen_modules=off", *options]
            return KernelSpec(argv=argv, display_name="Python 3", language="python")

        async def _async_start_kernel(self, **kwargs: Any) -> None:
            kwargs["env"] = environment()
            await super()._async_start_kernel(**kwargs)

        start_kernel = _async_start_kernel

    return PinnedKernelManager


def environment() -> dict[str, str]:
    """Return a kernel's variables: this process's, with threads, time zone and dates pinned."""
    top = files.checkout()
    root = {} if top is None else {"HESHARE_ROOT": str(top)}
    return child_environment(**SAME_BYTES, PYDEVD_DISABLE_FILE_VALIDATION="1", **root)


def _failure(notebook: Notebook, error: Any) -> "_CellError":
    line = f"cell {error.exec_count} failed with {error.ename}: {' '.join(str(error.evalue).split())}"
    traceback = _ANSI.sub("", "\n".join(error.traceback)).strip().splitlines()
    text = "\n".join([f"{notebook.name}: {line}", *("    " + each for each in traceback[-12:])])
    return _CellError(text, line)


def _check_cells(name: str, executed: Any) -> None:
    for index, cell in enumerate(executed.cells):
        if cell.cell_type != "code" or not "".join(cell.source).strip():
            continue
        status = cell.metadata.get("papermill", {}).get("status")
        failed = any(output.output_type == "error" for output in cell.outputs)
        if status != "completed" or failed or cell.execution_count is None:
            raise NotebookError(f"{name}: cell {index} did not complete (status {status!r}): the notebook ended early")


def check_outputs(notebook: Notebook, folder: Path) -> None:
    """Raise `NotebookError` for declared outputs that are missing or empty in a folder."""
    missing = [name for output in notebook.outputs for name in missing_files(output, folder)]
    if missing:
        raise NotebookError(f"{notebook.name}: declared but not written: {', '.join(missing)}")


def _move_outputs(staging: Path, out: Path) -> tuple[Path, ...]:
    moved = []
    for source in sorted(path for path in staging.rglob("*") if path.is_file()):
        target = out / source.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        moved.append(target)
    return tuple(moved)
