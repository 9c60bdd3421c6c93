"""Descendants of a job end with it: those in another group, session or environment, and daemons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import until

from heshare.ops.executor.job_process import SupervisedProcess

SECONDS = str(30_000_000 + os.getpid())
"""How long descendants sleep; no other run of these tests looks for it."""
DESCENDANTS = {
    "a group of its own": f"set -m; sleep {SECONDS} &",
    "a session of its own": f"setsid sleep {SECONDS} &",
    "no environment": f"env -i $(command -v setsid) sleep {SECONDS} &",
    "a daemon": f"(setsid sh -c '(setsid sleep {SECONDS} &) ; exit' &);",
}
EVERYTHING = " ".join(DESCENDANTS.values())

EXECUTOR = """
import os, sys, time
from pathlib import Path
from heshare.ops.executor.job_process import SupervisedProcess
folder = Path(sys.argv[1])
environment = {**os.environ, "HS_JOB": str(folder)}
with (folder / "log").open("ab") as output:
    SupervisedProcess(("sh", "-c", sys.argv[2]), directory=folder, environment=environment, output=output.fileno())
time.sleep(60)
"""


def start(folder, *arguments, **environment):
    log = folder / "log"
    with log.open("ab") as output:
        return SupervisedProcess(
            arguments,
            directory=folder,
            environment={**os.environ, "HS_JOB": str(folder), **environment},
            output=output.fileno(),
        )


def end_of(process):
    assert until(lambda: process.poll() is not None)
    return process.returncode


def up(folder):
    return until(lambda: (folder / "log").exists() and "up" in (folder / "log").read_text())


def descendants(folder):
    """Processes that sleep for our number of seconds, or have our mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            marked = f"HS_JOB={folder}".encode() in (process / "environ").read_bytes()
        except OSError:
            continue
        if (marked or f"sleep\0{SECONDS}\0".encode() in command) and int(process.name) != os.getpid():
            found.append(command)
    return found


@pytest.mark.parametrize("descendant", DESCENDANTS.values(), ids=DESCENDANTS)
def test_descendants(tmp_path, descendant):
    """Processes that a job leaves behind end with it; its exit code is that of the command."""
    process = start(tmp_path, "sh", "-c", f"{descendant} until [ -e go ]; do sleep 0.02; done; exit 3")
    assert until(lambda: any(SECONDS.encode() in command and b"sh" not in command for command in descendants(tmp_path)))
    (tmp_path / "go").touch()
    assert end_of(process) == 3
    assert descendants(tmp_path) == []


@pytest.mark.parametrize(
    ("trap", "grace_s", "code"),
    [("", 0.2, -signal.SIGKILL), ("echo bye; exit 5", 20.0, 5)],
    ids=["SIGTERM is ignored", "ends by itself"],
)
def test_stop(tmp_path, trap, grace_s, code):
    """`stop` lets a job end by itself, with its own exit code, or ends it after the grace; with all its descendants."""
    loop = "while :; do sleep 0.05; done"
    process = start(tmp_path, "sh", "-c", f"{EVERYTHING} trap '{trap}' TERM; echo up; {loop}")
    assert up(tmp_path)
    process.stop(grace_s)
    assert process.returncode == code
    assert descendants(tmp_path) == []


def test_supervisor_killed(tmp_path):
    """A command dies with its supervisor."""
    process = start(tmp_path, "sh", "-c", f"trap '' TERM; echo $$; echo up; exec sleep {SECONDS}")
    assert up(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    assert end_of(process) == -signal.SIGKILL
    assert until(lambda: descendants(tmp_path) == [])


@pytest.mark.nightly
def test_executor_killed(tmp_path):
    """Descendants of a job end when the executor is killed."""
    words = (str(tmp_path), f"trap '' TERM; {EVERYTHING} echo up; sleep 60; sleep 60")
    executor = subprocess.Popen([sys.executable, "-c", EXECUTOR, *words])
    assert up(tmp_path)
    assert len(descendants(tmp_path)) > len(DESCENDANTS)
    executor.kill()
    executor.wait()
    assert until(lambda: descendants(tmp_path) == [])


def test_command(tmp_path):
    """A command has its arguments, environment and session, and no input."""
    check = "import os, sys; print(os.environ['X'], sys.stdin.read() == '', os.getsid(0) == os.getpid(), sys.argv[1:])"
    long = "y" * 100_000
    process = start(tmp_path, sys.executable, "-c", check, "a b", "", "ü", X="1=2", LONG=long)
    assert end_of(process) == 0
    assert (tmp_path / "log").read_text() == "1=2 True True ['a b', '', 'ü']\n"


def test_exit_code(tmp_path):
    """A command ends by a signal, by its code, or without a start."""
    assert end_of(start(tmp_path, "sh", "-c", "kill -SEGV $$")) == -signal.SIGSEGV
    assert end_of(start(tmp_path, "no-such-program")) == 127
    assert "no-such-program does not start: No such file" in (tmp_path / "log").read_text()
    with pytest.raises(ValueError, match="NUL"):
        start(tmp_path, "a\0b")
