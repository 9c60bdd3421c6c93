"""Drills that kill executors, alone or with watchdog and clock services, or the processes of their jobs."""

from __future__ import annotations

import subprocess
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from support.drills.machine import RUN_S, Machine, kill, processes
from support.drills.run_folder import RunFolder
from support.drills.tally import Tally

POLICIES = (("morak", "--allow-clocks"), ("random",))
"""Options of `heshare run`, taken in turns: the first policy lowers clocks."""

_BEGINNING = 0.2
"""Share of the kills in the time in which a run begins."""


def kill_executors(machine: Machine, kills: int, rng: np.random.Generator) -> Tally:
    """Kill executors at random moments, and resume their runs until they are over."""
    tally = Tally("executor")
    while tally.kills < kills:
        run = new_run(machine, tally, rng)
        while True:
            executor = machine.start(*run.words("--policy", *POLICIES[tally.runs % 2]))
            if tally.kills < kills:
                _wait_for_a_moment(run, executor, rng)
            if tally.kills == kills or executor.poll() is not None:
                break
            note_moment(machine, tally)
            at_s = kill([executor.pid])
            executor.wait()
            tally.after_kill(*machine.restored(at_s))
        end_of_run(machine, run, executor, tally)
    return tally


def kill_executors_and_helpers(machine: Machine, kills: int, rng: np.random.Generator) -> Tally:
    """Kill executors, watchdogs and clock services together, restore by `heshare restore`, and resume the runs."""
    tally = Tally("executor and helpers")
    while tally.kills < kills:
        run = new_run(machine, tally, rng)
        while True:
            executor = machine.start(*run.words("--policy", *POLICIES[tally.runs % 2]))
            while tally.kills < kills and not _pids(machine, "watchdog") and executor.poll() is None:
                time.sleep(0.001)
            time.sleep(2.5 * float(rng.random()))
            if tally.kills == kills or executor.poll() is not None:
                break
            note_moment(machine, tally)
            helpers = _pids(machine, "watchdog") | _pids(machine, "clock_service")
            kill([int(pid) for pid in rng.permutation([executor.pid, *sorted(helpers)])])
            executor.wait()
            at_s = time.monotonic()
            restore = machine.start("restore")
            if restore.wait(RUN_S) != 0:
                tally.faults.append(f"heshare restore exits with {restore.returncode}: {machine.printed()}")
            tally.after_kill(*machine.restored(at_s))
        end_of_run(machine, run, executor, tally)
    return tally


def kill_workers(machine: Machine, kills: int, rng: np.random.Generator) -> Tally:
    """Kill processes of jobs; the run goes on by itself, and retries them."""
    tally = Tally("process of a job")
    while tally.kills < kills:
        run = new_run(machine, tally, rng, retries=10)
        executor = machine.start(*run.words("--policy", *POLICIES[tally.runs % 2]))
        killed_in_run = 0
        while executor.poll() is None:
            jobs = [one for one in processes(machine.folder) if one.job]
            if not jobs or tally.kills == kills or killed_in_run == 5:
                time.sleep(0.02)
                continue
            one = jobs[int(rng.integers(len(jobs)))]
            before, ended = asdict(tally), _outcomes(run, one.job)
            if "completed" in ended:
                continue  # a process that is just ending
            note_moment(machine, tally)
            at_s = kill([one.pid])
            while executor.poll() is None and len(_outcomes(run, one.job)) == len(ended):
                time.sleep(0.01)
            new = _outcomes(run, one.job)[len(ended) :]
            if new == ["completed"]:
                tally = Tally(**before)  # its work was done
            else:
                killed_in_run += 1
                tally.after_kill([] if new else [f"no failure of {one.job} in the journal"], time.monotonic() - at_s)
            time.sleep(0.4 * float(rng.random()))
        end_of_run(machine, run, executor, tally)
    return tally


def _pids(machine: Machine, part: str) -> set[int]:
    return {one.pid for one in processes(machine.folder) if one.part == part}


def new_run(
    machine: Machine, tally: Tally, rng: np.random.Generator, *, retries: int = 0, longest_s: float = 0.8
) -> RunFolder:
    run = RunFolder(machine.folder / f"{tally.kind.split()[0]}{tally.runs}")
    run.write(rng, retries=retries, longest_s=longest_s)
    return run


def _wait_for_a_moment(run: RunFolder, executor: subprocess.Popen[bytes], rng: np.random.Generator) -> None:
    """Wait until a random moment of a run that begins or goes on, or until it is over."""
    if rng.random() < _BEGINNING:
        wait_s = 2.5 * float(rng.random())
    else:
        sessions = _sessions(run)
        while executor.poll() is None and _sessions(run) == sessions:
            time.sleep(0.02)
        wait_s = 2.5 * float(rng.random())
    try:
        executor.wait(wait_s)
    except subprocess.TimeoutExpired:
        return


def _sessions(run: RunFolder) -> int:
    return sum("session" in entry for entry in run.entries())


def _outcomes(run: RunFolder, job: str) -> list[str]:
    return [entry["end"]["outcome"] for entry in run.entries() if "end" in entry and entry["end"]["job"] == job]


def note_moment(machine: Machine, tally: Tally) -> None:
    tally.kills += 1
    tally.locked += machine.locked()
    tally.running += any(one.job for one in processes(machine.folder))


def end_of_run(machine: Machine, run: RunFolder, executor: subprocess.Popen[bytes], tally: Tally) -> None:
    """Wait for the end of a run that is not killed any more, and count its jobs."""
    try:
        executor.wait(RUN_S)
    except subprocess.TimeoutExpired:
        executor.terminate()
        executor.wait()
    if executor.returncode != 0:
        tally.faults.append(f"{tally.kind}, run {tally.runs}: exit code {executor.returncode}: {machine.printed()}")
    tally.after_run(run.counts(), machine.left_behind())


DRILLS = {
    "executor": kill_executors,
    "both": kill_executors_and_helpers,
    "worker": kill_workers,
}


def drill(kind: str, kills: int, seed: int, folder: Path) -> Tally:
    return DRILLS[kind](Machine(folder), kills, np.random.default_rng(seed))
