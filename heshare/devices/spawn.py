"""A worker's process, its pipe and its log, before it is known what it will run."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Spawned:
    """A process that was started.

    Attributes:
        process: the process, leader of a session of its own.
        pipe: the reading end of its report pipe, which never blocks.
        log: the file that takes its standard output and error.
    """

    process: subprocess.Popen[bytes]
    pipe: int
    log: Path

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def dismiss(self) -> None:
        """Tell a process that has no task to go, without waiting for it; `discard` has to follow."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def discard(self, patience_s: float = 0.0) -> None:
        """End a process that has no task, and give back what belongs to it.

        Args:
            patience_s: how long it may take to go by itself, which is kinder to an MPS server than a kill, s.
        """
        self.dismiss()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        self.process.kill()
        self.process.wait()
        os.close(self.pipe)


def spawn(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Spawned:
    """Start a worker with a report pipe; `--report-fd N` is appended to its arguments.

    Raises:
        OSError: the process or its log cannot be made; nothing is left behind.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*arguments, "--report-fd", str(writing)],
                bufsize=0,
                env=environment,
                pass_fds=(writing,),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return Spawned(process, reading, log)
