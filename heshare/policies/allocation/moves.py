"""PowerFlow's allocation: jobs begin small at the clock of least energy, then the best marginal moves are made.

A move gives a job its next larger number of GPUs or its next higher clock. Its priority is what it gains in JCT over
what it costs in energy, [(JCT - JCT') / JCT] / [(E' - E) / E] (Algorithm 1, Eqs. 16 and 17 as others ported them).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
# Energies are rounded sums and products; this share of one is none.
_ROUNDED = 1e-9


@dataclass(frozen=True, slots=True)
class Menu:
    """What one job may be given, and what is believed to come of it.

    Attributes:
        widths: numbers of GPUs, ascending, shape (w,).
        time_s: time until it completes, s, shape (w, c), clocks ascending.
        energy_j: energy until then, J, shape (w, c).
    """

    widths: tuple[int, ...]
    time_s: FloatArray
    energy_j: FloatArray

    @property
    def thrifty(self) -> Setting:
        """Where a job begins: the fewest GPUs, at the clock of least energy."""
        return Setting(0, int(np.argmin(self.energy_j[0])))

    @property
    def plain_j(self) -> float:
        """The energy that budgets are shares of: the fewest GPUs at the top clock, J."""
        return float(self.energy_j[0, -1])


class Setting(NamedTuple):
    """What a job is given: places in the menu's widths and clocks."""

    width: int
    clock: int


@dataclass(frozen=True, slots=True)
class Move:
    """A change of one job's setting.

    Attributes:
        job: the job.
        to: its new setting.
        priority: gain over cost; `inf` for a move that costs no energy.
        gpus: how many GPUs it takes besides.
        energy_j: what energy it takes besides, J.
    """

    job: int
    to: Setting
    priority: float
    gpus: int
    energy_j: float


def moves(job: int, menu: Menu, at: Setting, /) -> list[Move]:
    """The moves of one job that finish it sooner, at most two: more GPUs, a higher clock.

    More GPUs are the next larger number with which it is faster (assumed): two that exchange gradients over a slow link
    may do less than one, and eight more.
    """
    found = []
    wider = (Setting(width, at.clock) for width in range(at.width + 1, len(menu.widths)))
    higher = (Setting(at.width, clock) for clock in range(at.clock + 1, menu.time_s.shape[1]))
    for choice in (wider, higher):
        to = next((each for each in choice if menu.time_s[each] < menu.time_s[at]), None)
        if to is not None:
            gain = 1 - float(menu.time_s[to] / menu.time_s[at])
            more_j = float(menu.energy_j[to] - menu.energy_j[at])
            cost = more_j / float(menu.energy_j[at])
            priority = gain / cost if cost > _ROUNDED else math.inf
            found.append(Move(job, to, priority, menu.widths[to.width] - menu.widths[at.width], more_j))
    return found


def admit(menus: Mapping[int, Menu], order: Sequence[int], gpus: int, /) -> dict[int, Setting]:
    """Who runs, each with its fewest GPUs at its clock of least energy.

    Args:
        menus: by job.
        order: jobs, the first to be admitted first; one that needs more GPUs than are left is passed over (assumed).
        gpus: how many there are.
    """
    admitted: dict[int, Setting] = {}
    for job in order:
        if menus[job].widths[0] <= gpus:
            admitted[job] = menus[job].thrifty
            gpus -= menus[job].widths[0]
        if not gpus:
            break
    return admitted


def grow(
    menus: Mapping[int, Menu], admitted: Mapping[int, Setting], gpus: int, budget_j: float, /
) -> dict[int, Setting]:
    """Make the move of highest priority, again and again, while GPUs and the energy budget last.

    A move that takes more GPUs than are free, or more energy than is left, is not made; the others go on (assumed). One
    that takes no energy is made even if the budget was spent before.

    Args:
        menus: by job.
        admitted: the jobs that run and where they begin.
        gpus: how many GPUs are free beside them.
        budget_j: energy that the admitted jobs may take together until they complete, J.

    Returns:
        The setting of each admitted job.
    """
    settings = dict(admitted)
    left_j = budget_j - sum(float(menus[job].energy_j[at]) for job, at in settings.items())
    heap: list[tuple[float, int, Setting, Setting, Move]] = []  # ties: the lower number, the clock before GPUs

    def offer(job: int) -> None:
        at = settings[job]
        for move in moves(job, menus[job], at):
            heappush(heap, (-move.priority, job, move.to, at, move))

    for job in settings:
        offer(job)
    while heap:
        _, job, to, since, move = heappop(heap)
        # The other move of a job was made meanwhile: this one was priced from where the job no longer is.
        if settings[job] != since or move.gpus > gpus or move.energy_j > max(left_j, 0.0) + _ROUNDED * budget_j:
            continue
        settings[job] = to
        gpus, left_j = gpus - move.gpus, left_j - move.energy_j
        offer(job)
    return settings
