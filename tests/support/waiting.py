"""Waiting for a condition and for the end of a child process; processes in a pid namespace, as a container has it."""

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def until(condition: Callable[[], object], most_s: float = 60.0) -> bool:
    limit_s = time.monotonic() + most_s
    while time.monotonic() < limit_s:
        if condition():
            return True
        time.sleep(0.02)
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a child process whose standard output is a pipe, and wait for its end."""
    assert process.stdout is not None
    process.kill()
    process.wait()
    process.stdout.close()


@cache
def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
