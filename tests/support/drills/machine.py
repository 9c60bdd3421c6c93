"""The stand-in machine of a drill: its environment, the processes on it, and what a run has left there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support import kill_drill
from support.fakenvml import FakeNvml

from heshare.ops.jobs import learned_commands
from heshare.shared.file_lock import is_locked

LONGEST_S, RUN_S = 60.0, 300.0
"""The longest waits for a cleanup and for a run, s; a machine under load takes a minute to start Python."""


@dataclass(frozen=True)
class FoundProcess:
    """A process on a stand-in machine: the last part of its module, such as `watchdog`, and the name of its job."""

    pid: int
    part: str
    job: str


class Machine:
    """A stand-in machine, and the only one of this process, since the stand-in for NVML reads the environment once."""

    def __init__(self, folder: Path, cards: int = 2) -> None:
        self.folder = folder
        os.environ.update(kill_drill.prepare(folder))
        os.environ["FAKENVML_FAIL"] = f"set:count={cards}"
        self.fake = FakeNvml(folder / "lib" / "libnvidia-ml.so.1")

    def start(self, *words: str, module: str = "heshare") -> subprocess.Popen[bytes]:
        """Start a command of heshare, or another module, in the machine's folder; what it prints goes to a file."""
        with (self.folder / "printed").open("wb") as printed:
            command = [sys.executable, "-m", module, *words]
            return subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT
            )

    def printed(self) -> str:
        return (self.folder / "printed").read_text("utf-8", errors="replace")[-1500:]

    def locked(self) -> bool:
        return any(self.fake.get(name) for name in ("locked_mhz", "locked1_mhz"))

    def left_behind(self) -> list[str]:
        wrong = [f"process {one.pid} ({one.part or one.job or 'MPS'})" for one in processes(self.folder)]
        wrong += [f"a note, {path.name}" for path in notes(self.folder)]
        wrong += [f"an MPS folder, {path.name}" for path in sorted((self.folder / "tmp").glob("hs-mps-*"))]
        wrong += [f"a lock, {path.name}" for path in sorted((self.folder / "locks").glob("*")) if is_locked(path)]
        return wrong + ["a locked clock"] * self.locked()

    def restored(self, since_s: float) -> tuple[list[str], float]:
        """Wait until nothing is left behind; return what still is, and the time that it took, s."""
        return wait_until_empty(self.left_behind, since_s)


def wait_until_empty(left_behind: object, since_s: float) -> tuple[list[str], float]:
    """Call until the result is empty, for `LONGEST_S` at most; return the last result and the time since, s."""
    assert callable(left_behind)
    while True:
        wrong: list[str] = left_behind()
        took_s = time.monotonic() - since_s
        if not wrong or took_s > LONGEST_S:
            return wrong, took_s
        time.sleep(0.01)


def processes(folder: Path) -> list[FoundProcess]:
    """Return the processes that were started on the machine of a folder, this one excepted."""
    mark, found = f"{kill_drill.MARK}={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if mark in variables:
            named = [one.partition(b"=")[2].decode() for one in variables if one.startswith(b"HESHARE_JOB=")]
            module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
            found.append(FoundProcess(int(process.name), module.rpartition(".")[2], "".join(named[:1])))
    return found


def notes(folder: Path) -> list[Path]:
    """Return the notes of runs and of changed GPUs in the state folder of a machine."""
    state = folder / "state" / "heshare"
    found = [path for path in sorted(state.rglob("*.json")) if "runs" not in path.relative_to(state).parts]
    return [path for path in found if path.name != learned_commands.NAME]  # what commands have shown stays


def kill(pids: Sequence[int]) -> float:
    """End processes by SIGKILL; return when, s of the monotonic clock."""
    at_s = time.monotonic()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return at_s
