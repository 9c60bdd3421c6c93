"""The fault drill: executors over stand-ins, killed (-9) at random moments and resumed, again and again.

`python -m support.kill_drill --kills 200` prints one line of JSON: kills, how many left the machine as it was, complete
runs, jobs lost, jobs counted twice. Everything is real but NVML and the MPS daemon: processes, signals, locks, journal,
watchdog.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from support import fake_mps
from support.fakenvml import build

from heshare.gpu.executor import execute, run_journal, watchdog
from heshare.gpu.executor.executor_device import Timeouts
from heshare.gpu.executor.gpu_lock import GpuInUseError, GpuLock
from heshare.gpu.nvml import clock_lock
from heshare.policies.policy import Action, Event, SetClock, Traits, View
from heshare.policies.random_placement import Random
from heshare.policies.registry import register
from heshare.testing.toy import ToyPredictor

UUID = "GPU-00000000-1111-2222-3333-444444444444"
POLICY = "drill"
_CALM_S = 30.0
MARK = "HESHARE_DRILL"


class Drilled(Random):
    """Random, with a lower clock at every decision, so that there is a clock to restore."""

    name = POLICY
    traits = Traits(frequency=True, multi_task=True, heterogeneous=False)

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Yield the next batches, and another clock for every GPU."""
        answer: Iterable[Action] = super().decide(event, view)
        yield from answer
        for gpu in view.gpus:
            grid = gpu.gpu.clocks_mhz
            if len(grid) > 1:
                yield SetClock(gpu.index, grid[int(self.rng.integers(len(grid) - 1))])


def prepare(folder: Path) -> dict[str, str]:
    """Build the stand-ins into a folder; return the environment in which a process uses them instead of real GPUs."""
    for name in ("lib", "bin", "locks", "state", "tmp"):
        (folder / name).mkdir()
    build(folder / "lib")
    fake_mps.install(folder / "bin")
    return {
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "FAKENVML_STATE": str(folder / "machine"),
        "XDG_STATE_HOME": str(folder / "state"),
        "HESHARE_LOCKS": str(folder / "locks"),
        "TMPDIR": str(folder / "tmp"),
        MARK: str(folder),
    }


def jobs_file(folder: Path, rng: np.random.Generator, count: int = 8) -> Path:
    """Write a file of jobs that take 50 to 300 ms and then append their name to a file."""
    lines = ["jobs:"]
    for index in range(count):
        wait_s = 0.05 + 0.25 * float(rng.random())
        lines += [
            f"  - name: job{index}",
            f'    command: [sh, -c, "sleep {wait_s:.3f}; echo job{index} >> done.txt"]',
            "    like: resnet50:8",
            "    iterations: 100",
        ]
    path = folder / "jobs.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def attempt(folder: Path) -> None:
    """Begin or resume the run of a folder, in this process."""
    options = execute.ExecutorOptions(timeouts=Timeouts(poll_s=0.1))
    run = folder / "run"
    if (run / run_journal.NAME).exists() and run_journal.read(run):
        execute.resume(run, predictor=ToyPredictor(), options=options)
    else:
        file = folder / "jobs.yaml"
        execute.execute(
            file, run, policy=POLICY, devices="nvml", predictor=ToyPredictor(), allow_clocks=True, options=options
        )


def left_behind(machine: Path) -> list[str]:
    """Return what differs from before the run, after a while for the cleanup."""
    until = time.monotonic() + _CALM_S
    wrong = ["no cleanup"]
    while time.monotonic() < until:
        try:
            GpuLock(UUID).close()
        except GpuInUseError:
            time.sleep(0.02)
            continue
        wrong = _traces(machine)
        if not wrong:
            return []
        time.sleep(0.1)
    return wrong


def drill(kills: int, seed: int, machine: Path, most_s: float = 1.6) -> dict[str, int | list[str]]:
    """Kill executors until so many kills are done and the last run is complete.

    Args:
        kills: how many.
        seed: of the moments.
        machine: the folder that `prepare` filled; its environment must be this process's.
        most_s: the longest time from an executor's start to its kill, s.
    """
    if POLICY not in _registered():
        register(POLICY, title="Drill")(Drilled)
    rng = np.random.default_rng(seed)
    counts = Counter(restored=0, runs=0, lost=0, twice=0)
    faults: list[str] = []
    done = 0
    while done < kills:
        folder = Path(tempfile.mkdtemp(dir=machine))
        jobs_file(folder, rng)
        over = False
        while not over:
            moment_s = most_s * float(rng.random()) if done < kills else None
            killed, over = _executor(folder, moment_s)
            done += killed
            wrong = left_behind(machine) if killed else _traces(machine)
            faults += [f"kill {done}: {fault}" for fault in wrong]
            counts["restored"] += killed and not wrong
        completions = _completions(folder).values()
        counts["runs"] += 1
        counts["lost"] += sum(number == 0 for number in completions)
        counts["twice"] += sum(number > 1 for number in completions)
    return {**counts, "kills": done, "faults": faults}


def _executor(folder: Path, moment_s: float | None) -> tuple[bool, bool]:
    """Run one executor and kill it at a moment; return whether it was killed, and whether its run is over."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            attempt(folder)
            code = 0
        finally:
            os._exit(code)
    if moment_s is not None:
        time.sleep(moment_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    if not killed and os.WEXITSTATUS(status) != 0:
        raise RuntimeError(f"an executor that was not killed failed; see {folder}")
    return killed, not killed


def _completions(folder: Path) -> Counter[str]:
    """Return how often each job was counted as completed; 0 for a job that was counted and never done."""
    counted = Counter({f"job{index}": 0 for index in range(8)})
    counted.update(
        entry["end"]["job"]
        for entry in run_journal.read(folder / "run")
        if "end" in entry and entry["end"]["outcome"] == "completed"
    )
    written = Counter((folder / "done.txt").read_text(encoding="utf-8").split()) if counted.total() else Counter()
    for job, number in counted.items():
        if number > written[job]:
            counted[job] = 0
    return counted


def _traces(machine: Path) -> list[str]:
    wrong = [f"a note, {path.name}" for path in (*clock_lock.notes(), *watchdog.run_notes())]
    wrong += [f"an MPS folder, {path.name}" for path in sorted((machine / "tmp").glob("hs-mps-*"))]
    mark = f"{MARK}={machine}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                wrong.append(f"process {folder.name}, {(folder / 'cmdline').read_bytes()[:80]!r}")
        except OSError:
            continue
    if _locked_mhz(machine):
        wrong.append("a locked clock")
    return wrong


def _locked_mhz(machine: Path) -> float:
    """Return the stand-in's locked clock, from the state that its processes share, MHz."""
    from support.fakenvml import FakeNvml

    return FakeNvml(machine / "lib" / "libnvidia-ml.so.1").get("locked_mhz")


def _registered() -> tuple[str, ...]:
    from heshare.plugins import policies

    return tuple(policies())


def main() -> int:
    """Run the drill in a process of its own, whose environment has the stand-ins from the beginning."""
    parser = argparse.ArgumentParser(prog="support.kill_drill", description="Kill executors at random moments.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-s", type=float, default=1.6)
    arguments = parser.parse_args()
    machine = os.environ.get(MARK)
    if machine is not None:
        sys.stdout.write(json.dumps(drill(arguments.kills, arguments.seed, Path(machine), arguments.most_s)) + "\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        environment = {**os.environ, **prepare(Path(name))}
        pid = os.spawnve(
            os.P_NOWAIT, sys.executable, [sys.executable, "-m", "support.kill_drill", *sys.argv[1:]], environment
        )
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
