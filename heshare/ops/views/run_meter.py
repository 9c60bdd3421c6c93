"""Publishes the metrics of a run while it goes on, in a file. Whatever goes wrong with them, the run goes on.

The file is for the textfile collector of node_exporter, which reads every `*.prom` of a folder.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from heshare.ops.jobs.entries import Entry, Sample
from heshare.ops.jobs.run_state import RunState
from heshare.ops.views.metric_catalogue import families
from heshare.shared import files
from heshare.shared.errors import InputError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

WRITE_S = 5.0
"""How often the file is written, s."""


class RunMeter(Collector):
    """Collector of a run's metrics: hears the entries of its journal, and accounts between them.

    `run` is the label of every metric; `tell` is called with an event and a text for the operator.
    """

    def __init__(self, run: str, file: Path, *, tell: Callable[[str, str], object] = lambda event, text: None) -> None:
        self.state, self.active, self._run = RunState(), True, run
        self._file, self._tell = file, tell
        self._failure = ""
        self._next_s = 0.0
        tell("metrics", f"metrics in {file}, every {WRITE_S:g} s")

    def __call__(self, entry: Entry) -> None:
        """Add an entry of the journal, or one that has its form; write the file where that is due."""
        with self._harmless():
            self.state.add(entry)
            if isinstance(entry, Sample) and time.monotonic() >= self._next_s:
                self._next_s = time.monotonic() + WRITE_S
                self._write()

    def collect(self) -> Iterator[Metric]:
        return families(self.state, self._run, time.time(), active=self.active)

    def close(self) -> None:
        """Write that no executor works on the run any more; the file keeps the totals."""
        with self._harmless():
            self.active = False
            self.state.end()
            self._write()

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if reason != self._failure:
                self._tell("metrics-failed", f"the metrics in {self._file} are not right ({reason}); the run goes on")
            self._failure = reason

    def _write(self) -> None:
        write_textfile(self._file, generate_latest(self))


def parse_target(text: str) -> Path:
    """Return the file that `--metrics` names.

    Raises:
        InputError: a file that node_exporter would not read, or that cannot be written.
    """
    path = Path(text)
    if path.suffix != ".prom" or path.is_dir():
        expected = "a file FILE.prom: node_exporter reads no others"
        action = "Write it in this form; node_exporter, or any web server of files, serves it."
        raise InputError(repr(text), expected, action, column="--metrics")
    files.require_writable(path.absolute().parent, "--metrics")
    return path


def write_textfile(path: Path, content: bytes) -> None:
    """Replace a file that any user may read, whole or not at all.

    node_exporter reads every `*.prom` of the folder, hidden ones too, so the unfinished file has another ending.

    Raises:
        OSError: it cannot be written; the file stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            os.fchmod(handle, 0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
