"""Tables of predicted times and powers of sets of residents on one type of GPU, from which batch costs are computed.

A *state* is a set of residents (workload and MPS percentage) that run together; it has a time for each resident and a
power, at every clock. A *variant* of a multiset of workloads is one vector of MPS percentages for its members, together
with the states that a batch passes as its members end. A variant of s members has 2^s - 1 states, one for each subset.

The predictor distinguishes workloads, not tasks. So the tables of k workloads and batches of up to w tasks need at most

    sum over s = 1 .. w of C(k + s - 1, s) multisets,

however many tasks there are. Each multiset is predicted once, in bulk with others, when it is first needed.

With p percentages a set of s tasks has p^s vectors, too many to try for every batch. So each multiset keeps the few
vectors that are the best ones most often, at the top clock, over 2 s + 1 relative lengths (equal tasks, and each task
in turn two and four times as long) and three goals (least energy, least sum of execution times, least sum of both
relative to 100 % for each member).

Example: two workloads on a GPU with two clocks. Batches of up to two have five multisets; only 100 % is allowed.

>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> workloads = (Workload("mobilenet", 4), Workload("resnet18", 4))
>>> rates = Rates(toy_gpu(), workloads, ToyPredictor(), width=2, clocks_mhz=np.array([500, 1000]),
...               mps_pcts=(100,), coarse_mps_pcts=(100,), mps_variants=1, mps_width=1)
>>> rates.fill_all()
>>> rates.tables.variant_count.tolist()
[1, 1, 1, 1, 1]
>>> state = rates.tables.states[rates.tables.variant_begin[3], 0b11]  # multiset 3 is {mobilenet, resnet18}
>>> rates.tables.time_s[state].tolist(), rates.tables.power_w[state].tolist()
([[4.0, 4.0], [2.0, 2.0]], [60.0, 110.0])

Source of the numbers of multisets: see `heshare.plus.multisets`.
"""

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from heshare.arrays import FloatArray, IntArray
from heshare.plus.batch_execution import run_states
from heshare.plus.multisets import binomials, multiset_begins, multiset_numbers
from heshare.prediction.predictor import Predictor
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

UNKNOWN = -1
"""Marks a multiset that has not been predicted yet, and a state that does not exist."""

_CODES = 128
"""A resident is one number: workload times this, plus MPS percentage."""


@dataclass(frozen=True, slots=True)
class RateTables:
    """The tables of one type of GPU, as arrays for compiled code.

    Attributes:
        time_s: seconds per iteration of each resident of each state at each clock, s, shape (states, c, w).
        power_w: the GPU's power, W, shape (states, c).
        clocks_mhz: the clocks, MHz, shape (c,).
        variant_begin: first variant of each multiset by number, `UNKNOWN` before it is predicted, shape (multisets,).
        variant_count: the number of its variants, shape (multisets,).
        states: the state of every subset of members of each variant (bit i: member i runs), shape (v, 2**w).
        mps_pct: the members' MPS percentages, shape (v, w).
    """

    time_s: FloatArray
    power_w: FloatArray
    clocks_mhz: IntArray
    variant_begin: IntArray
    variant_count: IntArray
    states: IntArray
    mps_pct: IntArray


