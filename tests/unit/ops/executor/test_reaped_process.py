"""What jobs leave behind ends with them, whatever it did to get away: a group, a session, an environment of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heshare.ops.executor.job_process import ReapedProcess

SECONDS = str(30_000_000 + os.getpid())
"""How long strays sleep; no other run of these tests looks for it."""
STRAYS = {
    "a group of its own": f"set -m; sleep {SECONDS} &",
    "a session of its own": f"setsid sleep {SECONDS} &",
    "no environment": f"env -i $(command -v setsid) sleep {SECONDS} &",
    "a daemon": f"(setsid sh -c '(setsid sleep {SECONDS} &) ; exit' &);",
}


def start(folder, *arguments, **environment):
    log = folder / "log"
    with log.open("ab") as output:
        return ReapedProcess(
            arguments,
            directory=folder,
            environment={**os.environ, "HS_STRAY": str(folder), **environment},
            output=output.fileno(),
        )


def end_of(process, timeout_s=20.0):
    until = time.monotonic() + timeout_s
    while process.poll() is None:
        assert time.monotonic() < until, "does not end"
        time.sleep(0.01)
    return process.returncode


def strays(folder):
    """Processes that sleep for our number of seconds, or have our mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            marked = f"HS_STRAY={folder}".encode() in (process / "environ").read_bytes()
        except OSError:
            continue
        if (marked or f"sleep\0{SECONDS}\0".encode() in command) and int(process.name) != os.getpid():
            found.append(command)
    return found


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_strays_end_with_their_job(tmp_path, stray):
    process = start(tmp_path, "sh", "-c", f"{stray} until [ -e go ]; do sleep 0.02; done; exit 3")
    until = time.monotonic() + 20
    while not any(SECONDS.encode() in command and b"sh" not in command for command in strays(tmp_path)):
        assert time.monotonic() < until
        time.sleep(0.01)
    (tmp_path / "go").touch()
    assert end_of(process) == 3
    assert strays(tmp_path) == []


def test_stop_ends_a_job_that_ignores_sigterm_with_all_its_strays(tmp_path):
    everything = " ".join(STRAYS.values())
    process = start(tmp_path, "sh", "-c", f"trap '' TERM; {everything} echo up; sleep 60; sleep 60")
    while "up" not in (tmp_path / "log").read_text():
        time.sleep(0.01)
    process.stop(0.2)
    assert process.returncode == -signal.SIGKILL
    assert strays(tmp_path) == []


def test_stop_lets_a_job_end_by_itself(tmp_path):
    process = start(tmp_path, "sh", "-c", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done")
    while "up" not in (tmp_path / "log").read_text():
        time.sleep(0.01)
    process.stop(20.0)
    assert process.returncode == 5
    assert (tmp_path / "log").read_text().endswith("bye\n")  # the shell may report that its sleep was ended


@pytest.mark.slow
def test_strays_end_when_the_executor_is_killed(tmp_path):
    code = (
        "import sys, time; sys.path[:0] = sys.argv[3:]; from pathlib import Path\n"
        "from support.stray_executor import run; run(Path(sys.argv[1]), sys.argv[2])"
    )
    everything = " ".join(STRAYS.values())
    executor = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), everything, *sys.path])
    while not (tmp_path / "log").exists() or "up" not in (tmp_path / "log").read_text():
        time.sleep(0.01)
    assert len(strays(tmp_path)) > len(STRAYS)
    executor.kill()
    executor.wait()
    until = time.monotonic() + 20
    while strays(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert strays(tmp_path) == []


def test_a_command_has_its_own_environment_session_and_no_input(tmp_path):
    check = "import os, sys; print(os.environ['X'], sys.stdin.read() == '', os.getsid(0) == os.getpid(), sys.argv[1:])"
    long = "y" * 100_000
    process = start(tmp_path, sys.executable, "-c", check, "a b", "", "ü", X="1=2", LONG=long)
    assert end_of(process) == 0
    assert (tmp_path / "log").read_text() == "1=2 True True ['a b', '', 'ü']\n"


def test_a_command_ends_as_it_did(tmp_path):
    assert end_of(start(tmp_path, "sh", "-c", "kill -SEGV $$")) == -signal.SIGSEGV
    assert end_of(start(tmp_path, "no-such-program")) == 127
    assert "no-such-program does not start: No such file" in (tmp_path / "log").read_text()
    with pytest.raises(ValueError, match="NUL"):
        start(tmp_path, "a\0b")
