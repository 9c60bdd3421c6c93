"""Calls of Slurm's own programs, with a time limit and errors as one message; and the jobs of `squeue --json`."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heshare.ops.slurm.job_comment import is_ours, placed_gpu
from heshare.shared.errors import HeShareError

HELD = "JobHeldUser"
"""Slurm's reason for a job that its user submitted held; what an administrator holds is left alone."""
_OVER = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"),
        *("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED"),
    }
)
_ABSENT = ("(null)", "N/A")
_ID = re.compile(r":([0-9]+)")
CALL_S = 60.0
"""How long a program may take, s; slurmctld answers in milliseconds, or not at all."""


class SlurmError(HeShareError):
    """Slurm is not there, does not answer, or refuses."""


def call(command: Sequence[str]) -> str:
    """Return what one of Slurm's programs printed; no shell interprets its arguments.

    Raises:
        SlurmError: the program is missing, takes too long, or fails.
    """
    # Variables such as SQUEUE_FORMAT and SQUEUE_STATES change what squeue prints.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SQUEUE_", "SLURM_TIME_FORMAT"))}
    shown = " ".join(command[:3])
    try:
        done = subprocess.run(
            list(command),
            env={**kept, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CALL_S,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(
            f"{command[0]} is not on the PATH. Run this where Slurm's commands are installed, as a user whom Slurm "
            "lets change jobs (root, SlurmUser or an operator)."
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{shown}: no answer within {CALL_S:g} s. Check slurmctld (scontrol ping).") from None
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").split() or [f"exit code {done.returncode}"]
        raise SlurmError(f"{shown}: {' '.join(words)[:300]}")
    return done.stdout.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job in Slurm's queue.

    Attributes:
        partition: its partition, or several with commas.
        state: such as PENDING.
        reason: why it waits, such as JobHeldUser.
        gres: the generic resources and GPUs that it asks for; empty for none.
        dependency: on which jobs it waits, as Slurm writes it.
        array: whether it is a job array, or a task of one.
    """

    id: int
    user: str
    partition: str
    state: str
    reason: str
    comment: str
    gres: str
    dependency: str
    nodes: int
    array: bool

    @property
    def held(self) -> bool:
        return self.state == "PENDING" and self.reason == HELD

    @property
    def stopped(self) -> bool:
        """Whether anybody holds it: its user, an administrator, or Slurm after a prolog that failed."""
        return self.state == "PENDING" and "held" in self.reason.lower()

    @property
    def unfinished(self) -> bool:
        """Whether it waits or runs; Slurm lists jobs for some minutes after their end."""
        return self.state not in _OVER

    @property
    def gpu(self) -> str:
        """The place that a plan gave it, node/type, or nothing."""
        return placed_gpu(self.comment)

    @property
    def ours(self) -> bool:
        return is_ours(self.comment)

    @property
    def waits_for(self) -> frozenset[int]:
        return frozenset(map(int, _ID.findall(self.dependency)))


def read_queue() -> tuple[SlurmJob, ...]:
    """Return all jobs that wait or run, by id.

    Raises:
        SlurmError: squeue is missing or fails, or prints what cannot be read.
    """
    jobs = parse_json(call(["squeue", "--all", "--json"]))
    return tuple(sorted((job for job in jobs if job.unfinished), key=lambda job: job.id))


def parse_json(text: str) -> list[SlurmJob]:
    """Return the jobs of a document of `squeue --json`.

    Read with Slurm 22.05; later versions write states as lists, numbers as objects, and three comments in one object.

    Raises:
        SlurmError: it is no such document.
    """
    try:
        return [_json_job(row) for row in json.loads(text)["jobs"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SlurmError(f"squeue --json: what it prints cannot be read ({type(error).__name__}: {error}).") from None


def _json_job(row: Mapping[str, Any]) -> SlurmJob:
    comment = row["comment"]
    wanted = ("tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task")
    return SlurmJob(
        id=_number(row["job_id"]),
        user=row["user_name"],
        partition=row["partition"],
        state=row["job_state"] if isinstance(row["job_state"], str) else row["job_state"][0],
        reason=row["state_reason"],
        comment=comment["job"] if isinstance(comment, dict) else comment or "",
        gres=",".join(each for each in (_resources(row.get(name)) for name in wanted) if each),
        dependency=row["dependency"] or "",
        nodes=_number(row["node_count"]),
        array=bool(_number(row["array_job_id"])),
    )


def _number(value: Any) -> int:
    if isinstance(value, dict):
        value = value["number"] if value["set"] else 0
    return int(value or 0)


def _resources(text: str | None) -> str:
    """Return requested resources; after they were removed Slurm leaves `gres:`."""
    return "" if text in (None, "gres:", *_ABSENT) else str(text)
