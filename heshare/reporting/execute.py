"""Run one notebook strictly: what bare papermill lets through fails here, and half-made outputs are never seen.

Papermill accepts a `SystemExit` in a cell, another kernel of the name `python3`, the caller's working directory and
outputs that were never written. This wrapper pins the kernel to this interpreter and the working directory to the
checkout, checks that every code cell completed and that every promised output is there, and only then moves the
outputs to their place.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

from heshare import files
from heshare.errors import HeShareError
from heshare.reporting import kernels
from heshare.reporting.parameters import Notebook

FIGURE = (".pdf", ".png", ".csv", ".json")
TABLE = (".csv", ".md", ".json")
_PINNED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "SOURCE_DATE_EPOCH": "0",
    "TZ": "UTC",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    # OpenBLAS adds in another order on another processor unless it is told which one to take it for.
    **({"OPENBLAS_CORETYPE": "Haswell"} if platform.machine() == "x86_64" else {}),
}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class NotebookError(HeShareError):
    """A notebook failed, ended early or did not write what it promised."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Done:
    """A notebook that ran.

    Attributes:
        name: the notebook's name.
        seconds: wall time, s.
        outputs: the files that it wrote, in their final place.
        executed: the executed copy.
    """

    name: str
    seconds: float
    outputs: tuple[Path, ...]
    executed: Path


def suffixes(output: str) -> tuple[str, ...]:
    """The endings of the files that make up an output: figures have four files, tables three."""
    return FIGURE if output.startswith("fig") else TABLE


def execute(notebook: Notebook, parameters: Mapping[str, object], out: Path, copies: Path) -> Done:
    """Run `notebook` and put its outputs into `out`, all or none.

    Args:
        notebook: which one.
        parameters: values that replace its defaults, already checked.
        out: the folder for its outputs.
        copies: the folder for the executed copy.

    Raises:
        NotebookError: a cell failed or never ran, or a promised output is missing or empty.
    """
    started = perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    copies.mkdir(parents=True, exist_ok=True)
    executed = copies / notebook.path.name
    staging = Path(tempfile.mkdtemp(prefix=f".{notebook.name}-", dir=out))
    try:
        _run(notebook, {**parameters, "out_dir": str(staging)}, executed)
        check_outputs(notebook, staging)
        moved = _publish(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(f"{staging}.cells", ignore_errors=True)
    return Done(notebook.name, perf_counter() - started, moved, executed)


def _run(notebook: Notebook, parameters: Mapping[str, object], executed: Path) -> None:
    for attempt in (1, 2):
        try:
            _papermill(notebook, parameters, executed)
            return
        except _StartError as error:  # two kernels can ask for one port; that passes
            if attempt == 2:
                raise NotebookError(f"{notebook.name}: the kernel did not start, twice: {error}") from None


class _StartError(Exception):
    """The kernel did not start."""


def _papermill(notebook: Notebook, parameters: Mapping[str, object], executed: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import papermill
        from papermill.exceptions import PapermillExecutionError
    for name in ("papermill", "traitlets", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    started: list[bool] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = papermill.execute_notebook(
                str(notebook.path),
                str(executed),
                parameters=dict(parameters),
                kernel_name="python3",
                language="python",
                progress_bar=False,
                log_output=False,
                request_save_on_cell_execute=False,
                cwd=str(files.root()),
                kernel_manager_class=_manager(started),
                start_timeout=120,
            )
    except PapermillExecutionError as error:
        raise NotebookError(_story(notebook, error)) from None
    except (RuntimeError, OSError) as error:
        if not _cell_started(started):
            raise _StartError(str(error)) from None
        raise NotebookError(f"{notebook.name}: {type(error).__name__}: {error}") from None
    check_cells(notebook.name, result)


def _cell_started(started: list[bool]) -> bool:
    return bool(started)


def _manager(started: list[bool]) -> type:
    """A kernel manager whose `python3` is this interpreter, whatever kernels the user has registered."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class Pinned(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            argv = [
                sys.executable,
                "-Xfrozen_modules=off",
                "-m",
                "ipykernel_launcher",
                "-f",
                "{connection_file}",
                "--log-level=50",
            ]
            return KernelSpec(argv=argv, display_name="Python 3", language="python")

        async def _async_start_kernel(self, **kwargs: Any) -> None:
            kwargs["env"] = environment()
            if kernels.FORKS and self.provisioner is None:
                self.kernel_id = self.kernel_id or str(uuid4())
                make = kernels.provisioner()
                self.provisioner = make(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self)
            await super()._async_start_kernel(**kwargs)

        start_kernel = _async_start_kernel

        async def _async_post_start_kernel(self, **kwargs: Any) -> None:
            await super()._async_post_start_kernel(**kwargs)
            started.append(True)

        post_start_kernel = _async_post_start_kernel

    return Pinned


def environment() -> dict[str, str]:
    """What a kernel sees: this process's variables; threads, time zone and dates pinned; this checkout first."""
    path = os.pathsep.join(filter(None, [str(files.root()), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **_PINNED, "PYTHONPATH": path, "HESHARE_ROOT": str(files.root())}


def _story(notebook: Notebook, error: Any) -> str:
    head = f"{notebook.name}: cell {error.exec_count} failed with {error.ename}: {error.evalue}"
    trace = _ANSI.sub("", "\n".join(error.traceback)).strip().splitlines()
    return "\n".join([head, *("    " + line for line in trace[-12:])])


def check_cells(name: str, executed: Any) -> None:
    """Raise `NotebookError` unless every code cell of an executed notebook completed."""
    for index, cell in enumerate(executed.cells):
        if cell.cell_type != "code" or not "".join(cell.source).strip():
            continue
        status = cell.metadata.get("papermill", {}).get("status")
        failed = any(output.output_type == "error" for output in cell.outputs)
        if status != "completed" or failed or cell.execution_count is None:
            raise NotebookError(f"{name}: cell {index} did not complete (status {status!r}): the notebook ended early")


def check_outputs(notebook: Notebook, where: Path) -> None:
    """Raise `NotebookError` unless every promised output is in `where`, with all its files, none empty."""
    wanted = [where / f"{output}{suffix}" for output in notebook.outputs for suffix in suffixes(output)]
    absent = [path.name for path in wanted if not path.is_file() or path.stat().st_size == 0]
    if absent:
        raise NotebookError(f"{notebook.name}: promised but not written: {', '.join(absent)}")


def _publish(staging: Path, out: Path) -> tuple[Path, ...]:
    moved = []
    for source in sorted(path for path in staging.rglob("*") if path.is_file()):
        target = out / source.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        moved.append(target)
    return tuple(moved)
