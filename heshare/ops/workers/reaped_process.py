"""A command under a process of its own that ends whatever the command leaves behind (`job_reaper`)."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from heshare.ops.unprivileged_process import start_unprivileged
from heshare.ops.workers import job_reaper
from heshare.ops.workers.job_cgroups import end_cgroup
from heshare.shared.processes import MARK

_LATE_S = 2.0


class ReapedProcess:
    """A command that was started without privileges, with everything below it.

    Args:
        arguments: the command.
        directory: where it runs.
        environment: all of its environment.
        output: the descriptor of its output and errors.
        cgroup: a new cgroup for it, which is removed at its end; None for none.

    Attributes:
        pid: of the process above the command, which ends when nothing runs below it any more.

    Raises:
        OSError, ValueError: it does not start.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        output: int,
        cgroup: Path | None = None,
    ) -> None:
        self._cgroup = cgroup
        texts = [*[f"{name}={value}" for name, value in environment.items()], *arguments]
        if any("\0" in text for text in texts):
            raise ValueError("a NUL in an argument or in the environment")
        head = [str(cgroup or ""), str(len(environment))]
        order = b"".join(os.fsencode(text) + b"\0" for text in [*head, *texts])
        marks = {MARK: environment[MARK]} if MARK in environment else {}
        self._process = start_unprivileged(
            [sys.executable, "-I", "-S", job_reaper.__file__],
            cwd=directory,
            env={**os.environ, **marks},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
        )
        self.pid = self._process.pid
        self._send(b"%10d" % len(order) + order)

    @property
    def returncode(self) -> int | None:
        """The exit code of the command, negative for a signal; None as long as it runs."""
        return self._process.returncode

    def poll(self) -> int | None:
        """Return `returncode`, brought up to date."""
        if self._process.returncode is None and self._process.poll() is not None:
            self._close()
        return self._process.returncode

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the command's process group; after `grace_s` SIGKILL to all below; wait for their end."""
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
        if self._cgroup is not None:
            end_cgroup(self._cgroup)
            self._cgroup = None
