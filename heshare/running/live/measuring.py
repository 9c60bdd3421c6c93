"""Policies run for real, one after the other; a run that has ended is kept, one that was cut off is made anew."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from heshare import files
from heshare.errors import DeviceError, InputError
from heshare.policies.registry import canonical
from heshare.prediction.predictor import Predictor
from heshare.running import execute, ledger
from heshare.running.fingerprint import hash_of
from heshare.running.live import jobs as jobfile
from heshare.running.live.journal import Measured, measured
from heshare.running.outcome import outcome
from heshare.world.task import Task

JOBS = "jobs.yaml"


@dataclass(frozen=True)
class Bench:
    """Where policies are run for real.

    Attributes:
        folder: of the runs and what they need.
        devices: the GPUs, such as `nvml`.
        about: what a run depends on besides its policy, such as cards, driver and record; kept runs notice a change.
        predictor: what policies believe; called for each run.
        seed: of the policies.
        allow_clocks: let policies lock clocks.
        ways: how else.
    """

    folder: Path
    devices: str
    about: Mapping[str, Any]
    predictor: Callable[[], Predictor]
    seed: int
    allow_clocks: bool
    ways: execute.Ways

    def run(self, name: str, tasks: Sequence[Task], policy: str, devices: str = "") -> list[dict[str, Any]]:
        """The journal of a policy's run; run now unless the very same run is there, whole.

        Raises:
            DeviceError: a job did not complete, or a GPU cannot be used.
            Interrupted: a signal asked for the end; what is whole is kept.
        """
        text = jobfile.as_yaml(tasks)
        where = devices or self.devices
        folder = self.folder / f"{name}-{self._key(text, policy, where)}"
        if not whole(folder):
            # A run with a break in it is no measurement: one that was cut off begins anew.
            shutil.rmtree(folder, ignore_errors=True)
            file = files.write_text(folder / JOBS, text)
            done = execute.execute(
                file,
                folder / "run",
                policy=policy,
                devices=where,
                predictor=self.predictor(),
                seed=self.seed,
                allow_clocks=self.allow_clocks,
                ways=self.ways,
            )
            if not done.complete:
                bad = done.jobs[done.jobs["outcome"] != "completed"].iloc[0]
                raise DeviceError(
                    f"{policy}: {bad['job']} {bad['outcome']}: {bad['reason'] or 'no reason given'}. See {folder}; "
                    "what is done is kept, run the same command again."
                )
        return ledger.read(folder / "run")

    def _key(self, text: str, policy: str, devices: str) -> str:
        said = {
            **self.about,
            "jobs": text,
            "policy": canonical(policy),
            "devices": devices,
            "seed": self.seed,
            "clocks": self.allow_clocks,
            "code": _code(),
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def of_policy(bench: Bench, tasks: Sequence[Task], policy: str) -> Measured:
    """A policy's run on all GPUs of the bench.

    Raises:
        DeviceError, Interrupted: as `Bench.run`.
    """
    name = re.sub(r"[^a-z0-9]+", "-", policy.lower()).strip("-")
    return measured(bench.run(name, tasks, policy), {f"{jobfile.PREFIX}{one.id}": one.arrival_s for one in tasks})


def whole(folder: Path) -> bool:
    """Whether a folder holds a run that went from its beginning to its end in one piece."""
    try:
        entries = ledger.read(folder / "run")
    except (InputError, OSError):
        return False
    sessions = sum("session" in entry for entry in entries)
    return sessions == 1 and (folder / "run" / "report.txt").is_file() and outcome(entries).complete


@cache
def _code() -> str:
    """What a run does depends on all of the package up to here; what draws it does not matter."""
    stages = ("world", "devices", "prediction", "scheduling", "policies", "running")
    return hash_of(sorted(path for stage in stages for path in (files.PACKAGE / stage).rglob("*.py")))
