"""Start of processes without privileges: no capabilities, and `no_new_privs`, for jobs and MPS.

Capabilities and `no_new_privs` are per thread (capabilities(7), prctl(2)): a separate thread drops them and then starts
the process, which inherits the thread's. No Python runs between fork and exec; other threads are unaffected.
"""

import ctypes
import errno
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from heshare.shared.errors import DeviceError

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64
_NEEDED = {"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapAmb": 0, "NoNewPrivs": 1}


def start_unprivileged(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output: int | IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a process that has no capability and can gain none, whatever the capabilities and user of this process.

    It is in a new session, with an unbuffered pipe as its stdin. `output` is its stdout and stderr; `env`, `cwd` and
    `pass_fds` are as of `subprocess.Popen`.

    Without CAP_SETPCAP the bounding set is unchanged. It grants nothing by itself, and `no_new_privs` blocks the ways
    to use it: setuid programs, file capabilities, and the capabilities that root regains at exec.

    Raises:
        OSError: the process or the thread that starts it cannot be created.
        DeviceError: the kernel does not drop the privileges.
    """
    started: list[subprocess.Popen[bytes]] = []
    failures: list[Exception] = []

    def start() -> None:
        try:
            _give_up_privileges()
            process = subprocess.Popen(
                list(arguments),
                bufsize=0,
                env=env,
                cwd=cwd,
                pass_fds=pass_fds,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            started.append(process)
        except Exception as error:  # raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=start, name="start-unprivileged")
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    try:
        thread.join()
    except BaseException:  # after a signal the caller does not get the process, so it is ended here
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
        return  # capabilities exist on Linux only
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
