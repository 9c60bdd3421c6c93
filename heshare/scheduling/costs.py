"""What a batch can cost: all options (clock, MPS percentages) of a set of tasks on a type of GPU that matter.

The freedom of a plan, shared to the letter by the improved search, the exact front and the lower bound:

- Every task runs on one GPU. On a GPU its tasks queue in SPT order (time alone at the default clock, ties by index:
  `BatchCosts.order`), and batches are runs of consecutive tasks of that queue, at most `width` each, executed in that
  order. A set that does not fit the GPU's memory or MPS clients is no batch.
- Each batch picks one option of its menu. The menu depends on the type of GPU and on the members alone. It holds
  every clock of `clocks_mhz` with every variant of percentages of the members' workloads (`Rates`), less the options
  that another one beats in energy, sum of times and end together, which no weight and no queue behind could prefer.
- A plan costs the sum of E_B, and the sum over batches of `spent + behind * end`, where `behind` counts the tasks of
  later batches of the same GPU. Tasks of a batch speed up when others of it end, as in `Sharing.execute`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from heshare.errors import InputError
from heshare.prediction.predictor import Predictor
from heshare.scheduling.configuration import clock_candidates
from heshare.scheduling.departing import NOBODY, FloatArray, IntArray, compiled, menu_of
from heshare.scheduling.objectives import BoolArray, Instance
from heshare.scheduling.pareto import significant
from heshare.scheduling.rates import Rates, binomials, sizes
from heshare.scheduling.settings import Settings


@dataclass(frozen=True, slots=True)
class Freedom:
    """What a batch may choose from.

    Attributes:
        width: the most tasks of a batch.
        variants: the most vectors of MPS percentages of a set, 100 % for all being one; 1 leaves MPS limits alone.
        limited: sets of up to so many tasks have MPS percentages to choose from, larger ones run at 100 % each.
        clocks: SM clocks tried, evenly spaced over each GPU's grid with both ends.
        mps_pcts: MPS percentages tried in sets of two.
        coarse: MPS percentages tried in larger sets.

    Raises:
        InputError: a value is out of its range.
    """

    width: int = 3
    variants: int = 4
    limited: int = 2
    clocks: int = 12
    mps_pcts: tuple[int, ...] = tuple(range(10, 101, 10))
    coarse: tuple[int, ...] = (50, 100)

    def __post_init__(self) -> None:
        for name, least, most in (("width", 1, 8), ("variants", 1, 1000), ("limited", 1, 8), ("clocks", 1, 1000)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InputError(
                    column=name, found=repr(value), expected=f"{least} to {most}", action="Correct the setting."
                )
        for name in ("mps_pcts", "coarse"):
            shares = getattr(self, name)
            if not shares or list(shares) != sorted(set(shares)) or shares[0] < 1 or shares[-1] != 100:
                raise InputError(
                    column=name,
                    found=repr(shares),
                    expected="ascending percentages from 1 that end with 100",
                    action="Correct the setting.",
                )


DEFAULT = Freedom()


@dataclass(frozen=True, slots=True)
class Options:
    """The menus of m sets, one after the other: set i has options `begin[i]` to `begin[i + 1]`.

    Attributes:
        begin: where each menu begins, shape (m + 1,); a set that does not fit has none.
        energy_j: E_B, J, shape (o,).
        spent_s: sum of the members' execution times, s, shape (o,).
        end_s: tau_B, s, shape (o,).
        sm_mhz: the clock, MHz, shape (o,).
        mps_pct: percentage of each member in the order asked for, 0 beyond the set's size, shape (o, w).
    """

    begin: IntArray
    energy_j: FloatArray
    spent_s: FloatArray
    end_s: FloatArray
    sm_mhz: IntArray
    mps_pct: IntArray


class BatchCosts:
    """Menus of sets of tasks, from tables of what the predictor believes.

    Args:
        world: the task set on its cluster.
        predictor: what is believed; asked in bulk, each set of workloads once.
        freedom: what a batch may choose from.

    Attributes:
        world: the task set on its cluster.
        freedom: what a batch may choose from.
        time_s: time alone of each task on each type of GPU at the default clock, s, shape (n, kinds).
        energy_j: energy likewise, J, shape (n, kinds).
        order: tasks in SPT order on each type of GPU, those that do not fit last, shape (kinds, n).
        rank: position of each task in it, shape (kinds, n).
        fits: whether a task fits each type of GPU alone, shape (n, kinds).
        workload: index of each task's workload, shape (n,).
        iterations: iterations of each task, shape (n,).
        memory_mib: memory of each type of GPU, MiB, shape (kinds,).
        clients: MPS clients of each type of GPU, shape (kinds,).
        rates: the tables of each type of GPU.
    """

    def __init__(self, world: Instance, predictor: Predictor, freedom: Freedom = DEFAULT) -> None:
        self.freedom = freedom
        self._look_at(world)
        workloads = tuple(sorted({task.workload for task in world.tasks}))
        index = {workload: at for at, workload in enumerate(workloads)}
        self.workload = np.array([index[task.workload] for task in world.tasks], dtype=np.int64)
        self.sizes, self.binomials = sizes(len(workloads), freedom.width), binomials(len(workloads), freedom.width)
        clocks_mhz = clock_candidates(world, Settings(clocks=freedom.clocks))
        self.rates = tuple(
            Rates(
                gpu,
                workloads,
                predictor,
                width=freedom.width,
                clocks_mhz=np.unique(clocks_mhz[kind]),
                mps_pcts=freedom.mps_pcts,
                coarse=freedom.coarse,
                variants=freedom.variants,
                limited=freedom.limited,
            )
            for kind, gpu in enumerate(world.kinds)
        )

    def _look_at(self, world: Instance) -> None:
        """Set what follows from the task set and the cluster alone."""
        self.world = world
        first = [int(np.flatnonzero(world.kind_of == kind)[0]) for kind in range(len(world.kinds))]
        self.time_s, self.energy_j = world.time_s[:, first], world.energy_j[:, first]
        self.fits: BoolArray = world.fits[:, first]
        self.order: IntArray = np.argsort(significant(self.time_s).T, axis=1, kind="stable")
        self.rank: IntArray = np.argsort(self.order, axis=1)
        self.iterations = np.array([task.iterations for task in world.tasks], dtype=np.float64)
        self.memory_mib = np.array([gpu.memory_mib for gpu in world.kinds], dtype=np.float64)
        self.clients = np.array([gpu.mps_clients for gpu in world.kinds], dtype=np.int64)

    def part(self, tasks: IntArray, gpus: IntArray) -> BatchCosts:
        """The costs of some tasks, ascending, on some GPUs; the tables are shared."""
        whole, result = self.world, copy(self)
        result._look_at(whole.part(tasks, gpus))
        result.workload = self.workload[tasks]
        result.rates = tuple(self.rates[whole.kinds.index(gpu)] for gpu in result.world.kinds)
        return result

    def warm(self) -> None:
        """Ask the predictor everything that any set could need; without it, sets are asked for when first met."""
        for rates in self.rates:
            rates.warm(self.freedom.width)

    def room(self, kind: int, tasks: IntArray) -> BoolArray:
        """Whether sets fit a type of GPU together (memory and MPS clients), shape (m, w) -> (m,)."""
        present = tasks != NOBODY
        needs = np.where(present, self.world.needs_mib[tasks], 0.0).sum(axis=1)
        result: BoolArray = (needs <= self.memory_mib[kind]) & (present.sum(axis=1) <= self.clients[kind])
        return result

    def options(self, kind: int, tasks: IntArray) -> Options:
        """The menu of each of m sets of tasks on a type of GPU.

        Args:
            kind: index in the instance's `kinds`.
            tasks: task indices, members first, `NOBODY` beyond, shape (m, w) with w at most `freedom.width`.

        Raises:
            InputError: a set is larger than the width.
        """
        if tasks.shape[1] > self.freedom.width:
            raise InputError(
                column="tasks",
                found=f"sets of {tasks.shape[1]} tasks",
                expected=f"at most {self.freedom.width}",
                action="Ask for smaller sets, or allow a larger width.",
            )
        fits = self.room(kind, tasks)
        self.ensure(kind, tasks[fits])
        rates, size = self.rates[kind], np.where(fits, (tasks != NOBODY).sum(axis=1), 0)
        table = rates.tables
        most = int(table.count.max(initial=1)) * len(table.clocks_mhz)
        begin, value, clock, mps_pct = fill_menus(
            np.ascontiguousarray(tasks, dtype=np.int64), size, self.workload, self.iterations, table.time_s,
            table.power_w, table.begin, table.count, table.states, table.mps_pct, self.sizes, self.binomials, most,
        )  # fmt: skip
        return Options(begin, value[:, 0], value[:, 1], value[:, 2], table.clocks_mhz[clock], mps_pct)

    def ensure(self, kind: int, tasks: IntArray) -> None:
        """Fill the tables for sets of tasks on a type of GPU, shape (m, w), `NOBODY` beyond a set's size."""
        size = (tasks != NOBODY).sum(axis=1)
        for members in range(1, tasks.shape[1] + 1):
            sets = np.sort(self.workload[tasks[size == members, :members]], axis=1)
            self.rates[kind].ensure(sets)


