"""Processes of this machine: starting a module as a child process, liveness checks, and safe signalling."""

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

from heshare.shared.files import PACKAGE

MARK = "HESHARE_RUN"
"""Environment variable of every process of a run; its value is the run's token."""

SAME_BYTES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "SOURCE_DATE_EPOCH": "0",
    "TZ": "UTC",
}
"""Environment variables for reproducible output bytes: in notebook kernels, `heshare calibrate` and the Makefile.

On x86 two more variables fix the machine code: OpenBLAS adds in another order on another processor, and numpy's
exponentials and logarithms differ in the last bits on processors with AVX-512.
"""
if platform.machine() == "x86_64":
    SAME_BYTES |= {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}


def has_same_bytes() -> bool:
    return SAME_BYTES.items() <= os.environ.items()


def child_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with `variables` added and with this package first in PYTHONPATH."""
    path = os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **variables, "PYTHONPATH": path}


def start_module(
    name: str,
    *arguments: str,
    inherited: Sequence[int] = (),
    marked: bool = True,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a module of this package as a process in a new session.

    Args:
        name: of the module.
        *arguments: of its command line.
        inherited: the file descriptors that stay open in it.
        marked: whether it is ended together with the run's processes (`MARK`).
        stdin: as of `subprocess.Popen`.
        stdout: as of `subprocess.Popen`; stderr is discarded.
    """
    environment = child_environment()
    if not marked:
        environment.pop(MARK, None)
    return subprocess.Popen(
        [sys.executable, "-m", name, *arguments],
        env=environment,
        cwd="/",
        pass_fds=inherited,
        start_new_session=True,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
    )


def exit_text(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def started_at(pid: int) -> int:
    """Return the start of a process in clock ticks since boot; 0 if there is no such process.

    The system reuses process ids; id and start together identify a process.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def is_running(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def alive(pid: int, started: int) -> bool:
    fields = _stat(pid)
    if not fields and _exists(pid):
        return True  # /proc cannot be read, for lack of file descriptors
    return bool(fields) and fields[0] != "Z" and int(fields[19]) == started


def processes_with(variable: str) -> set[int]:
    """Return the processes with `NAME=value` in their environment, of those whose environment is readable."""
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
    """Return the processes of a run: those with its token in `MARK`, and all in sessions that one of them leads."""
    return sorted(_marked(token))


def end_marked(token: str, *, grace_s: float = 3.0) -> int:
    """End every process of a run, with SIGTERM and after `grace_s` with SIGKILL, and return their number.

    A process that was being started when its run was killed gets its environment only a moment later. So two searches
    in a row must find nothing.
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
            break  # a process that SIGKILL does not end is blocked in a system call
        time.sleep(0.05)
    return len(seen)


def _marked(token: str) -> dict[int, int]:
    stats = {int(folder.name): _stat(int(folder.name)) for folder in Path("/proc").glob("[0-9]*")}
    running = {pid: fields for pid, fields in stats.items() if fields and fields[0] != "Z" and pid != os.getpid()}
    pids = processes_with(f"{MARK}={token}") & running.keys()
    return {pid: int(fields[19]) for pid, fields in running.items() if pid in pids or int(fields[3]) in pids}


def signal_process(pid: int, number: signal.Signals, *, started: int, name: str = "", variable: str = "") -> bool:
    """Send a signal to a process id that was recorded earlier, if it is still the same process of this user.

    All signals to recorded process ids are sent here, since the system may have given the id to another process.

    Args:
        pid: the process id.
        number: the signal.
        started: the start of the process, as of `started_at`.
        name: the beginning of its `comm`.
        variable: a `NAME=value` of its environment.

    Returns:
        Whether the signal was sent.
    """
    with contextlib.suppress(OSError):
        descriptor = pidfd(pid)  # from here on the signal cannot reach another process with the same id
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
    """Return a descriptor of a process, which becomes readable when the process ends.

    None without such a process, or if the kernel (before 5.3) or a sandbox does not support it.
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
    """Send a signal to a process group, as far as this user may signal its processes."""
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
    # The fields of /proc/PID/stat from the state on; none without such a process.
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
