"""A job on several GPUs of this machine (a gang): one process, of which each of its GPUs has a member.

The first GPU starts the process once every GPU has the job and its memory is free; the others only wait for it. One of
them reports how the attempt ended: the first that notices.
"""

import math
from dataclasses import dataclass, field

from heshare.ops.workers.launcher import Worker


@dataclass
class Gang:
    """One attempt at a job on several GPUs.

    Attributes:
        size: how many GPUs it needs.
        uuids: those that have the job so far, the first one first.
        free: those of them whose memory is free.
        worker: its process, once that was started.
        reporter: the GPU that reports the end of the attempt; empty as long as it goes on.
    """

    size: int
    uuids: list[str] = field(default_factory=list)
    free: set[str] = field(default_factory=set)
    worker: Worker | None = None
    reporter: str = ""

    def may_start(self, uuid: str) -> bool:
        """Note that the memory of a GPU is free; return whether that GPU starts the process now."""
        self.free.add(uuid)
        return len(self.free) == self.size and uuid == self.uuids[0] and self.worker is None

    def claim(self, uuid: str) -> bool:
        """Return whether a GPU reports the end of the attempt; the first one that asks does."""
        self.reporter = self.reporter or uuid
        return self.reporter == uuid


class GangMember:
    """A `Worker` for the further GPUs of a gang: it has no end of its own; the first GPU stops the process."""

    ready, done, time_s, finished, failure = True, 0.0, math.nan, False, None

    def __init__(self, first: Worker) -> None:
        self.pid = first.pid

    def go(self) -> None:
        """Do nothing, as all that follow."""

    def poll(self) -> None:
        """Do nothing."""

    def stop(self) -> float:
        """Do nothing; return no iterations."""
        return 0.0


def join(gangs: dict[int, Gang], task_id: int, size: int, uuid: str) -> Gang | None:
    """Return the gang of a job that is started on one more GPU; None for a job on one GPU alone.

    `gangs` are those of the attempts that go on, by task: who leaves one takes it out.
    """
    if size == 1:
        return None
    gang = gangs.setdefault(task_id, Gang(size))
    gang.uuids.append(uuid)
    return gang
