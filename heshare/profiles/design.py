"""The experimental design of a recording: the 1,000 training samples of Section III-A, balanced over their levels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from heshare.profiles.schema import write_co_runners
from heshare.shared.arrays import IntArray
from heshare.shared.errors import InputError, require
from heshare.world.catalogue import memory_mib, model, paper_models
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

SAMPLES = 1000
"""Training samples over all GPUs (Section III-A)."""
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""Inference batch sizes that are measured."""
BATCH_WEIGHTS = (1, 1, 2, 2, 1, 1)
"""Relative frequency of each batch size in the samples: tasks mostly use 4 and 8."""
TRACED_BATCH_SIZE = 8
"""The inference batch size of the kernel traces."""
MPS_PCTS = tuple(range(10, 101, 10))
"""MPS percentages that are measured."""
CO_RUNNERS = (0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 5, 12)
"""Numbers of co-runners of a sample, in equal parts: mostly 0 to 3, and some as large as batches can get, because a
forest predicts for a larger set than any recorded one the same as for the largest recorded."""
TOP_CLOCK_PART = 4
"""One sample in this many runs at the top clock, which is the clock of a GPU without a clock setting."""
ALL_FULL_PART = 0.5
"""Part of the points with co-runners in which every task has 100 %: batches are split with all tasks at 100 %
(Algorithm 1, line 5), and MPS percentages start from there (line 8)."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One setting to measure, which is one row of a profile: a task, its co-runners and the clock.

    Attributes:
        target: the measured task, under its MPS percentage.
        co_runners: the tasks that share the GPU with it, sorted by their text.
        sm_mhz: the SM clock to request, MHz.

    Raises:
        InputError: tasks of more than one precision or engine.
    """

    target: Resident
    co_runners: tuple[Resident, ...]
    sm_mhz: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "co_runners", tuple(sorted(self.co_runners, key=str)))
        variants = {(task.workload.precision, task.workload.engine) for task in (self.target, *self.co_runners)}
        if len(variants) > 1:
            found, expected = (
                "in more than one precision or engine",
                "one precision and one engine for all tasks of a row",
            )
            raise InputError(f"{self} {found}", expected, "Measure them apart.", column="co_runners")

    def __str__(self) -> str:
        return f"{self.target}+{write_co_runners(self.co_runners)}/{self.sm_mhz}"


def model_names(more: Iterable[str] = ()) -> list[str]:
    """Return the models that a recording measures: those of Table IV, then further ones of the catalogue."""
    return list(dict.fromkeys([*paper_models(), *(model(name).name for name in more)]))


def references(
    gpu: Gpu, workloads: Iterable[Workload] | None = None, *, more_models: Iterable[str] = ()
) -> list[Point]:
    """Return the reference points, which give Table II's task features: workloads alone at 100 %, top clock.

    By default they are every model of `model_names(more_models)` at every size of `BATCH_SIZES`; those that fit are
    measured.
    """
    names = model_names(more_models)
    chosen = workloads if workloads is not None else (Workload(name, size) for name in names for size in BATCH_SIZES)
    return [Point(Resident(workload), (), gpu.max_mhz) for workload in chosen if memory_mib(workload) <= gpu.memory_mib]


def traced_workloads(gpu: Gpu, more_models: Iterable[str] = ()) -> list[Workload]:
    """Return the workloads whose kernels are traced: every recorded model once, at the most frequent batch size."""
    workloads = [Workload(name, TRACED_BATCH_SIZE) for name in model_names(more_models)]
    return [workload for workload in workloads if memory_mib(workload) <= gpu.memory_mib]


