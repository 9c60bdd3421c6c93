"""From `jobs.yaml` to tasks: copies, sizes, what was done before; and back from a journal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from heshare.devices.command import Assigned
from heshare.errors import InputError
from heshare.running.draw import time_alone_s
from heshare.world.jobfile import JobSpec
from heshare.world.task import Task
from heshare.world.workload import Workload

FREE_ATTEMPTS = 10
"""How often a job is tried again for what was not its own fault."""


@dataclass(frozen=True)
class History:
    """What a journal says of the jobs.

    Attributes:
        over: how each job that is over ended, `completed` or `failed`, by key.
        attempts: how many attempts at each job there were, those that never ended included.
        charged: how many of them failed by its own fault.
        free: how many failed by no fault of its own.
        lost: how many never ended, since the run itself did.
        did: iterations that paused attempts completed.
        open: the attempts that had been started and had not ended when the last session did.
    """

    over: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    charged: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    did: dict[str, float] = field(default_factory=dict)
    open: dict[str, dict[str, Any]] = field(default_factory=dict)


def copies(specs: Sequence[JobSpec]) -> tuple[Assigned, ...]:
    """Every copy of every entry, with its key."""
    return tuple(
        Assigned(spec.name if spec.count == 1 else f"{spec.name}-{index}", spec, index)
        for spec in specs
        for index in range(spec.count)
    )


def check(specs: Sequence[JobSpec], file: Path) -> None:
    """Refuse what could never start, before anything does.

    Raises:
        InputError: a program that is not there, or two jobs with one key.
    """
    check_names(specs, file)
    check_programs(specs, file)


def check_names(specs: Sequence[JobSpec], file: Path) -> None:
    """Refuse two jobs with one key.

    Raises:
        InputError: there are.
    """
    seen: set[str] = set()
    for job in copies(specs):
        if job.key in seen:
            raise InputError(
                file=file,
                row=job.spec.row,
                column="name",
                found=f"two jobs called {job.key!r}",
                expected="one job a name, copies included",
                action="Rename one of the entries.",
            )
        seen.add(job.key)


def check_programs(specs: Sequence[JobSpec], file: Path) -> None:
    """Refuse commands that do not start on this machine.

    Raises:
        InputError: a program or a folder that is not there.
    """
    for spec in specs:
        if spec.command and not spec.directory.is_dir():
            raise InputError(
                file=file,
                row=spec.row,
                column="directory",
                found=str(spec.directory),
                expected="a folder that exists",
                action="Make it, or correct the path.",
            )
        if spec.command and _program(spec) is None:
            raise InputError(
                file=file,
                row=spec.row,
                column="command",
                found=f"the program {spec.command[0]!r}",
                expected="a program on the PATH, or the path of one that may be executed",
                action="Correct the command, or install the program.",
            )


def size(spec: JobSpec) -> float:
    """How many iterations of its workload a job is."""
    if spec.iterations is not None:
        return spec.iterations
    assert spec.expected_time_s is not None
    return spec.expected_time_s / time_alone_s(spec.workload)


def left(
    jobs: Sequence[Assigned], history: History, *, elapsed_s: float = 0.0
) -> tuple[tuple[Task, ...], dict[int, Assigned]]:
    """The tasks of the jobs that are not over, and the jobs by task id.

    Args:
        jobs: every job.
        history: what was done before.
        elapsed_s: time since the first start of the run, s.
    """
    tasks: list[Task] = []
    assigned: dict[int, Assigned] = {}
    for job in jobs:
        if job.key not in history.over:
            number = len(tasks)
            iterations = max(size(job.spec) - history.did.get(job.key, 0.0), 1e-9)
            tasks.append(Task(number, job.spec.workload, iterations, max(0.0, job.spec.arrival_s - elapsed_s)))
            assigned[number] = Assigned(job.key, job.spec, job.index, history.attempts.get(job.key, 0))
    return tuple(tasks), assigned


def history(entries: Sequence[Mapping[str, Any]]) -> History:
    """What the entries of a journal say of the jobs."""
    found = History()
    for entry in entries:
        for action in entry.get("decision", {}).get("actions", ()):
            if action[0] in ("start", "migrate"):
                key = action[1]
                found.attempts[key] = found.attempts.get(key, 0) + 1
                found.open[key] = {"gpu": action[2], "t": entry["decision"]["t"]}
        if "end" in entry:
            _ended(found, entry["end"])
        if "session" in entry:
            _lost(found)
    _lost(found)
    return found


def _ended(found: History, end: Mapping[str, Any]) -> None:
    key = end["job"]
    # A migration's start is noted before the end of what it moves, so only the last attempt closes.
    if end["outcome"] != "migrated":
        found.open.pop(key, None)
    found.did[key] = found.did.get(key, 0.0) + (0.0 if end["outcome"] == "completed" else end["iterations"])
    if end["outcome"] == "completed":
        found.over[key] = "completed"
    elif end["outcome"].startswith("failed"):
        side = found.charged if end["charged"] else found.free
        side[key] = side.get(key, 0) + 1
        if not end["again"]:
            found.over[key] = "failed"


def _lost(found: History) -> None:
    """A session ended without a word: what it had started was ended with it."""
    for key in found.open:
        if key not in found.over:
            found.lost[key] = found.lost.get(key, 0) + 1
    found.open.clear()


def as_json(specs: Sequence[JobSpec]) -> list[dict[str, Any]]:
    """Entries as a journal keeps them."""
    return [{**asdict(spec), "directory": str(spec.directory)} for spec in specs]


def from_json(said: Sequence[Mapping[str, Any]]) -> tuple[JobSpec, ...]:
    """Entries as a journal kept them."""
    return tuple(
        JobSpec(
            **{
                **one,
                "command": tuple(one["command"]),
                "workload": Workload(**one["workload"]),
                "directory": Path(one["directory"]),
                "environment": tuple((name, value) for name, value in one["environment"]),
            }
        )
        for one in said
    )


def _program(spec: JobSpec) -> str | None:
    name = spec.command[0]
    path = dict(spec.environment).get("PATH", os.environ.get("PATH"))
    return shutil.which(str(spec.directory / name) if os.sep in name else name, path=path)
