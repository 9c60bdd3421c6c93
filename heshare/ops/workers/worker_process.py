"""The parent's side of a worker process: pipe and log, reading of reports, the end of a task and of the process."""

import contextlib
import math
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from heshare.ops.private_files import open_private
from heshare.ops.unprivileged_process import start_unprivileged
from heshare.ops.worker_program.worker_messages import GO, LONGEST, STOP, Message, parse
from heshare.shared.processes import exit_text, signal_group


@dataclass(frozen=True, slots=True)
class SpawnedWorker:
    """A worker process with or without a task, with the non-blocking reading end of its report pipe."""

    process: subprocess.Popen[bytes]
    pipe: int
    log: Path

    def send(self, line: bytes) -> bool:
        """Write a line to its standard input; return whether the process could still read it."""
        if self.process.stdin is None or self.process.poll() is not None:
            return False
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line)
            return True
        return False

    def dismiss(self) -> None:
        """Request the end of a process without a task, without waiting for it; `discard` must follow."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def discard(self, patience_s: float = 0.0) -> None:
        """End a process without a task, after `patience_s` by a kill, which disturbs an MPS server more."""
        self.dismiss()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        self.process.kill()
        self.process.wait()
        os.close(self.pipe)


def spawn(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> SpawnedWorker:
    """Start a worker without privileges and with a report pipe; `--report-fd N` is appended to its arguments."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with os.fdopen(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as output:
            process = start_unprivileged(
                [*arguments, "--report-fd", str(writing)],
                env=environment,
                output=output,
                pass_fds=(writing,),
            )
    except Exception:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return SpawnedWorker(process, reading, log)


class ProcessWorker:
    """A `Worker`: one task of a worker process, created by `ProcessLauncher.start`.

    `take_back` is called with the process when the task has ended and the process waits for another; None ends it.

    Attributes:
        at_s: time at which the last of the `done` iterations was completed, s of the monotonic clock. Two polls give
            the iterations of a window exactly, although reports arrive only about every 100 ms.
        title: what it runs and where, once it is ready.
        time_s: present time per iteration, s; before the first report, that of the warm-up.
    """

    def __init__(
        self,
        spawned: SpawnedWorker,
        *,
        name: str,
        iterations: float | None,
        start_timeout_s: float,
        grace_s: float,
        take_back: Callable[[SpawnedWorker], None] | None = None,
    ) -> None:
        self.log = spawned.log
        self.pid = spawned.process.pid
        self.at_s = self.time_s = math.nan
        self.title = ""
        self.ready = self.finished = False
        self.failure: str | None = None
        self._spawned, self._take_back = spawned, take_back
        self._process = spawned.process
        self._pipe: int | None = spawned.pipe
        self._name, self._iterations = name, iterations
        self._count = 0
        self._rest = b""
        self._released = self._ended = self._silent = self._waits = False
        self._until_s, self._start_timeout_s = monotonic() + start_timeout_s, start_timeout_s
        self._grace_s = grace_s

    @property
    def done(self) -> float:
        """Iterations completed; never more than requested, which need not be a whole number."""
        return float(self._count) if self._iterations is None else min(float(self._count), self._iterations)

    @property
    def closed(self) -> bool:
        return self._pipe is None

    def go(self) -> None:
        if not self._released and not self.closed:
            self._released = self._spawned.send(GO)

    def poll(self) -> None:
        """Read the reports of the process without blocking; end it if it exceeds the time to become ready."""
        if self.closed:
            return
        gone = self._process.poll() is not None
        self._read()
        if gone:
            self._close()
            if not self._ended:
                self._fail(f"ended without a message, {exit_text(self._process.returncode)}")
        elif not self.ready and not self._ended and self.failure is None and monotonic() > self._until_s:
            self._kill()
            self._fail(f"was not ready after {self._start_timeout_s:g} s and was killed")

    def stop(self) -> float:
        """End the task after its iteration, and its process unless it is reused; return the iterations done.

        A process that does not react is killed.
        """
        if self._pipe is None or self._keep_process():
            return self.done
        if self._process.poll() is None:
            signal_group(self.pid, signal.SIGTERM)
            self._listen_until_end(self._grace_s)
        if self._process.poll() is None:
            self._kill()
            if not self._ended:
                self._fail(f"did not stop within {self._grace_s:g} s and was killed")
        self._read()
        self._close()
        return self.done

    def _keep_process(self) -> bool:
        if self._take_back is None or self.failure is not None:
            return False
        self._spawned.send(STOP)
        self._listen_until_end(self._grace_s)
        if not self._waits or self.failure is not None or self._process.poll() is not None:
            return False
        self._pipe = None
        self._take_back(self._spawned)
        return True

    def _listen_until_end(self, patience_s: float) -> None:
        until_s = monotonic() + patience_s
        while self._process.poll() is None and not self._waits and monotonic() < until_s:
            if self._pipe is None or self._silent or (self._ended and self._take_back is None):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(max(0.0, until_s - monotonic()))
                return
            select.select([self._pipe], [], [], 0.05)
            self._read()

    def _read(self) -> None:
        while self._pipe is not None:
            try:
                piece = os.read(self._pipe, 16 * LONGEST)
            except BlockingIOError:
                return
            if not piece:
                self._silent = True
                return
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                try:
                    self._take(parse(line))
                except ValueError as error:
                    self._fail(f"reported something that is no message: {error}")

    def _take(self, message: Message) -> None:
        if message.kind == "failure":
            self._ended = True
            self._fail(message.text)
            return
        if message.kind == "waiting":
            self._waits = True
            return
        self._count = max(self._count, message.done)
        self.at_s = message.at_s
        if not math.isnan(message.time_s):
            self.time_s = message.time_s
        if message.kind == "ready":
            self.ready, self.title = True, message.text
        if message.kind == "end":
            self._ended, self.finished = True, message.finished

    def _fail(self, what: str) -> None:
        self.failure = self.failure or f"{self._name}: {what} (see {self.log})"

    def _kill(self) -> None:
        # The whole session: what the worker started ends with it.
        signal_group(self.pid, signal.SIGKILL)
        self._process.wait()

    def _close(self) -> None:
        self._spawned.dismiss()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
