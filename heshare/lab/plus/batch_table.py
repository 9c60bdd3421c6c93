"""Predictions for sets of workloads, and the options of a batch: which plans HeShare+ may choose, and what they cost.

`docs/bound.md` has the choices and the derivation; after Section III-C of the paper (Eqs. 11 to 15).
"""

from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, product
from math import comb
from typing import NamedTuple

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import EMPTY, Batches, BatchModel, run_until_next_end
from heshare.scheduling.configuration import clock_candidates
from heshare.scheduling.objectives import Instance, numbered_workloads
from heshare.scheduling.plan import Batch
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiled import njit
from heshare.shared.errors import InputError, require

MOST_WORKLOAD_SETS = 12_000
"""Sets of workloads on a type of GPU; a task set with more gets smaller batches (39 workloads still have three)."""
MOST_TASK_SETS = 1_000_000
"""The largest number of sets of tasks on one type of GPU that are listed."""


@dataclass(frozen=True, slots=True)
class BatchChoices:
    """The clocks and MPS percentages that a batch may have, and its largest size.

    Attributes:
        width: the largest number of tasks of a batch; smaller above `MOST_WORKLOAD_SETS` sets of workloads.
        mps_variants: the largest number of vectors of MPS percentages of two workloads, 100 % for each being one.
        clocks: the number of SM clocks, evenly spaced over each GPU's grid with both ends.
        mps_pcts: MPS percentages of two workloads.

    Raises:
        InputError: a value is out of its range.
    """

    width: int = 3
    mps_variants: int = 4
    clocks: int = 12
    mps_pcts: tuple[int, ...] = tuple(range(10, 101, 10))

    def __post_init__(self) -> None:
        # The subsets of a set are enumerated, so the table grows with 2**width.
        for name, most in (("width", 8), ("mps_variants", 1000), ("clocks", 1000)):
            value = getattr(self, name)
            require(name, value, 1 <= value <= most, f"1 to {most}", "Correct the setting.")

        levels = self.mps_pcts
        ascending = bool(levels) and list(levels) == sorted(set(levels)) and levels[0] >= 1 and levels[-1] == 100
        require("mps_pcts", levels, ascending, "ascending percentages from 1 that end with 100", "Correct the setting.")


DEFAULT_CHOICES = BatchChoices()


class TableArrays(NamedTuple):
    """The table and the task set as arrays for compiled code; w is the largest size of a batch.

    Attributes:
        begin: the first row of each set of workloads, type by type, and the number of rows, shape (kinds * sets + 1,).
        iteration_s: seconds per iteration of each member while a subset runs (bit i: member i), s, (rows, 2**w, w).
        power_w: the GPU's power meanwhile, W, shape (rows, 2**w).
        set_number: what the i-th member adds to the number of a set if it is workload u, shape (w, workloads).
        workload: the workload of each task, shape (n,).
        iterations: iterations of each task, shape (n,).
        needs_mib: memory of each task, MiB, shape (n,).
        memory_mib: memory of each type of GPU, MiB, shape (kinds,).
        clients: MPS clients of each type, shape (kinds,).
    """

    begin: IntArray
    iteration_s: FloatArray
    power_w: FloatArray
    set_number: IntArray
    workload: IntArray
    iterations: FloatArray
    needs_mib: FloatArray
    memory_mib: FloatArray
    clients: IntArray


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

    def part(self, start: int, stop: int) -> "BatchOptions":
        """Return the options of consecutive sets."""
        begin = self.begin[start : stop + 1]
        rows = slice(begin[0], begin[-1])
        return BatchOptions(begin - begin[0], self.values[rows], self.sm_mhz[rows], self.mps_pct[rows])


@dataclass(frozen=True, slots=True)
class FeasibleBatches:
    """Batches that one type of GPU could run, and their options.

    Attributes:
        order: tasks in the type's SPT order, shape (n,); a task's index here is its position.
        sets: positions of each batch's tasks, ascending, `EMPTY` beyond its size, shape (m, w).
        options: the options of each; none for a set that the GPU cannot run.
    """

    order: IntArray
    sets: IntArray
    options: BatchOptions

    def batch(self, option: int, instance: Instance) -> Batch:
        """Return the batch of a plan that corresponds to an option."""
        row = int(np.searchsorted(self.options.begin, option, side="right")) - 1
        positions = self.sets[row][self.sets[row] != EMPTY]
        ids = tuple(instance.tasks[task].id for task in self.order[positions].tolist())
        mps_pct = tuple(self.options.mps_pct[option, : len(ids)].tolist())
        return Batch(ids, mps_pct, int(self.options.sm_mhz[option]))


