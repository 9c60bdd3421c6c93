"""The executor: jobs on real GPUs under a policy, by the same event loop as in virtual time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

import numpy as np

from heshare import files
from heshare.devices.command import Assigned
from heshare.devices.interrupts import Interrupted
from heshare.devices.machine import Machine, Models, chosen
from heshare.devices.meter import Patience
from heshare.devices.worked import Gpus, WorkedDevice
from heshare.errors import InputError, PolicyError
from heshare.policies.guarded import Guarded
from heshare.policies.registry import make
from heshare.prediction.predictor import Predictor
from heshare.running import jobs as jobfiles
from heshare.running import ledger as ledgers
from heshare.running.attendant import Attendant
from heshare.running.clock import WallClock
from heshare.running.hosts import admit
from heshare.running.ledger import Ledger
from heshare.running.links import Hosts
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
    hosts: str | None = None,
    seed: int = 0,
    allow_clocks: bool = False,
    ways: Ways | None = None,
) -> Outcome:
    """Run the jobs of a file on real GPUs; everything about the run goes into its folder.

    Args:
        file: the `jobs.yaml`.
        folder: of the run; new, or without a journal.
        policy: a name of the registry.
        devices: `nvml`, or `nvml:0,nvml:1`; of several hosts `nvml`, or `nvml:UUID,nvml:UUID`.
        predictor: what the policy believes.
        hosts: a Dask scheduler, `dask://host:port`, whose workers' GPUs are meant; None is this machine.
        seed: of the policy's randomness.
        allow_clocks: let the policy lock clocks.
        ways: how else.

    Raises:
        InputError: a bad file, policy or GPU; nothing has been started.
        DeviceError: a GPU that another run has, or that cannot be used; a disk that stays full.
        Interrupted: a signal asked for the end; everything is in order, and `resume` goes on.
    """
    specs = read_jobs(file)
    make(policy)
    ways = ways or Ways()
    if hosts is None:
        jobfiles.check(specs, file)
        uuids = chosen(devices)
    else:
        uuids = admit(hosts, devices, specs, file)
    said = {
        "version": str(import_module("heshare").__version__),
        "policy": policy,
        "devices": uuids,
        "hosts": None if hosts is None else {"address": hosts, "name": f"{folder.absolute().name}-{uuid4().hex[:8]}"},
        "seed": seed,
        "allow_clocks": allow_clocks,
        "file": str(file.absolute()),
        "jobs": jobfiles.as_json(specs),
    }
    with closing(Ledger(folder, said, full_s=ways.full_s)) as ledger:
        return _go_on(folder, ledger, predictor, ways)


def resume(folder: Path, *, predictor: Predictor, hosts: str | None = None, ways: Ways | None = None) -> Outcome:
    """Go on with a run that ended early: what is over stays so, what ran is started again.

    Args:
        folder: the run's.
        predictor: what the policy believes.
        hosts: where the scheduler of a run on several hosts is now, if not where it was.
        ways: how else.

    Raises:
        InputError: no run in this folder, or one that goes on.
        DeviceError, Interrupted: as `execute`.
    """
    ways = ways or Ways()
    with closing(Ledger(folder, None, full_s=ways.full_s)) as ledger:
        return _go_on(folder, ledger, predictor, ways, hosts)


def _go_on(folder: Path, ledger: Ledger, predictor: Predictor, ways: Ways, hosts: str | None = None) -> Outcome:
    said = ledger.entries[0]["run"]
    history = jobfiles.history(ledger.entries)
    sessions = [entry["session"] for entry in ledger.entries if "session" in entry]
    elapsed_s = time.time() - sessions[0]["at"] if sessions else 0.0
    every = jobfiles.copies(jobfiles.from_json(said["jobs"]))
    tasks, assigned = jobfiles.left(every, history, elapsed_s=elapsed_s)
    if tasks:
        clock = WallClock()
        known = {gpu["uuid"]: (gpu["name"], gpu.get("host", "")) for session in sessions for gpu in session["gpus"]}
        machine = _gpus(said, assigned, folder, clock, ways, hosts, known)
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


def _gpus(
    said: Mapping[str, Any],
    assigned: Mapping[int, Assigned],
    folder: Path,
    clock: WallClock,
    ways: Ways,
    hosts: str | None,
    known: Mapping[str, tuple[str, str]],
) -> Gpus:
    """The GPUs of a run, still to be taken: this machine's, or those of several hosts.

    Raises:
        InputError: another scheduler is named for a run on this machine.
    """
    there = said.get("hosts")
    if there is None and hosts is not None:
        raise InputError(
            column="--hosts",
            found=f"{hosts} for a run on this machine's own GPUs",
            expected="no --hosts",
            action="Leave it out, or begin another run.",
        )
    given: dict[str, Any] = {"allow_clocks": said["allow_clocks"], "patience": ways.patience}
    if there is None:
        names = {uuid: name for uuid, (name, _) in known.items()}
        return Machine(said["devices"], assigned, folder, clock.now_s, models=ways.models, known=names, **given)
    address = hosts or there["address"]
    return Hosts(address, said["devices"], assigned, there["name"], clock.now_s, known=known, **given)


def _session(machine: Gpus, ledger: Ledger, clock: WallClock) -> None:
    """Note what the session begins with, before anything is started."""
    gpus = [
        {
            "uuid": device.uuid,
            "name": device.gpu.name,
            "planned_mhz": f"{device.gpu.clocks_mhz[0]}-{device.gpu.max_mhz}"
            if len(device.gpu.clocks_mhz) > 1
            else f"{device.gpu.max_mhz} (the card's own)",
            "sharing": device.sharing,
            **({"host": device.host} if device.host else {}),
        }
        for device in machine.devices
    ]
    at = time.time() - clock.now_s()
    said = {"at": at, "pid": os.getpid(), "gpus": gpus, "counters_j": machine.counters_j(), "token": machine.token}
    ledger.add({"session": said})


def _run(
    tasks: Sequence[Task],
    devices: Sequence[WorkedDevice],
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