def samples(
    gpu: Gpu, count: int, *, rng: np.random.Generator, clocks: bool = True, more_models: Iterable[str] = ()
) -> list[Point]:
    """Return `count` different points of one GPU, none of them a reference point.

    Workload, inference batch size, MPS percentage, clock and number of co-runners are each balanced over their levels
    and shuffled against one another (a Latin hypercube); the co-runners themselves are drawn. In half of the points
    with co-runners all tasks have 100 %, as most sets do that a plan considers; a quarter splits 100 % among the tasks,
    and a quarter draws the shares freely, as MPS allows. Without `clocks` all points run at the top clock;
    `more_models` are models of the catalogue in addition to those of Table IV.

    Raises:
        InputError: `count` is negative, or there is no such model.
    """
    require("samples", count, count >= 0, "at least 0", "Correct the number of samples.")
    names, sizes = model_names(more_models), np.repeat(BATCH_SIZES, BATCH_WEIGHTS)
    taken = {str(point) for point in references(gpu, more_models=names)}
    points: list[Point] = []
    # A point that does not fit, or that is there already, is replaced from a balanced draw of its own.
    while len(points) < count:
        missing = count - len(points)
        columns = zip(
            _balanced(len(names), missing, rng),
            sizes[_balanced(len(sizes), missing, rng)],
            np.array(MPS_PCTS)[_balanced(len(MPS_PCTS), missing, rng)],
            _clocks_mhz(gpu, missing, rng) if clocks else [gpu.max_mhz] * missing,
            np.array(CO_RUNNERS)[_balanced(len(CO_RUNNERS), missing, rng)],
            strict=True,
        )
        for name, size, pct, clock_mhz, others in columns:
            target = Resident(Workload(names[name], int(size)), int(pct))
            point = _draw_point(gpu, target, int(others), int(clock_mhz), names, rng)
            if point is not None and str(point) not in taken:
                taken.add(str(point))
                points.append(point)
    return points


def split_evenly(count: int, parts: int) -> list[int]:
    """Return `count` as `parts` whole numbers that differ by at most one, larger ones first."""
    return [count // parts + (part < count % parts) for part in range(parts)]


def co_runner_shares(target_pct: int, others: int, rng: np.random.Generator) -> Sequence[int]:
    """Return MPS percentages of co-runners: with even chances a split of the target's rest, or free.

    Where the target has no rest for each of them they are free.
    """
    rest = (100 - target_pct) // 10
    if rng.random() < 0.5 and rest >= others > 0:
        cuts = np.sort(rng.choice(np.arange(1, rest), size=others - 1, replace=False)).tolist() if others > 1 else []
        return [int(part) * 10 for part in np.diff([0, *cuts, rest])]
    return [int(pct) for pct in rng.choice(MPS_PCTS, size=others)]


def fitting_workloads(workloads: Iterable[Workload], free_mib: float) -> list[Workload]:
    """Return the workloads that fit into memory together, each if it fits together with those before it."""
    fitting: list[Workload] = []
    for workload in workloads:
        if memory_mib(workload) <= free_mib:
            free_mib -= memory_mib(workload)
            fitting.append(workload)
    return fitting


def _balanced(levels: int, count: int, rng: np.random.Generator) -> IntArray:
    # Levels 0 .. levels-1, each as often as the others (within one), shuffled, shape (count,).
    start = int(rng.integers(levels))
    return rng.permutation((np.arange(count) + start) % levels)


def _clocks_mhz(gpu: Gpu, count: int, rng: np.random.Generator) -> IntArray:
    # Clocks of the grid, spread evenly, one in `TOP_CLOCK_PART` at the top, MHz, shape (count,).
    grid = np.array(gpu.clocks_mhz)
    spread = rng.permutation(((np.arange(count) + rng.random(count)) / count * len(grid)).astype(int))
    return np.where(rng.permutation(np.arange(count) % TOP_CLOCK_PART == 0), gpu.max_mhz, grid[spread])


def _draw_point(
    gpu: Gpu, target: Resident, others: int, clock_mhz: int, names: Sequence[str], rng: np.random.Generator
) -> Point | None:
    sizes = np.repeat(BATCH_SIZES, BATCH_WEIGHTS)
    workloads = [Workload(names[name], int(rng.choice(sizes))) for name in rng.integers(len(names), size=others)]
    free_mib = gpu.memory_mib - memory_mib(target.workload)
    if free_mib < 0:
        return None
    co_runners = fitting_workloads(workloads, free_mib)
    if co_runners and rng.random() < ALL_FULL_PART:
        return Point(Resident(target.workload), tuple(map(Resident, co_runners)), clock_mhz)
    shares_pct = co_runner_shares(target.mps_pct, len(co_runners), rng)
    return Point(target, tuple(map(Resident, co_runners, shares_pct)), clock_mhz)