class BatchTable:
    """The table of workload sets of a task set, predicted on construction, and the options of any set of its tasks.

    Attributes:
        instance: the task set and its GPUs.
        width: the largest number of tasks of a batch.
        rank: position of each task in each type's SPT order, shape (kinds, n).
        arrays: the table for compiled code.
        mps_pct: MPS percentages of the members of each row, shape (rows, w).
        sm_mhz: the clock of each row, MHz, shape (rows,).

    Example:
        Tasks with 2 and 5 iterations on the toy GPU take 1 s an iteration alone and take turns together, at 110 W. The
        lower one of its two clocks is dominated. The first task alone costs 220 J; together they end at 4 s and 7 s.

        >>> from heshare.testing.toy import toy_instance
        >>> options = BatchTable(*toy_instance([2.0, 5.0])).options(0, np.array([[0, EMPTY], [0, 1]]))
        >>> options.begin.tolist(), options.sm_mhz.tolist(), options.values.round(6).tolist()
        ([0, 1, 2], [1000, 1000], [[220.0, 2.0, 2.0], [770.0, 11.0, 7.0]])
    """

    def __init__(self, instance: Instance, predictor: Predictor, choices: BatchChoices = DEFAULT_CHOICES) -> None:
        self.instance = instance
        self.rank: IntArray = np.argsort(instance.order_of_kind, axis=1)
        workloads, self._workload = numbered_workloads(instance.tasks)
        self._model = BatchModel(instance, predictor)
        self._choices = choices
        # One task of each workload: the batch model takes tasks, and its rates depend on their workloads only.
        self._task_of_workload = np.unique(self._workload, return_index=True)[1]

        self.width = min(choices.width, instance.n)
        while self.width > 1 and _count_of_sets(len(workloads), self.width) > MOST_WORKLOAD_SETS:
            self.width -= 1
        self.mps_pct = np.zeros((0, self.width), dtype=np.int64)
        self.sm_mhz = np.zeros(0, dtype=np.int64)
        self.arrays = self._predicted(_set_numbers(len(workloads), self.width))

    def _predicted(self, set_number: IntArray) -> TableArrays:
        """Predict all sets of workloads that tasks can form on each type of GPU, size by size, in order of number."""
        instance = self.instance
        kinds = len(instance.kinds)
        clocks_mhz = clock_candidates(instance, Settings(clocks=self._choices.clocks))
        sets = int(set_number[:, -1].sum()) + 1
        counts = np.zeros((kinds, sets), dtype=np.int64)
        parts: list[_Rows] = []
        for kind in range(kinds):
            clocks = np.unique(clocks_mhz[kind])
            alone = self._alone(kind, clocks)
            smaller = _Rows.none(self.width)
            begin = np.full(sets, EMPTY)
            for size in range(1, self.width + 1):
                members = self._sets_of_workloads(kind, size)
                if not len(members):
                    continue
                of_set, levels = self._percentages(kind, members, alone)
                rows = self._rows_of(kind, members[of_set], levels, alone, smaller, begin, set_number)
                number = set_number[np.arange(size), members].sum(axis=1)
                counts[kind, number] = np.bincount(of_set) * len(clocks)
                begin[number] = len(smaller.sm_mhz) + np.cumsum(counts[kind, number]) - counts[kind, number]
                smaller = smaller.joined(rows)
            parts.append(smaller)

        self.mps_pct = np.concatenate([part.mps_pct for part in parts])
        self.sm_mhz = np.concatenate([part.sm_mhz for part in parts])
        return TableArrays(
            begin=np.concatenate(([0], np.cumsum(counts))),
            iteration_s=np.concatenate([part.iteration_s for part in parts]),
            power_w=np.concatenate([part.power_w for part in parts]),
            set_number=set_number,
            workload=self._workload,
            iterations=np.array([task.iterations for task in instance.tasks], dtype=np.float64),
            needs_mib=np.asarray(instance.needs_mib, dtype=np.float64),
            memory_mib=np.array([gpu.memory_mib for gpu in instance.kinds], dtype=np.float64),
            clients=np.array([gpu.mps_clients for gpu in instance.kinds], dtype=np.int64),
        )

    def _sets_of_workloads(self, kind: int, size: int) -> IntArray:
        """Return the sets of workloads that a batch of tasks could have on a type of GPU, by number, shape (m, s)."""
        tasks_of = np.bincount(self._workload)
        sets = np.array(list(combinations_with_replacement(range(len(tasks_of)), size)), dtype=np.int64)
        sets = sets[np.lexsort(sets.T)]  # in order of their numbers, with the last member first

        # Of the ascending members, a member equal to the one `back` before it needs more than `back` such tasks.
        possible = np.ones(len(sets), dtype=bool)
        for back in range(1, size):
            same = sets[:, back:] == sets[:, :-back]
            possible &= ~(same & (tasks_of[sets[:, back:]] <= back)).any(axis=1)

        gpu = self.instance.kinds[kind]
        needs_mib = self.instance.needs_mib[self._task_of_workload]
        possible &= needs_mib[sets].sum(axis=1) <= gpu.memory_mib
        return sets[possible & (size <= gpu.mps_clients)]

    def _ask(self, kind: int, members: IntArray, mps_pct: IntArray, sm_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return seconds per iteration, (r, s), and power, W, (r,), of sets of workloads with percentages, (r, s)."""
        tasks = self._task_of_workload[members]
        return self._model.rates(Batches(np.full(len(tasks), kind), tasks, mps_pct, sm_mhz))

    def _alone(self, kind: int, clocks: IntArray) -> "_Alone":
        workloads = self._sets_of_workloads(kind, 1)[:, 0]
        levels = np.array(self._choices.mps_pcts)
        shape = (len(workloads), len(levels), len(clocks))
        members = np.broadcast_to(workloads[:, None, None], shape).reshape(-1, 1)
        mps_pct = np.broadcast_to(levels[:, None], shape).reshape(-1, 1)
        sm_mhz = np.broadcast_to(clocks, shape).ravel()
        own_s, own_w = self._ask(kind, members, mps_pct, sm_mhz)

        iteration_s = np.ones((len(self._task_of_workload), *shape[1:]))
        power_w = np.ones(iteration_s.shape)
        iteration_s[workloads] = own_s.reshape(shape)
        power_w[workloads] = own_w.reshape(shape)
        return _Alone(levels, clocks, iteration_s, power_w)

    def _percentages(self, kind: int, members: IntArray, alone: "_Alone") -> tuple[IntArray, IntArray]:
        """Return the selected vectors of percentages of m sets: the set of each, (v,), and the levels, (v, s)."""
        count, size = members.shape
        full = len(alone.levels) - 1
        if size != 2 or self._choices.mps_variants == 1:
            return np.arange(count), np.full((count, size), full)

        # Candidate 0 is 100 % for each, which is always selected.
        candidates = np.array(list(product(range(full, -1, -1), repeat=size)))
        trials = np.repeat(members, len(candidates), axis=0)
        levels = np.tile(candidates, (count, 1))
        top = np.full(len(trials), len(alone.clocks) - 1)
        whole_s, whole_w = self._ask(kind, trials, alone.levels[levels], alone.clocks[top])
        iteration_s = np.ones((len(trials), 4, 2))
        power_w = np.zeros((len(trials), 4))
        alone.fill(iteration_s, power_w, trials, levels, top)
        iteration_s[:, 0b11] = whole_s
        power_w[:, 0b11] = whole_w
        wins = _wins(iteration_s, power_w, len(candidates))

        # A vector that never wins is replaced by candidate 0.
        best = np.argsort(-wins, axis=1, kind="stable")[:, : self._choices.mps_variants - 1]
        best = np.where(np.take_along_axis(wins, best, axis=1) > 0, best, 0)
        kept = np.zeros(wins.shape, dtype=bool)
        kept[:, 0] = True
        np.put_along_axis(kept, best, True, axis=1)
        of_set, vector = np.nonzero(kept)
        return of_set, candidates[vector]

    def _rows_of(
        self,
        kind: int,
        members: IntArray,
        levels: IntArray,
        alone: "_Alone",
        smaller: "_Rows",
        begin: IntArray,
        set_number: IntArray,
    ) -> "_Rows":
        """Return the rows of v sets with percentages, given by workloads and levels, (v, s), at every clock.

        The whole sets are predicted. The times of two tasks' subsets, a task alone, are in `alone`, those of larger
        sets in the rows of `smaller` sets, whose first row by number is in `begin`.
        """
        clocks = len(alone.clocks)
        size = members.shape[1]
        clock = np.tile(np.arange(clocks), len(members))
        members = np.repeat(members, clocks, axis=0)
        levels = np.repeat(levels, clocks, axis=0)
        mps_pct = alone.levels[levels]
        sm_mhz = alone.clocks[clock]

        iteration_s = np.ones((len(members), 2**self.width, self.width))
        power_w = np.zeros((len(members), 2**self.width))
        whole = 2**size - 1
        iteration_s[:, whole, :size], power_w[:, whole] = self._ask(kind, members, mps_pct, sm_mhz)
        if size == 2:
            alone.fill(iteration_s, power_w, members, levels, clock)
        for subset in range(1, whole) if size > 2 else ():
            running = np.flatnonzero(subset >> np.arange(size) & 1)
            # The first rows of a set are those with 100 % for each member, clock by clock.
            row = begin[set_number[np.arange(len(running)), members[:, running]].sum(axis=1)] + clock
            part = 2 ** len(running) - 1
            iteration_s[:, subset, running] = smaller.iteration_s[row, part, : len(running)]
            power_w[:, subset] = smaller.power_w[row, part]

        return _Rows(np.pad(mps_pct, ((0, 0), (0, self.width - size))), sm_mhz, iteration_s, power_w)

    def options(self, kind: int, tasks: IntArray) -> BatchOptions:
        """Return the options of each of m sets of tasks on a type of GPU.

        `kind` is an index in the instance's kinds; `tasks` has indices, members first, `EMPTY` beyond, shape (m, w).

        Raises:
            InputError: a set is larger than the width.
        """
        largest = int((tasks != EMPTY).sum(axis=1).max(initial=0))
        if largest > self.width:
            raise InputError(
                f"sets of {largest} tasks",
                f"at most {self.width}",
                "Take smaller sets, or allow a larger width.",
                column="tasks",
            )
        left = np.ascontiguousarray(tasks, dtype=np.int64)
        most = self.most_options
        counts = [np.zeros(1, dtype=np.int64)]
        all_values: list[FloatArray] = []
        all_rows: list[IntArray] = []
        all_places: list[IntArray] = []
        # In parts: how many options the sets have is known only afterwards.
        while len(left) or not all_rows:
            room = most + 8 * len(left)
            values = np.empty((room, 3))
            rows = np.empty(room, dtype=np.int64)
            places = np.full((room, tasks.shape[1]), EMPTY)
            count = _list_options(self.arrays, kind, left, values, rows, places, most)
            counts.append(count)
            used = int(count.sum())
            all_values.append(values[:used])
            all_rows.append(rows[:used])
            all_places.append(places[:used])
            left = left[len(count) :]

        row = np.concatenate(all_rows)
        place = np.concatenate(all_places)
        # The members of a row are sorted by workload; the percentages are returned in the order of the tasks.
        mps_pct = np.where(place == EMPTY, 0, self.mps_pct[row[:, None], place])
        begin = np.cumsum(np.concatenate(counts))
        return BatchOptions(begin, np.concatenate(all_values), self.sm_mhz[row], mps_pct)

    @property
    def most_options(self) -> int:
        """The largest number of options of a batch."""
        return int(np.diff(self.arrays.begin).max())

    def feasible_batches(self) -> tuple[FeasibleBatches, ...]:
        """Return all batches of each type of GPU.

        Raises:
            InputError: more than `MOST_TASK_SETS` sets of tasks.
        """
        sets = subsets(self.instance.n, self.width)
        batches = []
        for kind, order in enumerate(self.instance.order_of_kind):
            tasks = np.where(sets == EMPTY, EMPTY, order[sets])
            batches.append(FeasibleBatches(order, sets, self.options(kind, tasks)))
        return tuple(batches)


def subsets(n: int, width: int) -> IntArray:
    """Return all sets of 1 to `width` of n positions, ascending, `EMPTY`-padded, sorted, shape (m, width).

    Raises:
        InputError: more than `MOST_TASK_SETS` sets.
    """
    count = sum(comb(n, size) for size in range(1, width + 1))
    if count > MOST_TASK_SETS:
        raise InputError(
            f"{count} sets of up to {width} of {n} tasks",
            f"at most {MOST_TASK_SETS}",
            "Compute the optimum of fewer tasks, or of smaller batches.",
            column="tasks",
        )
    tables = []
    for size in range(1, min(n, width) + 1):
        rows = np.array(list(combinations(range(n), size)), dtype=np.int64)
        tables.append(np.pad(rows, ((0, 0), (0, width - size)), constant_values=EMPTY))
    table = np.concatenate(tables)
    return table[np.lexsort(table.T[::-1])]


def _count_of_sets(workloads: int, width: int) -> int:
    return sum(comb(workloads + size - 1, size) for size in range(1, width + 1))


def _set_numbers(workloads: int, width: int) -> IntArray:
    """Return what the i-th of the ascending members adds to the number of a set if it is workload u, shape (w, k).

    Adding i to the i-th member makes the members distinct, and a set of distinct numbers has the rank sum_i C(u_i + i,
    i + 1) among those of its size (combinatorial number system). All smaller sets come before.
    """
    smaller = [0, *(comb(workloads + i - 1, i) for i in range(1, width))]
    return np.array([[comb(u + i, i + 1) + smaller[i] for u in range(workloads)] for i in range(width)], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Alone:
    """Seconds per iteration and power of each workload alone, at each percentage of `levels` and each of `clocks`.

    Both are of shape (workloads, levels, clocks); `levels` are MPS percentages, `clocks` in MHz, both ascending.
    """

    levels: IntArray
    clocks: IntArray
    iteration_s: FloatArray
    power_w: FloatArray

    def fill(
        self, iteration_s: FloatArray, power_w: FloatArray, members: IntArray, levels: IntArray, clock: IntArray
    ) -> None:
        """Write times and powers of the subsets of one member into the rows of pairs of workloads, shape (r, 2)."""
        for member in range(2):
            workload = members[:, member]
            iteration_s[:, 1 << member, member] = self.iteration_s[workload, levels[:, member], clock]
            power_w[:, 1 << member] = self.power_w[workload, levels[:, member], clock]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the table; see `TableArrays` and `BatchTable`."""

    mps_pct: IntArray
    sm_mhz: IntArray
    iteration_s: FloatArray
    power_w: FloatArray

    @classmethod
    def none(cls, width: int) -> "_Rows":
        """Return no rows."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing.reshape(0, width), nothing, np.zeros((0, 2**width, width)), np.zeros((0, 2**width)))

    def joined(self, others: "_Rows") -> "_Rows":
        """Return these rows followed by others."""
        return _Rows(
            np.concatenate((self.mps_pct, others.mps_pct)),
            np.concatenate((self.sm_mhz, others.sm_mhz)),
            np.concatenate((self.iteration_s, others.iteration_s)),
            np.concatenate((self.power_w, others.power_w)),
        )


def _wins(iteration_s: FloatArray, power_w: FloatArray, candidates: int) -> IntArray:
    """Return how often each of t candidates is the best one of each of m sets of s workloads, shape (m, t).

    The m times t rows are as in the table, (rows, 2**s, s); lengths and goals are those of `docs/bound.md`.
    """
    size = iteration_s.shape[2]
    count = len(power_w) // candidates
    alone = [2**member for member in range(size)]
    alone_s = iteration_s[::candidates, alone, range(size)]

    wins = np.zeros((count, candidates), dtype=np.int64)
    lengths = [np.ones(size)]
    lengths += [1.0 + (times - 1) * np.eye(size)[member] for times in (2.0, 4.0) for member in range(size)]

    for length in lengths:
        iterations = np.repeat(length / alone_s, candidates, axis=0)
        values = _run_batches(iteration_s, power_w, iterations).reshape(count, candidates, 3)
        energy = values[:, :, 0] / values[:, :1, 0]
        time = values[:, :, 1] / values[:, :1, 1]
        for goal in (energy, time, energy + time):
            # Values that differ by rounding alone are ties, which the first candidate wins.
            best = (goal <= goal.min(axis=1, keepdims=True) * (1 + 1e-9)).argmax(axis=1)
            wins[np.arange(count), best] += 1
    return wins


@njit(cache=True, error_model="numpy")
def _run_batch(
    iteration_s: FloatArray, power_w: FloatArray, row: int, size: int, left: FloatArray
) -> tuple[float, float, float]:
    """Run one batch of `size` tasks to its end: E_B in J, the sum of the tasks' times in s, tau_B in s.

    `iteration_s` and `power_w` are as in `TableArrays`; `left` has the iterations of each member, 0 beyond the size,
    shape (w,), and is used up.
    """
    energy_j = 0.0
    sum_s = 0.0
    end_s = 0.0
    running = (1 << size) - 1
    while running:
        step_s = run_until_next_end(left, iteration_s[row, running])
        energy_j += power_w[row, running] * step_s
        end_s += step_s
        for member in range(size):
            if running >> member & 1 and left[member] == 0.0:
                sum_s += end_s
                running ^= 1 << member
    return energy_j, sum_s, end_s


@njit(cache=True)
def _run_batches(iteration_s: FloatArray, power_w: FloatArray, iterations: FloatArray) -> FloatArray:
    """Run r batches of equal size, with the work of each member, shape (r, s); return `_run_batch` of each, (r, 3)."""
    rows, size = iterations.shape
    values = np.empty((rows, 3))
    left = np.zeros(iteration_s.shape[2])
    for row in range(rows):
        for member in range(size):
            left[member] = iterations[row, member]
        energy_j, sum_s, end_s = _run_batch(iteration_s, power_w, row, size, left)
        values[row, 0] = energy_j
        values[row, 1] = sum_s
        values[row, 2] = end_s
    return values


@njit(cache=True)
def fill_options(
    table: TableArrays,
    kind: int,
    tasks: IntArray,
    size: int,
    values: FloatArray,
    rows: IntArray,
    places: IntArray,
    left: FloatArray,
) -> int:
    """Write the options of one set of tasks that no other option dominates; return how many.

    The first `size` of `tasks` count. Written are [E_B in J, sum of execution times in s, tau_B in s], `values`, their
    `rows` in the table, and the indices in `tasks` of the row's members, `places`, shape (w,); `left` is scratch, (w,).
    """
    needs_mib = 0.0
    for member in range(size):
        needs_mib += table.needs_mib[tasks[member]]
    if needs_mib > table.memory_mib[kind] or size > table.clients[kind]:
        return 0

    # The members of a row are sorted by workload; the order of equal workloads stays.
    for member in range(size):
        place = member
        while place > 0 and table.workload[tasks[places[place - 1]]] > table.workload[tasks[member]]:
            places[place] = places[place - 1]
            place -= 1
        places[place] = member
    number = kind * (len(table.begin) - 1) // len(table.clients)
    for member in range(size):
        number += table.set_number[member, table.workload[tasks[places[member]]]]

    count = 0
    for row in range(table.begin[number], table.begin[number + 1]):
        for member in range(size):
            left[member] = table.iterations[tasks[places[member]]]
        energy_j, sum_s, end_s = _run_batch(table.iteration_s, table.power_w, row, size, left)

        dominated = False
        for option in range(count):
            if values[option, 0] <= energy_j and values[option, 1] <= sum_s and values[option, 2] <= end_s:
                dominated = True
                break
        if dominated:
            continue

        kept = 0
        for option in range(count):
            if values[option, 0] < energy_j or values[option, 1] < sum_s or values[option, 2] < end_s:
                for column in range(3):
                    values[kept, column] = values[option, column]
                rows[kept] = rows[option]
                kept += 1
        values[kept, 0] = energy_j
        values[kept, 1] = sum_s
        values[kept, 2] = end_s
        rows[kept] = row
        count = kept + 1
    return count


@njit(cache=True)
def _list_options(
    table: TableArrays, kind: int, sets: IntArray, values: FloatArray, rows: IntArray, members: IntArray, most: int
) -> IntArray:
    """Write the options of sets of tasks, `EMPTY` beyond their sizes, shape (m, w), as long as they fit the arrays.

    Written are the `values` of each option, shape (o, 3), their `rows` in the table, (o,), and the member of the row
    that each task is, `members`, shape (o, w), `EMPTY` before. A set has at most `most` options. Returned is the number
    of options of each set that was listed.
    """
    width = sets.shape[1]
    counts = np.zeros(len(sets), dtype=np.int64)
    places = np.zeros(width, dtype=np.int64)
    left = np.zeros(table.iteration_s.shape[2])
    own_values = np.empty((most, 3))
    own_rows = np.empty(most, dtype=np.int64)

    used = 0
    for number in range(len(sets)):
        if used + most > len(values):
            return counts[:number]

        size = 0
        while size < width and sets[number, size] != EMPTY:
            size += 1
        if size > 0:
            counts[number] = fill_options(table, kind, sets[number], size, own_values, own_rows, places, left)

        for option in range(counts[number]):
            for column in range(3):
                values[used, column] = own_values[option, column]
            rows[used] = own_rows[option]
            for member in range(size):
                members[used, places[member]] = member
            used += 1
    return counts
