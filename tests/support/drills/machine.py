"""The stand-in machine of a drill, and its runs: jobs that leave a line when they have done their work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support import kill_drill
from support.fakenvml import FakeNvml
from support.job_rows import job, jobs_of
from support.run_entries import journal_lines

from heshare.ops.jobs.report import read_report
from heshare.shared.errors import InputError
from heshare.shared.file_lock import is_locked

JOBS = [f"job{index}" for index in range(10)]


class Machine:
    """A stand-in machine, and the only one of this process, since the stand-in for NVML reads the environment once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.environ.update(kill_drill.prepare(folder))
        os.environ["FAKENVML_FAIL"] = "set:count=2"
        self.fake = FakeNvml(folder / "lib" / "libnvidia-ml.so.1")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of heshare in the machine's folder; what it prints goes to a file."""
        with (self.folder / "printed").open("wb") as printed:
            command = [sys.executable, "-m", "heshare", *words]
            return subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT
            )

    def printed(self) -> str:
        return (self.folder / "printed").read_text("utf-8", errors="replace")[-1500:]

    def locked(self) -> bool:
        return self.fake.locked()

    def counter_j(self) -> float:
        """Return the energy counter of each card at this moment, J."""
        since_s = time.monotonic() - self.fake.get("began_s")
        return (self.fake.get("energy_mj") + self.fake.get("power_mw") * since_s) / 1e3

    def processes(self) -> list[tuple[int, str, str]]:
        return processes(self.folder)

    def pids(self, part: str) -> list[int]:
        """Return the processes of a part: `cleanup`, `reader_process`, `supervisor`."""
        return [pid for pid, name, _ in self.processes() if name == part]

    def left_behind(self) -> list[str]:
        return left_behind(self.folder, self.fake)


def processes(folder: Path) -> list[tuple[int, str, str]]:
    """Return id, name of the module or script, and job of the processes that were started on a machine."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            variables = (process / "environ").read_bytes().decode(errors="replace").split("\0")
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if f"{kill_drill.MARK}={folder}" in variables and int(process.name) != os.getpid():
                module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
                scripts = [Path(word).stem for word in words if word.endswith("supervisor.py")]
                named = [one.partition("=")[2] for one in variables if one.startswith("HESHARE_JOB=")]
                part = module.rpartition(".")[2] or "".join(scripts)
                found.append((int(process.name), part, "".join(named[:1])))
    return found


def left_behind(folder: Path, fake: FakeNvml) -> list[str]:
    """Return the processes, notes, MPS folders, locks and clocks that a run has left on the machine of a folder."""
    state = (folder / "state" / "heshare").rglob("*.json")
    wrong = [f"process {pid} ({part or job or 'MPS'})" for pid, part, job in processes(folder)]
    wrong += [f"a note, {path.name}" for path in state]
    wrong += [f"an MPS folder, {path.name}" for path in (folder / "tmp").glob("hs-mps-*")]
    wrong += [f"a lock, {path.name}" for path in (folder / "locks").glob("*") if is_locked(path)]
    return wrong + ["a locked clock"] * fake.locked()


@dataclass(frozen=True)
class RunFolder:
    folder: Path

    def write(self, rng: np.random.Generator, *, retries: int = 0) -> None:
        """Write jobs that arrive within two seconds, take up to a second, and then write their name."""
        self.folder.mkdir()
        rows = []
        for index, name in enumerate(JOBS):
            command = f"sleep {float(rng.random()):.3f} && echo {name} >> {self.folder / 'done.txt'}"
            arrival_s = round(2.0 * float(rng.random()) * (index > 3), 3)
            rows.append(job(name, "sh", "-c", command, retries=retries, arrival_s=arrival_s))
        (self.folder / "jobs.yaml").write_text(jobs_of(*rows), encoding="utf-8")

    def entries(self) -> list[dict[str, Any]]:
        """Return the journal as far as it is; nothing before it begins."""
        with suppress(FileNotFoundError, InputError):
            return journal_lines(self.folder / "run")
        return []

    def words(self, *options: str) -> list[str]:
        """Return the words of the command that begins the run with these options, or resumes it."""
        run = str(self.folder / "run")
        if self.entries():
            return ["jobs", "run", "--resume", run]
        return ["jobs", "run", str(self.folder / "jobs.yaml"), "--devices", "nvml", "--out", run, *options]

    def outcomes(self, name: str) -> list[str]:
        ends = [entry["end"] for entry in self.entries() if "end" in entry]
        return [end["outcome"] for end in ends if end["job"] == name]

    def faults(self) -> list[str]:
        """Return which jobs of a run that is over were lost or count twice."""
        done = self.folder / "done.txt"
        worked = Counter(done.read_text("utf-8").split() if done.exists() else [])
        counted = {name: self.outcomes(name).count("completed") for name in JOBS}
        return [f"{name} is counted {count} times, done {worked[name]} times" for name, count in counted.items()
                if count != 1 or not worked[name]]  # fmt: skip

    def energy_faults(self, spent_j: float) -> list[str]:
        """Return what the report of a run says of energy that cannot be; `spent_j` is what a card used meanwhile, J."""
        faults = []
        for _, row in read_report(self.folder / "run").gpus.iterrows():
            energy_j, parts_j = row["energy_j"], row[["completed_j", "lost_j", "idle_j"]].sum()
            said = f"GPU {row['gpu']}: {energy_j:.1f} J"
            if not 0.0 < energy_j <= spent_j:
                faults.append(f"{said}, where it used {spent_j:.1f} J")
            if abs(parts_j - energy_j) > 1e-6 * energy_j:
                faults.append(f"{said}, in parts of {parts_j:.1f} J")
            if abs(row["counter_j"] - energy_j - row["between_j"]) > 1e-3 * energy_j:
                faults.append(f"{said}, where its counter says {row['counter_j']:.1f} J")
        return faults


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
