"""The drill that kills the clock service of runs that lock clocks, in a third of the cases with the executor."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
from support.clock_service import ServiceProcess
from support.drills.executor_drill import POLICIES, end_of_run, new_run, note_moment
from support.drills.machine import Machine, kill, wait_until_empty
from support.drills.tally import Tally

_WITH_EXECUTOR = 1 / 3
_ANY_MOMENT = 0.001
"""Chance, every 0.02 s, not to wait until a clock is locked."""


def drill(kills: int, seed: int, folder: Path) -> Tally:
    """Kill the service at random moments and start it again; clocks are the cards' own, or its client's, then."""
    machine, rng, tally = Machine(folder), np.random.default_rng(seed), Tally("clock service")
    service = ServiceProcess(folder / "clocks").begin()
    os.environ["HESHARE_CLOCKS"] = str(service.socket)
    try:
        while tally.kills < kills:
            run = new_run(machine, tally, rng, longest_s=3.0)
            over = False
            while not over:
                executor = machine.start(*run.words("--policy", *POLICIES[0]))
                while tally.kills < kills and executor.poll() is None:
                    _kill_once(machine, service, executor, rng, tally)
                over = executor.wait() >= 0
            end_of_run(machine, run, executor, tally)
    finally:
        service.end()
    if machine.locked() or service.notes:
        tally.faults.append("the service ended with a clock locked")
    return tally


def _kill_once(
    machine: Machine,
    service: ServiceProcess,
    executor: subprocess.Popen[bytes],
    rng: np.random.Generator,
    tally: Tally,
) -> None:
    while rng.random() > _ANY_MOMENT and executor.poll() is None and not machine.locked():
        time.sleep(0.02)
    time.sleep(1.5 * float(rng.random()))
    if executor.poll() is not None:
        return
    note_moment(machine, tally)
    service.kill()
    alone = rng.random() >= _WITH_EXECUTOR
    if not alone:
        kill([executor.pid])
        executor.wait()
    time.sleep(0.3 * float(rng.random()))
    service.begin()
    at_s = time.monotonic()

    def wrong() -> list[str]:
        differs = machine.locked() != bool(service.notes)
        left = [] if alone else machine.left_behind()
        return ["the notes of the service and the locked clocks differ"] * differs + left

    tally.after_kill(*wait_until_empty(wrong, at_s))
