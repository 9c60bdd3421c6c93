"""A control group (version 2) for each job of a service: whatever is in it ends with the job.

A plain user's process has the right to divide its own group where systemd has delegated it (`Delegate=yes`).
"""

import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_END_S = 2.0


@cache
def _own_group() -> Path | None:
    """Return the group of this process where it is this user's, and not root's."""
    with suppress(OSError, StopIteration):
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
        root = next(words[1] for words in mounts if words[2] == "cgroup2")
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
        group = Path(root + next(line[3:] for line in lines if line.startswith("0::")))
        return group if 0 != os.geteuid() == group.stat().st_uid else None
    return None


class JobCgroup:
    """The group of a process that was just started, and of all that it will start; none where none can be made."""

    def __init__(self, pid: int) -> None:
        own, self._folder = _own_group(), None
        if own is not None:
            folder = own / f"job-{pid}"
            with suppress(OSError):
                folder.mkdir()
                self._folder = folder
                (folder / "cgroup.procs").write_text(str(pid), "utf-8")

    def end(self) -> None:
        """Kill all that is left in the group, and remove it. May be repeated."""
        until_s = time.monotonic() + _END_S
        while self._folder is not None and time.monotonic() < until_s:
            with suppress(OSError):
                (self._folder / "cgroup.kill").write_text("1", "utf-8")
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                self._folder = None
            except OSError:
                time.sleep(0.01)  # what was killed takes a moment to end
            else:
                self._folder = None
