"""Costs of batches: the options (clock, MPS percentages) of a set of tasks on a type of GPU that matter.

This module defines which plans HeShare+ may make. The improved search, the exact front and the lower bound share the
definition, so that a gap between them is one of the search and never one of the choices:

- Every task runs on one GPU. On a GPU its tasks queue in SPT order (time alone at the default clock, ties by index),
  and a batch is a run of at most `width` consecutive tasks of the queue. Batches are executed in that order. A set that
  exceeds the GPU's memory or MPS clients is no batch.
- Each batch has one option: one of the clocks of the type of GPU with one of the vectors of percentages of the members'
  workloads (`heshare.lab.plus.rates`). Options that another one dominates in energy, sum of execution times and end
  together are left out (`heshare.lab.plus.batch_execution` shows why).
- Tasks of a batch speed up when others of it end, as on a device.

Let batch B have b_B tasks behind it in its queue. A task's JCT is the sum of tau over the earlier batches of its queue
plus its own time (Eq. 13). Exchanging the sums, each batch delays the b_B tasks behind it by tau_B, so

    E = sum over B of E_B (Eq. 14),    T = sum of all JCTs = sum over B of (sum over i in B of tau_i + b_B tau_B)

Both are sums over batches, so also over GPUs, and a batch depends on the rest of the plan only through b_B.

Example: tasks with 2 and 5 iterations on the toy GPU, which take 1 s each alone and take turns together, at 110 W. The
lower one of its two clocks is dominated. The first task alone costs 220 J; together the tasks end at 4 s and 7 s.

>>> from heshare.testing.toy import toy_instance
>>> options = BatchCosts(*toy_instance([2.0, 5.0])).options(0, np.array([[0, EMPTY], [0, 1]]))
>>> options.begin.tolist(), options.sm_mhz.tolist(), options.values.round(6).tolist()
([0, 1, 2], [1000, 1000], [[220.0, 2.0, 2.0], [770.0, 11.0, 7.0]])

Source: the paper, Section III-C, Eqs. 11 to 15. SPT order minimises the sum of completion times of one machine without
batches: Smith 1956, doi:10.1002/nav.3800030106. Batching on one machine: Potts and Kovalyov 2000,
doi:10.1016/S0377-2217(99)00153-8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heshare.lab.plus.batch_execution import RateTables, Scratch, batch_options, scratch_for
from heshare.lab.plus.rates import Rates
from heshare.lab.plus.search_settings import DEFAULT_CHOICES, BatchChoices
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.configuration import clock_candidates
from heshare.scheduling.objectives import Instance
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.caches.row_table import lengthened
from heshare.shared.compiling import compiled
from heshare.shared.errors import InputError
from heshare.world.workload import Workload


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of m sets of tasks, one set after the other.

    Attributes:
        begin: set i has options `begin[i]` to `begin[i + 1]`, none if it does not fit, shape (m + 1,).
        values: E_B in J, the sum of the members' execution times in s, and tau_B in s, shape (o, 3).
        sm_mhz: the clock, MHz, shape (o,).
        mps_pct: percentage of each member in the given order, 0 beyond the set's size, shape (o, w).
    """

    begin: IntArray
    values: FloatArray
    sm_mhz: IntArray
    mps_pct: IntArray

    def part(self, start: int, stop: int) -> BatchOptions:
        """Return the options of some consecutive sets."""
        begin = self.begin[start : stop + 1]
        rows = slice(begin[0], begin[-1])
        return BatchOptions(begin - begin[0], self.values[rows], self.sm_mhz[rows], self.mps_pct[rows])