class Rates:
    """The tables of one type of GPU, filled by the predictor as far as they are needed.

    Args:
        gpu: the type of GPU.
        workloads: the workloads of the task set, ascending.
        predictor: predicts times and powers.
        width: the largest number of members of a set.
        clocks_mhz: clocks, MHz, ascending, shape (c,).
        mps_pcts: percentages of sets of two.
        coarse_mps_pcts: percentages of larger sets.
        mps_variants: the largest number of variants of a set, one of them 100 % for each member.
        mps_width: the largest number of members of a set with other variants.
    """

    def __init__(
        self,
        gpu: Gpu,
        workloads: tuple[Workload, ...],
        predictor: Predictor,
        *,
        width: int,
        clocks_mhz: IntArray,
        mps_pcts: tuple[int, ...],
        coarse_mps_pcts: tuple[int, ...],
        mps_variants: int,
        mps_width: int,
    ) -> None:
        self.gpu, self.width = gpu, width
        self._workloads, self._predictor = workloads, predictor
        self._mps_pcts, self._coarse_mps_pcts = mps_pcts, coarse_mps_pcts
        self._mps_variants, self._mps_width = mps_variants, mps_width
        self._multiset_begin = multiset_begins(len(workloads), width)
        self._coefficients = binomials(len(workloads), width)
        self._state_of: dict[tuple[int, ...], int] = {}
        self._residents: dict[int, Resident] = {}
        # Kept with the predictor, because other task sets have the same workloads and need the same percentages.
        self._chosen: dict[object, Any] = getattr(predictor, "derived", {})
        multisets, clocks = int(self._multiset_begin[-1]), len(clocks_mhz)
        self.tables = RateTables(
            np.ones((0, clocks, width)),
            np.zeros((0, clocks)),
            clocks_mhz,
            np.full(multisets, UNKNOWN),
            np.zeros(multisets, dtype=np.int64),
            np.zeros((0, 2**width), dtype=np.int64),
            np.zeros((0, width), dtype=np.int64),
        )

    def number(self, multisets: IntArray) -> IntArray:
        """Return the number of each multiset of workload indices, each row ascending, shape (m, s) -> (m,)."""
        return multiset_numbers(multisets, self._multiset_begin, self._coefficients)

    def fill_all(self) -> None:
        """Fill the tables for every multiset."""
        for size in range(1, self.width + 1):
            multisets = combinations_with_replacement(range(len(self._workloads)), size)
            self.fill(np.array(list(multisets), dtype=np.int64))

    def fill(self, multisets: IntArray) -> None:
        """Fill the tables for multisets of one size, given as ascending workload indices, shape (m, s)."""
        if len(multisets):
            unknown = self.tables.variant_begin[self.number(multisets)] == UNKNOWN
            multisets = np.unique(multisets[unknown], axis=0)
        if not len(multisets):
            return
        chosen = self._percentages(multisets)
        counts = np.array([len(vectors) for vectors in chosen])
        mps_pct = np.array([vector for vectors in chosen for vector in vectors], dtype=np.int64)
        states = self._states(np.repeat(multisets, counts, axis=0) * _CODES + mps_pct)
        tables, numbers = self.tables, self.number(multisets)
        variant_begin, variant_count = tables.variant_begin.copy(), tables.variant_count.copy()
        variant_begin[numbers] = len(tables.states) + np.cumsum(counts) - counts
        variant_count[numbers] = counts
        padded = np.pad(mps_pct, ((0, 0), (0, self.width - mps_pct.shape[1])))
        self.tables = replace(
            tables,
            variant_begin=variant_begin,
            variant_count=variant_count,
            states=np.concatenate((tables.states, states)),
            mps_pct=np.concatenate((tables.mps_pct, padded)),
        )

    def _states(self, codes: IntArray) -> IntArray:
        """Return the state of every subset of each row of resident codes, predicting new ones, (v, s) -> (v, 2**w)."""
        size = codes.shape[1]
        keys = _subset_keys(codes, range(2**size))
        new = sorted({key for row in keys for key in row if key and key not in self._state_of})
        if new:
            time_s, power_w = self._predict(new, self.tables.clocks_mhz)
            first = len(self._state_of)
            self._state_of.update((key, first + index) for index, key in enumerate(new))
            self.tables = replace(
                self.tables,
                time_s=np.concatenate((self.tables.time_s, time_s)),
                power_w=np.concatenate((self.tables.power_w, power_w)),
            )
        result = np.full((len(codes), 2**self.width), UNKNOWN)
        result[:, 1 : 2**size] = [[self._state_of[key] for key in row[1:]] for row in keys]
        return result

    def _predict(self, keys: list[tuple[int, ...]], clocks_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return times, shape (m, c, w), 1 beyond a set's size, and powers, shape (m, c), of sets of resident codes."""
        for code in {code for key in keys for code in key}.difference(self._residents):
            self._residents[code] = Resident(self._workloads[code // _CODES], code % _CODES)
        sets = [tuple([self._residents[code] for code in key]) for key in keys]
        count = len(clocks_mhz)
        clocks: list[int | None] = clocks_mhz.tolist() * len(sets)
        runs = self._predictor.co_run([residents for residents in sets for _ in range(count)], self.gpu, clocks)
        time_s = np.ones((len(sets), count, self.width))
        widest = runs.time_s.shape[1]
        time_s[:, :, :widest] = np.nan_to_num(runs.time_s, nan=1.0).reshape(len(sets), count, widest)
        return time_s, runs.power_w.reshape(len(sets), count)

    def _percentages(self, multisets: IntArray) -> list[list[tuple[int, ...]]]:
        """Return the vectors of MPS percentages that each multiset keeps; 100 % for each member comes first."""
        size = multisets.shape[1]
        full = (100,) * size
        if size == 1 or size > self._mps_width or self._mps_variants == 1:
            return [[full]] * len(multisets)
        levels = self._mps_pcts if size == 2 else self._coarse_mps_pcts
        candidates = [full, *(vector for vector in product(reversed(levels), repeat=size) if vector != full)]
        names = [tuple([self._workloads[workload] for workload in row]) for row in multisets.tolist()]
        chosen = self._chosen.setdefault((self.gpu, levels, self._mps_variants), {})
        new = [row for row, name in enumerate(names) if name not in chosen]
        if new:
            wins = self._wins(multisets[new], np.array(candidates))
            order = np.argsort(-wins, axis=1, kind="stable")
            # A vector that never wins is replaced by candidate 0, which is kept anyway.
            best = np.where(np.take_along_axis(wins, order, axis=1) > 0, order, 0)[:, : self._mps_variants - 1]
            for row, candidate in zip(new, np.sort(best, axis=1).tolist(), strict=True):
                chosen[names[row]] = [candidates[index] for index in sorted({0, *candidate})]
        return [chosen[name] for name in names]

    def _wins(self, multisets: IntArray, candidates: IntArray) -> IntArray:
        """Return how often each vector of percentages is the best one for each multiset, shape (m, t).

        Counted over the relative lengths of the tasks and the three goals of the module's docstring.
        """
        m, size = multisets.shape
        count = len(candidates)
        codes = (multisets[:, None] * _CODES + candidates[None]).reshape(-1, size)
        time_s, power_w, states = self._states_at_top_clock(_subset_keys(codes, range(1, 2**size)))
        alone_s = time_s[states[::count][:, [2**i for i in range(size)]], 0]
        wins = np.zeros((m, count), dtype=np.int64)
        for lengths in _relative_lengths(size):
            iterations = np.repeat(lengths / alone_s, count, axis=0)
            energy_j, sum_s, _ = run_states(time_s, power_w, states, iterations)
            energy, time = energy_j.reshape(m, count), sum_s.reshape(m, count)
            energy, time = energy / energy[:, :1], time / time[:, :1]
            for goal in (energy, time, energy + time):
                # Values that differ by rounding alone are ties, which the first candidate wins.
                best = (goal <= goal.min(axis=1, keepdims=True) * (1 + 1e-9)).argmax(axis=1)
                wins[np.arange(m), best] += 1
        return wins

    def _states_at_top_clock(self, keys: list[list[tuple[int, ...]]]) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return times (m, w) and powers (m,) of the states at the top clock, and each row's states, (rows, 2**s)."""
        distinct = sorted({key for row in keys for key in row})
        time_s, power_w = self._predict(distinct, self.tables.clocks_mhz[-1:])
        index = {key: state for state, key in enumerate(distinct)}
        return time_s[:, 0], power_w[:, 0], np.array([[UNKNOWN, *(index[key] for key in row)] for row in keys])


def _subset_keys(codes: IntArray, subsets: range) -> list[list[tuple[int, ...]]]:
    """Return the codes of some subsets (bit i: member i) of each row of resident codes, shape (v, s)."""
    members = [[i for i in range(codes.shape[1]) if subset >> i & 1] for subset in subsets]
    return [[tuple(row[i] for i in subset) for subset in members] for row in codes.tolist()]


def _relative_lengths(size: int) -> FloatArray:
    """Return the relative lengths of a set's tasks with which its percentages are compared, shape (l, size)."""
    longer = [1.0 + (times - 1) * np.eye(size)[i] for times in (2.0, 4.0) for i in range(size)]
    return np.array([np.ones(size), *longer])
