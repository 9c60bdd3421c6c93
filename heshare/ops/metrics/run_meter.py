"""Publishes the metrics of a run while it goes on. Whatever goes wrong with them, the run goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest, start_http_server
from prometheus_client.registry import Collector

from heshare.ops.metrics.metric_catalogue import families
from heshare.ops.metrics.metrics_target import HttpAddress, write_textfile
from heshare.ops.metrics.run_tally import RunTally
from heshare.shared.errors import InputError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

WRITE_S = 5.0
"""How often the file is written, s."""


class TallyCollector(Collector):
    """Collector of the metrics of a run whose totals are given.

    Attributes:
        tally: the run so far.
        active: whether an executor works on it.
    """

    def __init__(self, tally: RunTally, run: str, *, active: bool) -> None:
        self.tally, self.active, self._run = tally, active, run

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of this moment."""
        return families(self.tally, self._run, time.time(), active=self.active)


class RunMeter(TallyCollector):
    """Collector of a run's metrics: hears the entries of its journal, and accounts between them.

    Args:
        run: the name of the run, the label `run` of every metric.
        target: the file that is written, or the address that is listened at from now on.
        tell: is called with an event and a text for the operator.

    Raises:
        InputError: the address cannot be listened at.
    """

    def __init__(
        self, run: str, target: Path | HttpAddress, *, tell: Callable[[str, str], object] = lambda event, text: None
    ) -> None:
        super().__init__(RunTally(), run, active=True)
        self._target, self._tell = target, tell
        self._broken = self._failing = False
        self._next_s = 0.0
        # Scrapes come in threads of their own.
        self._lock = threading.Lock()
        self._server = None
        if isinstance(target, HttpAddress):
            try:
                self._server, self._thread = start_http_server(target.port, target.host, self)
            except OSError as error:
                found = f"{target.host}:{target.port}, which cannot be listened at ({error.strerror})"
                action = "Choose another port, or an address of this machine."
                raise InputError(found, "a free address of this machine", action, column="--metrics") from error
            host = f"[{target.host}]" if ":" in target.host else target.host
            tell("metrics", f"metrics at http://{host}:{self._server.server_port}/metrics")
        else:
            tell("metrics", f"metrics in {target}, every {WRITE_S:g} s")

    @property
    def port(self) -> int:
        """The port that is listened at, 0 for none."""
        return 0 if self._server is None else self._server.server_port

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Add an entry of the journal, or one that has its form; write the file where that is due."""
        with self._harmless():
            with self._lock:
                self.tally.add(entry)
            if "sample" in entry and time.monotonic() >= self._next_s:
                self._next_s = time.monotonic() + WRITE_S
                self._write()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of this moment."""
        with self._lock:
            return iter(list(super().collect()))

    def close(self) -> None:
        """Publish that no executor works on the run any more: the file keeps the totals, the address is given up."""
        with self._harmless():
            with self._lock:
                self.active = False
                self.tally.end()
            self._write()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Tell of a defect within the `with`, once, instead of ending the run by it."""
        try:
            yield
        except Exception as error:
            if not self._broken:
                reason = f"{type(error).__name__}: {error}"
                self._tell("metrics-failed", f"metrics are not right from now on ({reason}); the run goes on")
            self._broken = True

    def _write(self) -> None:
        """Write the file, if there is one; tell once that it cannot be written, and once that it can again."""
        if not isinstance(self._target, Path):
            return
        try:
            write_textfile(self._target, generate_latest(self))
        except OSError as error:
            if not self._failing:
                self._tell("metrics-failed", f"{self._target} cannot be written ({error.strerror}); the run goes on")
            self._failing = True
        else:
            if self._failing:
                self._tell("metrics", f"{self._target} is written again")
            self._failing = False
