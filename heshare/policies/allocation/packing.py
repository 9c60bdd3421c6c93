"""From how many GPUs each job gets to which: blocks stay where they are, and move only to make room for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heshare.policies.allocation.buddy import Buddy


@dataclass(frozen=True, slots=True)
class Placing:
    """What has to happen so that every job has the GPUs that it is to have.

    Attributes:
        stopped: jobs that lose their GPUs.
        moved: new GPUs of jobs that had others before.
        started: GPUs of jobs that had none.
        left_out: jobs for which no block could be found.
    """

    stopped: list[int] = field(default_factory=list)
    moved: dict[int, tuple[int, ...]] = field(default_factory=dict)
    started: dict[int, tuple[int, ...]] = field(default_factory=dict)
    left_out: list[int] = field(default_factory=list)


def place(buddy: Buddy, wanted: Mapping[int, int], /) -> Placing:
    """Book the GPUs that jobs are to have; large blocks first, jobs of a size in the order given.

    A job that keeps its number of GPUs keeps its block, unless a larger one finds no room: then as few GPUs as can be
    are moved aside (PowerFlow migrates to defragment and for nothing else). A running job whose new block is not to be
    had stops.

    Args:
        buddy: who has which GPUs; changed.
        wanted: how many GPUs each job is to have.
    """
    before = buddy.taken()
    for job, gpus in before.items():
        if wanted.get(job) != len(gpus):
            buddy.release(job)
    kept = set(buddy.taken())
    left_out = []
    for job in sorted((job for job in wanted if job not in kept), key=lambda job: -buddy.held(wanted[job])):
        if buddy.allocate(job, wanted[job]) is None:
            room = buddy.make_room(wanted[job], buddy.taken())
            if room is None or buddy.allocate(job, wanted[job]) is None:
                left_out.append(job)
    after = buddy.taken()
    return Placing(
        stopped=[job for job in before if job not in after],
        moved={job: gpus for job, gpus in after.items() if job in before and before[job] != gpus},
        started={job: gpus for job, gpus in after.items() if job not in before},
        left_out=left_out,
    )


def in_turn(moved: Mapping[int, tuple[int, ...]], had: Mapping[int, tuple[int, ...]], /) -> tuple[list[int], list[int]]:
    """The order in which jobs can move without two of them on one GPU, and those that must stop first for that.

    Args:
        moved: new GPUs by job.
        had: the GPUs that they have.

    Returns:
        Jobs in the order in which they can move; jobs to be stopped before and started after, since they wait for one
        another in a circle.
    """
    ordered: list[int] = []
    stopped: list[int] = []
    waiting = dict(moved)
    while waiting:
        held = {gpu: job for job in waiting for gpu in had[job]}
        free = [job for job, gpus in waiting.items() if all(held.get(gpu, job) == job for gpu in gpus)]
        if free:
            ordered += free
        else:
            free = [min(waiting)]
            stopped += free
        for job in free:
            del waiting[job]
    return ordered, stopped