class BatchCosts:
    """The options of any set of tasks on any type of GPU, from tables of predictions.

    Each set of workloads is predicted once, and many at a time.

    Attributes:
        choices: the clocks and MPS percentages that a batch may have.
        time_s: time alone of each task on each type of GPU at the default clock, s, shape (n, kinds).
        energy_j: energy likewise, J, shape (n, kinds).
        order: tasks in SPT order on each type of GPU, those that do not fit last, shape (kinds, n).
        rank: position of each task in it, shape (kinds, n).
        fits: whether a task fits each type of GPU alone, shape (n, kinds).
        workload: index of each task's workload, shape (n,).
        iterations: iterations of each task, shape (n,).
        memory_mib: memory of each type of GPU, MiB, shape (kinds,).
        clients: MPS clients of each type of GPU, shape (kinds,).
    """

    def __init__(
        self,
        world: Instance,
        predictor: Predictor,
        choices: BatchChoices = DEFAULT_CHOICES,
    ) -> None:
        self.choices, self.world = choices, world
        self.time_s, self.energy_j = world.time_of_kind, world.energy_of_kind
        self.fits: BoolArray = world.fits_of_kind
        self.order = world.order_of_kind
        self.rank: IntArray = np.argsort(self.order, axis=1)
        self.iterations = np.array([task.iterations for task in world.tasks], dtype=np.float64)
        self.memory_mib = np.array([gpu.memory_mib for gpu in world.kinds], dtype=np.float64)
        self.clients = np.array([gpu.mps_clients for gpu in world.kinds], dtype=np.int64)
        workloads = tuple(sorted({task.workload for task in world.tasks}))
        index = {workload: number for number, workload in enumerate(workloads)}
        self.workload = np.array([index[task.workload] for task in world.tasks], dtype=np.int64)
        self.rates = rate_tables(world, workloads, predictor, choices)

    def balanced_weight(self) -> float:
        """Return a weight at which energy and the sum of JCTs count about the same: E / T of queues of n / k tasks."""
        energy_j = float(np.where(self.fits, self.energy_j, np.inf).min(axis=1).sum())
        alone_s = float(np.where(self.fits, self.time_s, np.inf).min(axis=1).sum())
        return energy_j / (alone_s * (1 + self.world.n / self.world.k) / 2)

    def fill_tables(self, most: int | None = None) -> None:
        """Predict every set of workloads that a batch could have; otherwise each one is predicted when first needed.

        With `most`, only if there are at most so many of them.
        """
        for rates in self.rates:
            if most is None or len(rates.tables.variant_begin) <= most:
                rates.fill_all()

    def fill(self, kind: int, tasks: IntArray) -> None:
        """Fill the tables for sets of tasks on a type of GPU, shape (m, w), `EMPTY` beyond a set's size."""
        sizes = (tasks != EMPTY).sum(axis=1)
        for size in range(1, tasks.shape[1] + 1):
            multisets = np.sort(self.workload[tasks[sizes == size, :size]], axis=1)
            self.rates[kind].fill(multisets)

    def fit_together(self, kind: int, tasks: IntArray) -> BoolArray:
        """Return which sets fit a type of GPU together (memory and MPS clients), shape (m, w) -> (m,)."""
        present = tasks != EMPTY
        needs_mib = np.where(present, self.world.needs_mib[tasks], 0.0).sum(axis=1)
        result: BoolArray = (needs_mib <= self.memory_mib[kind]) & (present.sum(axis=1) <= self.clients[kind])
        return result

    def options(self, kind: int, tasks: IntArray) -> BatchOptions:
        """Return the options of each of m sets of tasks on a type of GPU.

        `kind` is an index in `kinds`; `tasks` has indices, members first, `EMPTY` beyond, shape (m, w), w at most
        `choices.width`.

        Raises:
            InputError: a set is larger than the width.
        """
        if tasks.shape[1] > self.choices.width:
            raise InputError(
                f"sets of {tasks.shape[1]} tasks",
                f"at most {self.choices.width}",
                "Take smaller sets, or allow a larger width.",
                column="tasks",
            )
        fits = self.fit_together(kind, tasks)
        self.fill(kind, tasks[fits])
        sizes = np.where(fits, (tasks != EMPTY).sum(axis=1), 0)
        rates = self.rates[kind]
        begin, values, clock, mps_pct = list_options(
            rates.tables,
            rates.mps_pct,
            scratch_for(rates.tables, tasks.shape[1]),
            np.ascontiguousarray(tasks, dtype=np.int64),
            sizes,
            self.workload,
            self.iterations,
        )
        return BatchOptions(begin, values, rates.clocks_mhz[clock], mps_pct)


def rate_tables(
    world: Instance, workloads: tuple[Workload, ...], predictor: Predictor, choices: BatchChoices
) -> tuple[Rates, ...]:
    """Return empty tables of each type of GPU for workloads, ascending."""
    clocks_mhz = clock_candidates(world, Settings(clocks=choices.clocks))
    return tuple(
        Rates(gpu, workloads, predictor, np.unique(clocks_mhz[kind]), choices) for kind, gpu in enumerate(world.kinds)
    )


@compiled
def list_options(
    rates: RateTables,
    variant_pct: IntArray,
    scratch: Scratch,
    tasks: IntArray,
    sizes: IntArray,
    workload: IntArray,
    iterations: FloatArray,
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Return the options of m sets of `sizes` tasks: begins, values (o, 3), clock indices, percentages (o, w)."""
    m, width = tasks.shape
    begin = np.zeros(m + 1, dtype=np.int64)
    room = 64 + 8 * m
    values, clock = np.empty((room, 3)), np.empty(room, dtype=np.int64)
    mps_pct = np.zeros((room, width), dtype=np.int64)
    used = 0
    for row in range(m):
        count = batch_options(rates, 0, tasks[row], sizes[row], workload, iterations, scratch) if sizes[row] > 0 else 0
        if used + count > len(values):
            values, clock = lengthened(values, used + count), lengthened(clock, used + count)
            mps_pct = lengthened(mps_pct, used + count)
        for i in range(count):
            values[used] = scratch.values[i]
            clock[used] = scratch.sources[i, 1]
            # Percentages are stored by workload; the result lists them in the order of the members.
            for member in range(sizes[row]):
                mps_pct[used, scratch.by_workload[member]] = variant_pct[scratch.sources[i, 0], member]
            used += 1
        begin[row + 1] = used
    return begin, values[:used].copy(), clock[:used].copy(), mps_pct[:used].copy()
