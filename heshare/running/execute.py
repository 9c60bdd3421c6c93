"""The executor: jobs on real GPUs under a policy, by the same event loop as in virtual time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from heshare import files
from heshare.devices.executing import JobDevice
from heshare.devices.interrupts import Interrupted
from heshare.devices.machine import Machine, Models, chosen
from heshare.devices.meter import Patience
from heshare.errors import PolicyError
from heshare.policies.guarded import Guarded
from heshare.policies.registry import make
from heshare.prediction.predictor import Predictor
from heshare.running import jobs as jobfiles
from heshare.running import ledger as ledgers
from heshare.running.attendant import Attendant
from heshare.running.clock import WallClock
from heshare.running.ledger import Ledger
from heshare.running.outcome import Outcome, outcome
from heshare.running.result import Run
from heshare.running.run import run
from heshare.scheduling.objectives import fit_mask
from heshare.world.cluster import Cluster
from heshare.world.jobfile import read_jobs
from heshare.world.task import Task


@dataclass(frozen=True)
class Ways:
    """How to execute; what a test may want otherwise.

    Attributes:
        patience: how long to wait for what.
        models: makes what starts workloads of Table IV; None is PyTorch workers.
        show: where progress goes, or None.
        full_s: how long to wait for room on a full disk, s.
    """

    patience: Patience | None = None
    models: Models | None = None
    show: TextIO | None = None
    full_s: float = ledgers.FULL_S


def execute(
    file: Path,
    folder: Path,
    *,
    policy: str,
    devices: str,
    predictor: Predictor,
    seed: int = 0,
    allow_clocks: bool = False,
    ways: Ways | None = None,
) -> Outcome:
    """Run the jobs of a file on real GPUs; everything about the run goes into its folder.

    Args:
        file: the `jobs.yaml`.
        folder: of the run; new, or without a journal.
        policy: a name of the registry.
        devices: `nvml`, or `nvml:0,nvml:1`.
        predictor: what the policy believes.
        seed: of the policy's randomness.
        allow_clocks: let the policy lock clocks.
        ways: how else.

    Raises:
        InputError: a bad file, policy or GPU; nothing has been started.
        DeviceError: a GPU that another run has, or that cannot be used; a disk that stays full.
        Interrupted: a signal asked for the end; everything is in order, and `resume` goes on.
    """
    specs = read_jobs(file)
    jobfiles.check(specs, file)
    make(policy)
    ways = ways or Ways()
    said = {
        "version": str(import_module("heshare").__version__),
        "policy": policy,
        "devices": chosen(devices),
        "seed": seed,
        "allow_clocks": allow_clocks,
        "file": str(file.absolute()),
        "jobs": jobfiles.as_json(specs),
    }
    with closing(Ledger(folder, said, full_s=ways.full_s)) as ledger:
        return _go_on(folder, ledger, predictor, ways)


def resume(folder: Path, *, predictor: Predictor, ways: Ways | None = None) -> Outcome:
    """Go on with a run that ended early: what is over stays so, what ran is started again.

    Raises:
        InputError: no run in this folder, or one that goes on.
        DeviceError, Interrupted: as `execute`.
    """
    ways = ways or Ways()
    with closing(Ledger(folder, None, full_s=ways.full_s)) as ledger:
        return _go_on(folder, ledger, predictor, ways)


def _go_on(folder: Path, ledger: Ledger, predictor: Predictor, ways: Ways) -> Outcome:
    said = ledger.entries[0]["run"]
    history = jobfiles.history(ledger.entries)
    sessions = [entry["session"] for entry in ledger.entries if "session" in entry]
    elapsed_s = time.time() - sessions[0]["at"] if sessions else 0.0
    every = jobfiles.copies(jobfiles.from_json(said["jobs"]))
    tasks, assigned = jobfiles.left(every, history, elapsed_s=elapsed_s)
    if tasks:
        clock = WallClock()
        machine = Machine(
            said["devices"],
            assigned,
            folder,
            clock.now_s,
            allow_clocks=said["allow_clocks"],
            patience=ways.patience,
            models=ways.models,
        )
        seeds = np.random.SeedSequence(said["seed"]).spawn(len(sessions) + 1)
        rng = np.random.default_rng(seeds[-1])
        with machine:
            attendant = Attendant(ledger, assigned, machine.devices, clock.now_s, history, ways.show)
            _session(machine, ledger, clock)
            policy = Guarded(make(said["policy"]))
            _run(tasks, machine.devices, policy, predictor, rng, clock, attendant, ledger)
    result = outcome(ledgers.read(folder))
    _write(folder, result)
    return result


def _session(machine: Machine, ledger: Ledger, clock: WallClock) -> None:
    """Note what the session begins with, before anything is started."""
    gpus = [
        {
            "uuid": device.uuid,
            "name": device.gpu.name,
            "planned_mhz": f"{device.gpu.clocks_mhz[0]}-{device.gpu.max_mhz}"
            if len(device.gpu.clocks_mhz) > 1
            else f"{device.gpu.max_mhz} (the card's own)",
            "sharing": device.sharing,
        }
        for device in machine.devices
    ]
    at = time.time() - clock.now_s()
    said = {"at": at, "pid": os.getpid(), "gpus": gpus, "counters_j": machine.counters_j(), "token": machine.token}
    ledger.add({"session": said})


def _run(
    tasks: Sequence[Task],
    devices: Sequence[JobDevice],
    policy: Guarded,
    predictor: Predictor,
    rng: np.random.Generator,
    clock: WallClock,
    attendant: Attendant,
    ledger: Ledger,
) -> Run | None:
    """The event loop; a run that cannot end is a note, since much of it may have been done."""
    cluster = Cluster(tuple(device.gpu for device in devices))
    fit_mask(tasks, cluster)
    try:
        return run(
            tasks, cluster, policy, predictor=predictor, rng=rng, devices=devices, clock=clock, observer=attendant
        )
    except PolicyError as error:
        ledger.add({"note": {"gpu": None, "text": str(error)}})
        return None
    except Interrupted as signal:
        ledger.add({"note": {"gpu": None, "text": f"ended by {signal}"}})
        raise
    finally:
        attendant.finish()


def _write(folder: Path, result: Outcome) -> None:
    """The report beside the journal, from which it can be made again at any time."""
    result.jobs.to_csv(folder / "jobs.csv", index=False, lineterminator="\n")
    result.gpus.to_csv(folder / "gpus.csv", index=False, lineterminator="\n")
    files.write_text(folder / "report.txt", report(result))


def report(result: Outcome) -> str:
    """The outcome in words and numbers."""
    lines = [f"{name}: {_cell(value)}" for name, value in result.totals.items()]
    lines += ["", result.gpus.to_string(index=False), "", result.jobs.drop(columns=["log"]).to_string(index=False)]
    if result.notes:
        lines += ["", "Notes", *[f"- {note}" for note in result.notes]]
    own = any("own" in str(clock) for clock in result.gpus.get("planned_mhz", []))
    lines += ["", _OWN_CLOCK] if own else []
    return "\n".join([*lines, "", _SHARES]) + "\n"


_OWN_CLOCK = (
    "Clocks were left to the cards (--allow-clocks was not given, or they cannot be set): the plan is for these clocks."
)
_SHARES = (
    "Energy of a GPU is its own counter's. Energy of a job is its share of it, equal among those that ran at each "
    "moment: no counter tells the energy of one MPS client."
)


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
