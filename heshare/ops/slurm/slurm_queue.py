"""Jobs of Slurm's queue, read from `squeue --json`, or from its text where the plug-in for JSON is missing."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heshare.ops.slurm.job_comment import is_ours, placed_gpu
from heshare.ops.slurm.slurm_programs import SlurmError, call

HELD = "JobHeldUser"
"""Slurm's reason for a job that its user submitted held; what an administrator holds is left alone."""
_OVER = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"),
        *("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED"),
    }
)
_FIELDS = {
    "id": "%A",
    "array": "%K",
    "state": "%T",
    "reason": "%r",
    "user": "%u",
    "partition": "%P",
    "dependency": "%E",
    "gres": "%b",
    "nodes": "%D",
    "comment": "%k",
}
_BETWEEN = "\x1f"
_ABSENT = ("(null)", "N/A")
_ID = re.compile(r":([0-9]+)")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job in Slurm's queue.

    Attributes:
        id: its number.
        user: who submitted it.
        partition: its partition, or several with commas.
        state: such as PENDING.
        reason: why it waits, such as JobHeldUser.
        comment: its comment.
        gres: the generic resources and GPUs that it asks for; empty for none.
        dependency: on which jobs it waits, as Slurm writes it.
        nodes: how many nodes it asks for.
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
        """Whether its user holds it."""
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
        """Whether its comment is meant for this package."""
        return is_ours(self.comment)

    @property
    def waits_for(self) -> frozenset[int]:
        """The ids of the jobs that it depends on."""
        return frozenset(map(int, _ID.findall(self.dependency)))


def read_queue() -> tuple[SlurmJob, ...]:
    """Return all jobs that wait or run, by id.

    Raises:
        SlurmError: squeue is missing or fails, or prints what cannot be read.
    """
    try:
        jobs = parse_json(call(["squeue", "--all", "--json"]))
    except SlurmError:
        # Without the plug-in; where Slurm itself does not answer, this fails too, and says so.
        pattern = _BETWEEN.join(_FIELDS.values())
        jobs = parse_text(call(["squeue", "--all", "--noheader", f"--format={pattern}"]))
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


def parse_text(text: str) -> list[SlurmJob]:
    """Return the jobs of squeue's text with the fields of this module.

    Raises:
        SlurmError: a line with another number of fields, as a comment of several lines makes it.
    """
    jobs = []
    for line in filter(None, text.split("\n")):
        parts = line.split(_BETWEEN)
        if len(parts) != len(_FIELDS) or not parts[0].isdecimal():
            raise SlurmError(f"squeue: a line that cannot be read: {line[:100]!a}.")
        row = {name: "" if part in _ABSENT else part for name, part in zip(_FIELDS, parts, strict=True)}
        nodes = int(re.sub(r"\D.*", "", row["nodes"]) or 0)
        jobs.append(
            SlurmJob(
                id=int(row["id"]),
                nodes=nodes,
                array=bool(row["array"]),
                gres=_resources(row["gres"]),
                **{name: row[name] for name in ("user", "partition", "state", "reason", "comment", "dependency")},
            )
        )
    return jobs
