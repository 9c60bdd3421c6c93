"""A control group (version 2) for each job of a service: bounds its host memory, and ends all that is in it.

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
    with suppress(OSError, StopIteration):
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
        root = next(words[1] for words in mounts if words[2] == "cgroup2")
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
        group = Path(root + next(line[3:] for line in lines if line.startswith("0::")))
        return group if 0 != os.geteuid() == group.stat().st_uid else None
    return None


def bound_memory() -> str:
    """Let the groups of jobs bound host memory; return why they cannot, or nothing.

    Only a group without processes has such children, so the processes of this one move into a child of their own.
    """
    own = _own_group()
    if own is None:
        return "the run has no control group of its own (systemd gives one to a service: Delegate=yes)"
    try:
        (own / "executor").mkdir(exist_ok=True)
        for pid in (own / "cgroup.procs").read_text("utf-8").split():
            with suppress(ProcessLookupError):
                (own / "executor" / "cgroup.procs").write_text(pid, "utf-8")
        (own / "cgroup.subtree_control").write_text("+memory", "utf-8")
    except OSError as error:
        return f"the control group {own} does not bound memory ({error.strerror})"
    return ""


class JobCgroup:
    """The group of a process that was just started, and of all that it will start; none where none can be made.

    `memory_mib` is the host memory that all of them together may use, where `bound_memory` has returned nothing;
    `exceeded` is whether they were killed for it, once the group has ended.
    """

    def __init__(self, pid: int, memory_mib: int | None = None) -> None:
        own, self._folder, self.exceeded = _own_group(), None, False
        if own is not None:
            folder = own / f"job-{pid}"
            with suppress(OSError):
                folder.mkdir()
                self._folder = folder
                (folder / "cgroup.procs").write_text(str(pid), "utf-8")
                if memory_mib is not None:
                    (folder / "memory.max").write_text(str(memory_mib << 20), "utf-8")
                    (folder / "memory.oom.group").write_text("1", "utf-8")
                    (folder / "memory.swap.max").write_text("0", "utf-8")

    def end(self) -> None:
        """Kill all that is left in the group, and remove it. May be repeated."""
        until_s = time.monotonic() + _END_S
        if self._folder is not None:
            with suppress(OSError):
                events = dict(line.split() for line in (self._folder / "memory.events").read_text("utf-8").splitlines())
                self.exceeded = int(events.get("oom_kill", 0)) > 0
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
