"""PowerFlow's allocation: jobs begin with few GPUs at the clock of least energy, then the best marginal moves are made.

A move gives a job its next larger number of GPUs or its next higher clock. Its priority is the gain in JCT over the
cost in energy (Algorithm 1, Eqs. 16 and 17 of the publication, as others ported them):

    priority = [(JCT - JCT') / JCT] / [(E' - E) / E]

The move of highest priority is made first, until GPUs or the energy budget run out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from heshare.shared.arrays import FloatArray

# Energies are rounded sums and products; a smaller share of an energy counts as zero.
_ENERGY_TOLERANCE = 1e-9


class Allocation(NamedTuple):
    """The allocation of a job: indices of the widths and clocks of its options."""

    width: int
    clock: int


@dataclass(frozen=True, slots=True)
class AllocationOptions:
    """The allocations that one job may have, with their predicted times and energies.

    Attributes:
        widths: numbers of GPUs that each choice occupies, ascending, shape (w,).
        time_s: time until the job completes, s, shape (w, c), clocks ascending.
        energy_j: energy until then, J, shape (w, c).
    """

    widths: tuple[int, ...]
    time_s: FloatArray
    energy_j: FloatArray

    @property
    def first_s(self) -> float:
        """Time on the fewest GPUs at the highest clock, by which jobs are ordered, s."""
        return float(self.time_s[0, -1])

    @property
    def initial(self) -> Allocation:
        """The allocation with which a job begins: the fewest GPUs, at the clock of least energy."""
        if self.time_s.size == 1:
            return Allocation(0, 0)
        return Allocation(0, int(np.argmin(self.energy_j[0])))


class Move(NamedTuple):
    """A change of one job's allocation; the least move is made first.

    Attributes:
        rank: the priority, gain over cost, below zero; `-inf` for a move that costs no energy.
        job: the job; of equal ranks the lower number comes first, then a higher clock before more GPUs.
        gpus: additional GPUs.
        energy_j: additional energy, J.
    """

    rank: float
    job: int
    to: Allocation
    since: Allocation
    gpus: int
    energy_j: float


def moves(job: int, options: AllocationOptions, current: Allocation, /) -> list[Move]:
    """Return the moves that complete a job sooner, at most two: more GPUs, a higher clock.

    More GPUs means the next larger number with which the job is faster (assumed). Two GPUs that exchange gradients over
    a slow link may be slower than one, and eight faster.
    """
    found: list[Move] = []
    if options.time_s.size == 1:
        return found  # one number of GPUs at one clock
    wider = (Allocation(width, current.clock) for width in range(current.width + 1, len(options.widths)))
    higher = (Allocation(current.width, clock) for clock in range(current.clock + 1, options.time_s.shape[1]))
    for choices in (wider, higher):
        to = next((choice for choice in choices if options.time_s[choice] < options.time_s[current]), None)
        if to is not None:
            gain = 1 - float(options.time_s[to] / options.time_s[current])
            more_j = float(options.energy_j[to] - options.energy_j[current])
            cost = more_j / float(options.energy_j[current])
            rank = -gain / cost if cost > _ENERGY_TOLERANCE else -math.inf
            found.append(Move(rank, job, to, current, options.widths[to.width] - options.widths[current.width], more_j))
    return found


def admit(options: Mapping[int, AllocationOptions], order: Sequence[int], gpus: int, /) -> dict[int, Allocation]:
    """Admit jobs while GPUs are left, and return the initial allocation of each.

    Jobs are admitted in the order given; one that needs more GPUs than are left is skipped (assumed).
    """
    admitted: dict[int, Allocation] = {}
    for job in order:
        if options[job].widths[0] <= gpus:
            admitted[job] = options[job].initial
            gpus -= options[job].widths[0]
        if not gpus:
            break
    return admitted


def grow(
    options: Mapping[int, AllocationOptions], admitted: Mapping[int, Allocation], gpus: int, budget_j: float, /
) -> dict[int, Allocation]:
    """Make the move of highest priority repeatedly, while GPUs and the energy budget last.

    A move that takes more GPUs than are free, or more energy than is left, is not made, and the others continue
    (assumed). A move that takes no additional energy is made even if the budget is spent. The budget is for all
    admitted jobs until they complete, and `gpus` are the other, free GPUs.
    """
    allocations = dict(admitted)
    left_j = budget_j - sum(float(options[job].energy_j[current]) for job, current in allocations.items())
    heap = [move for job, current in allocations.items() for move in moves(job, options[job], current)]
    heapify(heap)
    while heap:
        move = heappop(heap)
        # If the other move of this job was made since, this move starts from an allocation that the job no longer has.
        outdated = allocations[move.job] != move.since
        if outdated or move.gpus > gpus or move.energy_j > max(left_j, 0.0) + _ENERGY_TOLERANCE * budget_j:
            continue
        allocations[move.job] = move.to
        gpus, left_j = gpus - move.gpus, left_j - move.energy_j
        for following in moves(move.job, options[move.job], move.to):
            heappush(heap, following)
    return allocations
