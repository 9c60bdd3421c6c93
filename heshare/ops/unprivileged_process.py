"""Start of processes without privileges: no capability, and none to be gained (`no_new_privs`); for jobs and MPS.

Capabilities and `no_new_privs` belong to a thread, not to a process (capabilities(7), prctl(2)). So a thread of its own
gives them up, then starts the process, which inherits what the thread has left. No Python runs between fork and exec,
and the other threads keep what they have.
"""

import ctypes
import errno
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heshare.shared.errors import DeviceError

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64
_NEEDED = {"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapAmb": 0, "NoNewPrivs": 1}


def start_unprivileged(arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that has no capability and can gain none, whatever this process has and whoever its user is.

    Without CAP_SETPCAP the bounding set stays as it is. It gives nothing by itself, and `no_new_privs` keeps the
    process from what it would allow: setuid programs, file capabilities, and what root regains at exec.
    """
    started: list[subprocess.Popen[bytes]] = []
    failures: list[Exception] = []

    def start() -> None:
        try:
            _give_up_privileges()
            started.append(subprocess.Popen(list(arguments), **options))
        except Exception as error:  # raised again where the caller is
            failures.append(error)

    thread = threading.Thread(target=start, name="start-unprivileged")
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    try:
        thread.join()
    except BaseException:  # a signal that ends the run: nobody would know the process
        thread.join()
        for process in started:
            process.kill()
            process.wait()
        raise
    if failures:
        raise failures[0]
    return started[0]


def _give_up_privileges() -> None:
    if sys.platform != "linux":
        return  # no other system has them
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(_MOST_CAPABILITIES):
        # Needs CAP_SETPCAP; a number that the kernel does not know ends the list.
        if libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0 and ctypes.get_errno() in (errno.EINVAL, errno.EPERM):
            break
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)  # of the calling thread
    libc.capset(header, (ctypes.c_uint32 * 6)())
    left = _privileges()
    if left != _NEEDED:
        raise DeviceError(
            f"A job cannot be started without privileges: the kernel reports {left}, expected {_NEEDED}. Run the "
            "executor as a plain user."
        )


def _privileges() -> dict[str, int]:
    lines = Path("/proc/thread-self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: int(value, 16) for name, _, value in pairs if name in _NEEDED}
