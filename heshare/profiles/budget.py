"""What to measure when time is short: the most informative settings first, then ever more of them, without end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice

import numpy as np

from heshare.profiles import paper
from heshare.profiles.design import BATCH_SIZES, MPS_PCTS, shares
from heshare.profiles.visit import Setup
from heshare.world.catalogue import memory_mib, models
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

FIRST_SIZE = 8
"""The inference batch size that is measured first; tasks mostly use 4 and 8."""
SECOND_SIZE = 4
"""The next one. Chains use it only after every workload has been seen alone at it: nothing is learned from others."""
TOGETHER = 7
"""Tasks of the largest set of a chain; its subsets follow without a new start, which takes a real task seconds."""
CHAINS = 20
"""Chains between two rounds of tasks alone."""

Step = tuple[Setup, int]
"""A setting, and which visit to it this is."""


def plan(gpu: Gpu, *, rng: np.random.Generator, clocks: bool = False) -> Iterator[Step]:
    """Visits in the order of what they tell; take as many as there is time for.

    First every workload alone at 100 %: Table II's task features. Then chains: seven workloads together, then six of
    them, and so on down to one alone under its MPS percentage, each task observed each time; among them the settings of
    the paper's Figs. 3 and 4. Then every workload alone at half of the GPU. Then rounds of the same with other
    inference batch sizes, MPS percentages and workloads, each level far from those before, and between them the first
    settings again, which tells how well they repeat. With `clocks`, every other round after the first runs below the
    top clock.

    Args:
        gpu: the GPU.
        rng: of the order within a round and of who shares with whom.
        clocks: whether the SM clock may be set.

    Returns:
        An endless iterator. A setting that comes again is a further visit to it.
    """
    visits: dict[Setup, int] = {}
    for setup in _rounds(gpu, rng, clocks):
        visits[setup] = visits.get(setup, 0) + 1
        yield setup, visits[setup]


def spread(levels: int) -> list[int]:
    """0 .. levels-1 so that any first few of them lie far apart: the middle, then the quarters, then the eighths."""
    bits = max(1, (levels - 1).bit_length())
    mirrored = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1, 2**bits))
    return [*(level for level in mirrored if level < levels), 0][:levels]


def _rounds(gpu: Gpu, rng: np.random.Generator, clocks: bool) -> Iterator[Setup]:
    pcts = [50, 20, *(MPS_PCTS[level] for level in spread(len(MPS_PCTS)) if MPS_PCTS[level] not in (20, 50, 100))]
    sizes = [FIRST_SIZE, *(size for size in (SECOND_SIZE, 16, 2, 32, 1) if size in BATCH_SIZES)]
    grid = [gpu.clocks_mhz[level] for level in spread(len(gpu.clocks_mhz))]
    top = gpu.max_mhz
    for number in count():
        clock = grid[number // 2 % len(grid)] if clocks and number % 2 else top
        yield from _alone(gpu, sizes[number % len(sizes)], 100, top, rng)
        for chain in range(CHAINS):
            if number == 0 and chain == CHAINS // 3:
                yield from paper.setups(gpu, clocks=clocks)
            yield from _chain(gpu, clock, (SECOND_SIZE, FIRST_SIZE)[number == 0 :], rng)
        yield from _alone(gpu, sizes[number % len(sizes)], pcts[number % len(pcts)], clock, rng)
        yield from _alone(gpu, FIRST_SIZE, 100, top, rng)


def _alone(gpu: Gpu, size: int, pct: int, sm_mhz: int, rng: np.random.Generator) -> list[Setup]:
    """Every workload alone, in random order."""
    names = [str(name) for name in rng.permutation(list(models()))]
    chosen = [Workload(name, size) for name in names]
    return [Setup((Resident(one, pct),), sm_mhz) for one in chosen if memory_mib(one) <= gpu.memory_mib]


def _chain(gpu: Gpu, sm_mhz: int, sizes: Sequence[int], rng: np.random.Generator) -> Iterator[Setup]:
    """Different workloads together, then ever fewer of them, down to one alone."""
    free_mib, chosen = gpu.memory_mib, []
    for name in islice(rng.permutation(list(models())), TOGETHER):
        workload = Workload(str(name), int(rng.choice(sizes)))
        if memory_mib(workload) <= free_mib:
            free_mib -= memory_mib(workload)
            chosen.append(workload)
    first = int(rng.choice(MPS_PCTS))
    parts = [first, *shares(first, len(chosen) - 1, rng)]
    residents = list(map(Resident, chosen, parts))
    while residents:
        yield Setup(tuple(residents), sm_mhz)
        residents.pop(int(rng.integers(len(residents))))
