"""Which settings to measure: the 1,000 training samples of Section III-A, spread evenly and drawn with a seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heshare.errors import InputError
from heshare.profiles.columns import write_co_runners
from heshare.world.catalogue import memory_mib, models
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

SAMPLES = 1000
"""Training samples over all GPUs (Section III-A)."""
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""Inference batch sizes that are measured."""
TRACED_SIZE = 8
"""The inference batch size of the kernel traces."""
BATCH_WEIGHTS = (1, 1, 2, 2, 1, 1)
"""How often each is drawn: tasks mostly use 4 and 8."""
MPS_PCTS = tuple(range(10, 101, 10))
"""MPS percentages that are measured."""
CO_RUNNERS = (0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 9, 14, 22)
"""Numbers of co-runners of a sample, in equal parts: mostly 0 to 3, and some as large as batches can get, because a
forest says of a larger set than any recorded one what it learned of the largest."""
TOP_CLOCK_PART = 4
"""One sample in this many runs at the top clock, which is what nobody's clock setting means."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One setting to measure: the observed task, its co-runners and the clock.

    Attributes:
        target: the observed task, under its MPS percentage.
        co_runners: the tasks beside it, sorted as they are written.
        sm_mhz: the SM clock to request, MHz.
    """

    target: Resident
    co_runners: tuple[Resident, ...]
    sm_mhz: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "co_runners", tuple(sorted(self.co_runners, key=str)))
        engines = {(one.workload.precision, one.workload.engine) for one in (self.target, *self.co_runners)}
        if len(engines) > 1:
            raise InputError(
                column="co_runners",
                found=f"{self} in more than one precision or engine",
                expected="one precision and one engine for all tasks of a row",
                action="Measure them apart.",
            )

    def __str__(self) -> str:
        return f"{self.target}+{write_co_runners(self.co_runners)}/{self.sm_mhz}"


def references(gpu: Gpu, workloads: Iterable[Workload] | None = None) -> list[Point]:
    """Each workload alone at 100 % and the top clock: where Table II's task features come from.

    Args:
        gpu: the GPU.
        workloads: what to measure; by default every model of Table IV at every size of `BATCH_SIZES` that fits.
    """
    chosen = workloads if workloads is not None else (Workload(name, size) for name in models() for size in BATCH_SIZES)
    return [Point(Resident(workload), (), gpu.max_mhz) for workload in chosen if memory_mib(workload) <= gpu.memory_mib]


def traced(gpu: Gpu) -> list[Workload]:
    """The workloads whose kernels are traced: every model of Table IV once, at the size that tasks mostly use."""
    return [one for one in (Workload(name, TRACED_SIZE) for name in models()) if memory_mib(one) <= gpu.memory_mib]


def samples(gpu: Gpu, count: int, *, rng: np.random.Generator, clocks: bool = True) -> list[Point]:
    """`count` different settings of one GPU, none of them a reference.

    Workload, inference batch size, MPS percentage, clock and number of co-runners are each balanced over their levels
    and shuffled against one another (as a Latin hypercube does); the co-runners themselves are drawn. Half of the
    shared settings split 100 % among the tasks, the other half set the shares freely, as MPS allows. Without `clocks`,
    all of them run at the top clock.

    Raises:
        InputError: `count` is negative.
    """
    if count < 0:
        raise InputError(
            column="samples", found=str(count), expected="at least 0", action="Ask for a number of samples."
        )
    names, sizes = list(models()), np.repeat(BATCH_SIZES, BATCH_WEIGHTS)
    taken = {str(point) for point in references(gpu)}
    drawn: list[Point] = []
    while len(drawn) < count:
        missing = count - len(drawn)
        columns = zip(
            _balanced(len(names), missing, rng),
            sizes[_balanced(len(sizes), missing, rng)],
            np.array(MPS_PCTS)[_balanced(len(MPS_PCTS), missing, rng)],
            _clocks(gpu, missing, rng) if clocks else [gpu.max_mhz] * missing,
            np.array(CO_RUNNERS)[_balanced(len(CO_RUNNERS), missing, rng)],
            strict=True,
        )
        for name, size, pct, clock, others in columns:
            target = Resident(Workload(names[name], int(size)), int(pct))
            point = _point(gpu, target, int(others), int(clock), rng)
            if point is not None and str(point) not in taken:
                taken.add(str(point))
                drawn.append(point)
    return drawn


def split(count: int, parts: int) -> list[int]:
    """`count` in `parts` whole numbers that differ by at most one, larger ones first."""
    return [count // parts + (part < count % parts) for part in range(parts)]


def shares(target_pct: int, others: int, rng: np.random.Generator) -> Sequence[int]:
    """MPS percentages of the co-runners: a split of what the target leaves, or free, by turns of a coin.

    Args:
        target_pct: the target's MPS percentage.
        others: how many co-runners it has.
        rng: of the coin and of the shares.
    """
    left = (100 - target_pct) // 10
    if rng.random() < 0.5 and left >= others > 0:
        cuts = np.sort(rng.choice(np.arange(1, left), size=others - 1, replace=False)).tolist() if others > 1 else []
        return [int(part) * 10 for part in np.diff([0, *cuts, left])]
    return [int(pct) for pct in rng.choice(MPS_PCTS, size=others)]


def _balanced(levels: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Levels 0 .. levels-1, each as often as the others (within one), shuffled, shape (count,)."""
    start = int(rng.integers(levels))
    return rng.permutation((np.arange(count) + start) % levels)


def _clocks(gpu: Gpu, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Clocks of the grid spread evenly, one in `TOP_CLOCK_PART` at the top, shape (count,)."""
    grid = np.array(gpu.clocks_mhz)
    spread = rng.permutation(((np.arange(count) + rng.random(count)) / count * len(grid)).astype(int))
    return np.where(rng.permutation(np.arange(count) % TOP_CLOCK_PART == 0), gpu.max_mhz, grid[spread])


def _point(gpu: Gpu, target: Resident, others: int, clock: int, rng: np.random.Generator) -> Point | None:
    """A point with `others` random co-runners, fewer where the memory ends; None if not even the target fits."""
    names, sizes = list(models()), np.repeat(BATCH_SIZES, BATCH_WEIGHTS)
    workloads = [Workload(names[name], int(rng.choice(sizes))) for name in rng.integers(len(names), size=others)]
    free_mib = gpu.memory_mib - memory_mib(target.workload)
    if free_mib < 0:
        return None
    fitting: list[Workload] = []
    for workload in workloads:
        if memory_mib(workload) <= free_mib:
            free_mib -= memory_mib(workload)
            fitting.append(workload)
    parts = shares(target.mps_pct, len(fitting), rng)
    return Point(target, tuple(map(Resident, fitting, parts)), clock)
