"""Processes of the executor's jobs: each command is the child of a supervisor that ends all its descendants."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heshare.ops.descriptors import inherited_limit, start_error
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.private_files import open_private
from heshare.ops.unprivileged_process import start_unprivileged
from heshare.ops.workers import supervisor
from heshare.shared.display import printable
from heshare.shared.processes import MARK, exit_text, kill_with

TAIL_BYTES = 4096
MIB = 2**20
_LATE_S = 2.0
_MARKS = (MARK, "HESHARE_JOB", "HESHARE_ATTEMPT")
"""Environment variables that identify the processes of one attempt."""


@dataclass(frozen=True, slots=True)
class AssignedJob:
    """One copy of an entry of `jobs.yaml`: its name in results, which copy, and the attempts before this session."""

    key: str
    spec: JobSpec
    index: int = 0
    attempts: int = 0


class SupervisedProcess:
    """A command started without privileges as the child of a supervisor, which ends after all its descendants.

    `environment` is the complete environment of the command, `output` the descriptor of its stdout and stderr. `pid` is
    the supervisor's.

    Raises:
        OSError, ValueError: it does not start.
    """

    def __init__(
        self, arguments: Sequence[str], *, directory: Path, environment: Mapping[str, str], output: int
    ) -> None:
        texts = [*[f"{name}={value}" for name, value in environment.items()], *arguments]
        if any("\0" in text for text in texts):
            raise ValueError("a NUL in an argument or in the environment")

        marks = {MARK: environment[MARK]} if MARK in environment else {}
        self._process = start_unprivileged(
            [sys.executable, "-I", "-S", supervisor.__file__, str(inherited_limit())],
            cwd=directory,
            env={**os.environ, **marks},
            output=output,
        )
        self.pid = self._process.pid

        order = b"".join(os.fsencode(text) + b"\0" for text in [str(len(environment)), *texts])
        self._send(b"%10d" % len(order) + order)

    @property
    def returncode(self) -> int | None:
        """The exit code of the command, negative for a signal; None while it runs."""
        return self._process.returncode

    def poll(self) -> int | None:
        if self._process.returncode is None and self._process.poll() is not None:
            self._close()
        return self._process.returncode

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the command's process group, after `grace_s` SIGKILL to all descendants, and wait."""
        for request, patience_s in ((b"t", grace_s), (b"k", _LATE_S)):
            self._send(request)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                break
        else:
            self._process.kill()
            self._process.wait()
        self._close()

    def _send(self, request: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            view = memoryview(request)
            while view:
                view = view[self._process.stdin.write(view) :]

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


class CommandWorker:
    """A `Worker` that runs a command; exit code 0 is success.

    The command has no privileges (`start_unprivileged`), and its descendants end with it (`SupervisedProcess`). All
    iterations count as done once it has succeeded. `excess` is the reason to end it if its output is larger than
    `output_mib`, else empty.

    Args:
        name: for messages.
        grace_s: time to end after SIGTERM before SIGKILL, s.

    Raises:
        DeviceError: it does not start; `ShortageError` if the system lacks descriptors, processes or memory now.
    """

    ready = True
    time_s = math.nan

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        log: Path,
        iterations: float,
        grace_s: float,
        output_mib: int,
    ) -> None:
        self.log = log
        self.exit_code: int | None = None
        self.failure: str | None = None
        self.excess = ""
        self._name, self._iterations, self._grace_s = name, iterations, grace_s
        self._output_mib = output_mib
        self._marks = [f"{name}={environment[name]}" for name in _MARKS if name in environment]
        try:
            with os.fdopen(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as output:
                self._process = SupervisedProcess(
                    arguments, directory=directory, environment=environment, output=output.fileno()
                )
        except (OSError, ValueError) as error:
            raise start_error(f"{name}: {arguments[0]}", error) from error
        self.pid = self._process.pid

    @property
    def done(self) -> float:
        """All iterations once it has succeeded, else 0: a command does not report its progress."""
        return self._iterations if self.finished else 0.0

    @property
    def finished(self) -> bool:
        return self.exit_code == 0

    def go(self) -> None:
        """Do nothing: a command begins when it is started."""

    def poll(self) -> None:
        """Check whether it has ended, or its output is too large."""
        if self.exit_code is None and self._process.poll() is not None:
            self._close()
        elif self.exit_code is None and self._output_size() > self._output_mib * MIB:
            self.excess = f"wrote more than its output_mib, {self._output_mib} MiB (see {self.log})"

    def stop(self) -> float:
        """Send SIGTERM to its process group, then SIGKILL to all descendants; return the iterations. Idempotent."""
        if self.exit_code is None:
            self._process.stop(self._grace_s)
            self._close()
        return self.done

    def tail(self) -> str:
        """Return the last of its output."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                return stream.read().decode(errors="replace")
        except OSError:
            return ""

    def _output_size(self) -> int:
        try:
            return self.log.stat().st_size
        except OSError:
            return 0

    def _close(self) -> None:
        self.exit_code = self._process.returncode
        if self.exit_code == -signal.SIGKILL and self._marks:
            kill_with(*self._marks)  # a killed supervisor has not ended its descendants
        if self.exit_code != 0:
            lines = self.tail().strip().splitlines()
            last = f": {printable(lines[-1]).strip()[-160:]}" if lines else ""
            self.failure = f"ended, {exit_text(self.exit_code)}{last} (see {self.log})"