@compiled
def fill_menus(
    tasks: IntArray,
    size: IntArray,
    workload: IntArray,
    iterations: FloatArray,
    time_s: FloatArray,
    power_w: FloatArray,
    first: IntArray,
    count: IntArray,
    states: IntArray,
    pct: IntArray,
    sizes: IntArray,
    binomials: IntArray,
    most: int,
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """The menus of m sets, as in `Options`: where each begins, (o, 3) values, clock indices, percentages (o, w)."""
    m, width = tasks.shape
    begin = np.zeros(m + 1, dtype=np.int64)
    room = 64 + 8 * m
    value, clock, mps_pct = np.empty((room, 3)), np.empty(room, dtype=np.int64), np.zeros((room, width), dtype=np.int64)
    one, which, perm = np.empty((most, 3)), np.empty((most, 2), dtype=np.int64), np.empty(width, dtype=np.int64)
    alike, work = np.empty(width, dtype=np.int64), np.empty((3, width))
    used = 0
    for row in range(m):
        kept = 0
        if size[row] > 0:
            kept = menu_of(
                tasks[row], size[row], workload, iterations, time_s, power_w, first, count, states, sizes, binomials,
                one, which, perm, alike, work,
            )  # fmt: skip
        if used + kept > len(value):
            value, clock, mps_pct = (
                _longer(value, used + kept),
                _longer(clock, used + kept),
                _longer(mps_pct, used + kept),
            )
        for i in range(kept):
            value[used] = one[i]
            clock[used] = which[i, 1]
            for member in range(size[row]):
                mps_pct[used, perm[member]] = pct[which[i, 0], member]
            used += 1
        begin[row + 1] = used
    return begin, value[:used].copy(), clock[:used].copy(), mps_pct[:used].copy()


@compiled
def _longer(array: Any, least: int) -> Any:
    """A copy with zeros behind, at least twice as long as needed."""
    result = np.zeros((2 * least, *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result
