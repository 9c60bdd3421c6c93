"""Program that runs one command and ends all its descendants: `python -I -S supervisor.py`, started by path.

As a subreaper (prctl(2)) it is the parent of all descendants of the command. It ends after them, with the command's
exit status; if it is killed, the kernel kills the command. It imports nothing of the package, to start in 10 ms.
"""

# Its argument is the command's soft limit of descriptors. Its stdin has the command, then requests: `t` is SIGTERM to
# the command's process group, `k` is SIGKILL to all descendants. The end of stdin is the end of the executor; then, and
# after SIGTERM to the supervisor, it sends SIGTERM and soon after SIGKILL.

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ORPHAN_GRACE_S = 2.0
"""Time from SIGTERM to SIGKILL if the executor has ended, s; less than the 3 s of the cleanup process."""
STUCK_S = 10.0
"""Time for processes to end after SIGKILL, s."""
NOT_STARTED = 127
"""Exit code if the command does not start, as of a shell."""


def below(ancestor: int) -> list[int]:
    """Return the descendants of a process, without zombies."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib takes longer to import than all of this)
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123
                state, parent = stream.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found, rest = [], [ancestor]
    while rest:
        more = children.get(rest.pop(), [])
        found += more
        rest += more
    return found


def kill_all() -> None:
    """Send SIGKILL to all descendants repeatedly until none runs, except those blocked in the kernel."""
    until_s = time.monotonic() + STUCK_S
    while (pids := below(os.getpid())) and time.monotonic() < until_s:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def read_order(descriptor: int) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Read the environment and the arguments: a length, then texts that end with NUL."""
    length = int(_read_exactly(descriptor, 10))
    count, *texts = _read_exactly(descriptor, length).split(b"\0")[:-1]
    pairs = (text.partition(b"=") for text in texts[: int(count)])
    return {name: value for name, _, value in pairs}, texts[int(count) :]


def _read_exactly(descriptor: int, length: int) -> bytes:
    content = b""
    while len(content) < length:
        piece = os.read(descriptor, length - len(content))
        if not piece:
            sys.exit(NOT_STARTED)
        content += piece
    return content


def start(arguments: list[bytes], environment: dict[bytes, bytes]) -> int:
    library = ctypes.CDLL(None)
    pid = os.fork()
    if pid:
        return pid

    try:
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(arguments[0], arguments, environment)
    except OSError as error:
        os.write(2, b"%s does not start: %s\n" % (arguments[0], os.strerror(error.errno or 0).encode()))
    finally:
        os._exit(NOT_STARTED)


def supervise(command: int, requests: int, wakeup: int, asked: list[int]) -> int:
    """Serve requests until the end of the command, and return its status."""
    kill_at_s = float("inf")
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == command:
                    return ended[1]

        left_s = kill_at_s - time.monotonic()
        if asked and left_s == float("inf"):
            _terminate(command)
            left_s = ORPHAN_GRACE_S
            kill_at_s = time.monotonic() + left_s
        if left_s <= 0:
            kill_all()

        wait_s = None if left_s == float("inf") else max(0.01, left_s)
        ready, _, _ = select.select([wakeup] + [requests] * (requests >= 0), [], [], wait_s)

        if wakeup in ready:
            os.read(wakeup, 64)

        if requests in ready:
            request = os.read(requests, 1)
            if request == b"t":
                _terminate(command)
            elif request == b"k":
                kill_all()
            else:
                requests = -1
                asked.append(0)


def _terminate(command: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(command, signal.SIGTERM)


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asked: list[int] = []
    wakeup, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: asked.append(number))
    requests = os.dup(0)
    environment, arguments = read_order(requests)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    status = supervise(start(arguments, environment), requests, wakeup, asked)
    kill_all()
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
