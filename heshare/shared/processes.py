"""Processes of this machine: the environment of a child process, whether a process runs, and ending those of a run."""

import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heshare.shared.files import PACKAGE

MARK = "HESHARE_RUN"
"""The variable that every process of a run has in its environment."""

SAME_BYTES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "SOURCE_DATE_EPOCH": "0",
    "TZ": "UTC",
}
"""Variables with which the same inputs give the same bytes: in notebooks' kernels, `heshare calibrate`, the Makefile.

On x86 these choose the code as well: OpenBLAS adds in another order on another processor, unless it is set to the code
for one, and numpy's exponentials and logarithms have other last bits where the processor has AVX-512.
"""
if platform.machine() == "x86_64":
    SAME_BYTES |= {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}


def has_same_bytes() -> bool:
    return SAME_BYTES.items() <= os.environ.items()


def child_environment(**variables: str) -> dict[str, str]:
    """Return the environment of a child process: this process's, with `variables`, and this package found first."""
    path = os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **variables, "PYTHONPATH": path}


def start_module(
    name: str, *arguments: str, inherited: Sequence[int] = (), marked: bool = True, **streams: Any
) -> subprocess.Popen[bytes]:
    """Start a module of this package as a process in a session of its own.

    It keeps the file descriptors `inherited`; `marked` says whether it is ended with the run's processes (`MARK`).
    `streams` are stdin, stdout and stderr, as of `subprocess.Popen`; nowhere unless given.
    """
    environment = child_environment()
    if not marked:
        environment.pop(MARK, None)
    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    command = [sys.executable, "-m", name, *arguments]
    return subprocess.Popen(
        command, env=environment, pass_fds=inherited, start_new_session=True, cwd="/", **{**nowhere, **streams}
    )


def exit_text(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def started_at(pid: int) -> int:
    """Return when a process was started, in clock ticks since the machine was; 0 if there is no such process.

    The system reuses process ids; id and start together identify a process.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def is_running(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def alive(pid: int, started: int) -> bool:
    fields = _stat(pid)
    if not fields and _exists(pid):
        return True  # without a descriptor it cannot be looked at
    return bool(fields) and fields[0] != "Z" and int(fields[19]) == started


def processes_with(variable: str) -> set[int]:
    """Return the processes that have `NAME=value` in their environment, as far as it can be read."""
    pids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                pids.add(int(folder.name))
    return pids


def kill_with(*variables: str) -> None:
    """Send SIGKILL to the processes that have each of these `NAME=value` in their environment."""
    for pid in sorted(set.intersection(*map(processes_with, variables)) - {os.getpid()}):
        signal_process(pid, signal.SIGKILL, started=started_at(pid), variable=variables[0])


def marked(token: str) -> list[int]:
    """Return the processes of a run: those with its mark, and those in a session that one of them leads."""
    return sorted(_marked(token))


def end_marked(token: str, *, grace_s: float = 3.0) -> int:
    """End every process of a run, SIGTERM first and SIGKILL after `grace_s`, and return how many there were.

    A process that was being started when its run was killed has its mark only a moment later. So two searches in a row
    must find nothing.
    """
    seen: set[int] = set()
    until = time.monotonic() + grace_s
    quiet = 0
    while quiet < 2:
        running = _marked(token)
        late = time.monotonic() >= until
        for pid in running if late else running.keys() - seen:
            signal_process(pid, signal.SIGKILL if late else signal.SIGTERM, started=running[pid])
        seen |= running.keys()
        quiet = 0 if running else quiet + 1
        if time.monotonic() > until + 10.0:
            break  # a process that SIGKILL does not end hangs in a system call
        time.sleep(0.05)
    return len(seen)


def _marked(token: str) -> dict[int, int]:
    stats = {int(folder.name): _stat(int(folder.name)) for folder in Path("/proc").glob("[0-9]*")}
    running = {pid: fields for pid, fields in stats.items() if fields and fields[0] != "Z" and pid != os.getpid()}
    pids = processes_with(f"{MARK}={token}") & running.keys()
    return {pid: int(fields[19]) for pid, fields in running.items() if pid in pids or int(fields[3]) in pids}


def signal_process(pid: int, number: signal.Signals, *, started: int, name: str = "", variable: str = "") -> bool:
    """Send a signal to a process that was noted before, if it still is that process; return whether it was sent.

    This is the one place that signals a process by a number that was read from somewhere. A process with another start,
    or another user's, has only inherited the number. `name` is what its `comm` begins with, `variable` a
    `NAME=value` of
    its environment.
    """
    with contextlib.suppress(OSError):
        descriptor = pidfd(pid)  # from here on the number cannot come to mean another process unnoticed
        try:
            if _is_own(pid, started, name, variable):
                if descriptor is None:
                    os.kill(pid, number)
                else:
                    signal.pidfd_send_signal(descriptor, number)
                return True
        finally:
            if descriptor is not None:
                os.close(descriptor)
    return False


def pidfd(pid: int) -> int | None:
    """Return a descriptor of a process, which becomes readable when that ends.

    None without such a process, and where the kernel (before 5.3) or a sandbox offers none.
    """
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None


def _is_own(pid: int, started: int, name: str, variable: str) -> bool:
    folder = Path(f"/proc/{pid}")
    owners = re.search(
        r"^Uid:\s+(\d+)\s+(\d+)", (folder / "status").read_text(encoding="utf-8", errors="replace"), re.M
    )
    return (
        pid > 1
        and alive(pid, started)
        and owners is not None
        and {int(owner) for owner in owners.groups()} == {os.geteuid()}
        and (not name or (folder / "comm").read_text(encoding="utf-8", errors="replace").startswith(name))
        and (not variable or variable.encode() in (folder / "environ").read_bytes().split(b"\0"))
    )


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and all that it started in its own session, as far as they may be signalled."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _exists(pid: int) -> bool:
    try:
        os.kill(max(1, pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return pid > 0


def _stat(pid: int) -> list[str]:
    # The fields from the state on; none without such a process.
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
