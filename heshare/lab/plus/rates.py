"""Tables of predicted times and powers of sets of residents on one type of GPU, from which batch costs are computed.

A *state* is a set of residents (workload and MPS percentage) that run together; it has a time for each resident and a
power, at every clock. A *variant* of a multiset of workloads is one vector of MPS percentages for its members, together
with the states that a batch passes as its members end. A variant of s members has 2^s - 1 states, one for each subset.

The predictor distinguishes workloads, not tasks. So the tables of k workloads and batches of up to w tasks need at most

    sum over s = 1 .. w of C(k + s - 1, s) multisets,

however many tasks there are. Each one is predicted once, in bulk with others, when it is first needed. They are
numbered without gaps, sorted by size. Adding i to the i-th of the ascending indices u_0 <= u_1 <= ... of a multiset
makes them distinct, and a set of distinct numbers has the rank sum_i C(u_i + i, i + 1) among all sets of its size
(combinatorial number system). Behind the sum over r = 1 .. s - 1 of C(k + r - 1, r) smaller multisets, this is

    number(u_0 .. u_{s-1}) = sum over i of (C(u_i + i, i + 1) + [i > 0] C(k + i - 1, i))

With p percentages a set of s tasks has p^s vectors, too many to try for every batch. So each multiset keeps the few
vectors that are the best ones most often, at the top clock, over 2 s + 1 relative lengths (equal tasks, and each task
in turn two and four times as long) and three goals (least energy, least sum of execution times, least sum of both
relative to 100 % for each member).

Example: two workloads on a GPU with two clocks. Batches of up to two have the multisets {0}, {1}, {0, 0}, {0, 1} and
{1, 1}, with the numbers 0 to 4; only 100 % is allowed.

>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> workloads = (Workload("mobilenet", 4), Workload("resnet18", 4))
>>> rates = Rates(toy_gpu(), workloads, ToyPredictor(), np.array([500, 1000]), BatchChoices(width=2, mps_variants=1))
>>> rates.fill_all()
>>> rates.number(np.array([[0, 0], [0, 1], [1, 1]])).tolist()
[2, 3, 4]
>>> rates.tables.variant_count.tolist()
[1, 1, 1, 1, 1]
>>> state = rates.tables.states[rates.tables.variant_begin[3], 0b11]  # multiset 3 is {mobilenet, resnet18}
>>> rates.tables.time_s[state].tolist(), rates.tables.power_w[state].tolist()
([[4.0, 4.0], [2.0, 2.0]], [60.0, 110.0])

Source of the numbers: Buckles and Lybanon 1977, Generation of a vector from the lexicographical index,
doi:10.1145/355732.355739.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from math import comb
from typing import Any

import numpy as np

from heshare.lab.plus.batch_execution import UNKNOWN, RateTables, run_batches
from heshare.lab.plus.search_settings import BatchChoices
from heshare.prediction.predictor import CODES, CodedSets, Predictor
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.caches.row_table import EMPTY, RowTable, distinct_rows
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Workload


def multiset_terms(workloads: int, width: int) -> IntArray:
    """Return what the i-th member adds to the number of a multiset if it is workload u, shape (width, workloads)."""
    smaller = [0, *(comb(workloads + i - 1, i) for i in range(1, width))]
    return np.array([[comb(u + i, i + 1) + smaller[i] for u in range(workloads)] for i in range(width)], dtype=np.int64)


class Rates:
    """The tables of one type of GPU, filled by the predictor as far as they are needed.

    Attributes:
        width: the largest number of members of a set.
        tables: times and powers, for compiled code.
        clocks_mhz: the clocks, MHz, shape (c,).
        mps_pct: the MPS percentages of each variant's members, shape (v, w).
    """

    def __init__(
        self,
        gpu: Gpu,
        workloads: tuple[Workload, ...],
        predictor: Predictor,
        clocks_mhz: IntArray,
        choices: BatchChoices,
    ) -> None:
        self.gpu, self.width, self.clocks_mhz = gpu, choices.width, clocks_mhz
        self.workloads, self._predictor, self._choices = workloads, predictor, choices
        self._fits = np.array([memory_mib(workload) <= gpu.memory_mib for workload in workloads])
        # The codes of each state; the last ones have no predictions yet where predicting them was interrupted.
        self._states_known = RowTable()
        # Kept with the predictor, because other task sets have the same workloads and need the same percentages.
        self._chosen: dict[object, Any] = getattr(predictor, "derived", {})
        width, terms = choices.width, multiset_terms(len(workloads), choices.width)
        multisets, clocks = int(terms[:, -1].sum()) + 1, len(clocks_mhz)
        self.tables = RateTables(
            np.ones((0, clocks, width)),
            np.zeros((0, clocks)),
            np.full(multisets, UNKNOWN),
            np.zeros(multisets, dtype=np.int64),
            np.zeros((0, 2**width), dtype=np.int64),
            terms,
        )
        self.mps_pct = np.zeros((0, width), dtype=np.int64)

    def number(self, multisets: IntArray) -> IntArray:
        """Return the number of each multiset of workload indices, each row ascending, shape (m, s) -> (m,)."""
        numbers: IntArray = self.tables.terms[np.arange(multisets.shape[1]), multisets].sum(axis=1)
        return numbers

    def fill_all(self) -> None:
        """Fill the tables for every multiset."""
        for size in range(1, self.width + 1) if (self.tables.variant_begin == UNKNOWN).any() else ():
            multisets = combinations_with_replacement(range(len(self.workloads)), size)
            self.fill(np.array(list(multisets), dtype=np.int64))

    def fill(self, multisets: IntArray) -> None:
        """Fill the tables for multisets of one size, given as ascending workload indices, shape (m, s)."""
        unknown = self.tables.variant_begin[self.number(multisets)] == UNKNOWN
        if unknown.any():
            self._fill(np.unique(multisets[unknown], axis=0))

    def _fill(self, multisets: IntArray) -> None:
        chosen = self._percentages(multisets)
        counts = np.array([len(vectors) for vectors in chosen])
        mps_pct = np.array([vector for vectors in chosen for vector in vectors], dtype=np.int64)
        states = self._states(np.repeat(multisets, counts, axis=0) * CODES + mps_pct)
        tables, numbers = self.tables, self.number(multisets)
        variant_begin, variant_count = tables.variant_begin.copy(), tables.variant_count.copy()
        variant_begin[numbers] = len(tables.states) + np.cumsum(counts) - counts
        variant_count[numbers] = counts
        states = np.concatenate((tables.states, states))
        self.tables = tables._replace(variant_begin=variant_begin, variant_count=variant_count, states=states)
        padded = np.pad(mps_pct, ((0, 0), (0, self.width - mps_pct.shape[1])))
        self.mps_pct = np.concatenate((self.mps_pct, padded))

    def _states(self, codes: IntArray) -> IntArray:
        """Return the state of every subset of each row of resident codes, predicting new ones, (v, s) -> (v, 2**w)."""
        size = codes.shape[1]
        distinct, inverse = _subset_keys(codes)
        numbers, first = self._states_known.numbers(distinct), len(self.tables.time_s)
        if first < len(self._states_known):
            new = self._states_known.since(first)
            time_s, power_w = self._predict(new, self.clocks_mhz)
            self.tables = self.tables._replace(
                time_s=np.concatenate((self.tables.time_s, time_s)),
                power_w=np.concatenate((self.tables.power_w, power_w)),
            )
        result = np.full((len(codes), 2**self.width), UNKNOWN)
        result[:, 1 : 2**size] = numbers[inverse]
        return result

    def _predict(self, keys: IntArray, clocks_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return times, shape (m, c, w), 1 beyond a set's size, and powers, shape (m, c), of sets of resident codes."""
        count, keys = len(clocks_mhz), keys[:, : self.width]
        # Sets with a workload that is too large for the GPU are never used, and may have no prediction.
        fits = np.where(keys < 0, True, self._fits[keys // CODES]).all(axis=1)
        if not fits.all():
            every_s, every_w = np.ones((len(keys), count, self.width)), np.ones((len(keys), count))
            if fits.any():
                every_s[fits], every_w[fits] = self._predict(keys[fits], clocks_mhz)
            return every_s, every_w
        distinct = CodedSets.of_codes(keys, self.workloads)
        sets = CodedSets(distinct.residents, np.repeat(distinct.members, count, axis=0))
        clocks: list[int | None] = clocks_mhz.tolist() * len(keys)
        runs = self._predictor.co_run(sets, self.gpu, clocks)
        time_s = np.ones((len(keys), count, self.width))
        widest = runs.time_s.shape[1]
        time_s[:, :, :widest] = np.nan_to_num(runs.time_s, nan=1.0).reshape(len(keys), count, widest)
        return time_s, runs.power_w.reshape(len(keys), count)

    def _percentages(self, multisets: IntArray) -> list[list[tuple[int, ...]]]:
        """Return the vectors of MPS percentages that each multiset keeps; 100 % for each member comes first."""
        size = multisets.shape[1]
        full = (100,) * size
        variants = self._choices.mps_variants
        if size == 1 or size > self._choices.mps_width or variants == 1:
            return [[full]] * len(multisets)
        levels = self._choices.mps_pcts if size == 2 else self._choices.coarse_mps_pcts
        candidates = [full, *(vector for vector in product(reversed(levels), repeat=size) if vector != full)]
        names = [tuple([self.workloads[workload] for workload in row]) for row in multisets.tolist()]
        chosen = self._chosen.setdefault((self.gpu, levels, variants), {})
        new = [row for row, name in enumerate(names) if name not in chosen]
        if new:
            wins = self._wins(multisets[new], np.array(candidates))
            order = np.argsort(-wins, axis=1, kind="stable")
            # A vector that never wins is replaced by candidate 0, which is kept anyway.
            best = np.where(np.take_along_axis(wins, order, axis=1) > 0, order, 0)[:, : variants - 1]
            for row, candidate in zip(new, np.sort(best, axis=1).tolist(), strict=True):
                chosen[names[row]] = [candidates[index] for index in sorted({0, *candidate})]
        return [chosen[name] for name in names]

    def _wins(self, multisets: IntArray, candidates: IntArray) -> IntArray:
        """Return how often each vector of percentages is the best one for each multiset, shape (m, t).

        Counted over the relative lengths of the tasks and the three goals of the module's docstring.
        """
        m, size = multisets.shape
        count = len(candidates)
        codes = (multisets[:, None] * CODES + candidates[None]).reshape(-1, size)
        distinct, inverse = _subset_keys(codes)
        time_s, power_w = self._predict(distinct, self.clocks_mhz[-1:])
        states = np.pad(inverse, ((0, 0), (1, 0)), constant_values=UNKNOWN)
        alone_s = time_s[states[::count][:, [2**i for i in range(size)]], 0, 0]
        wins = np.zeros((m, count), dtype=np.int64)
        longer = [1.0 + (times - 1) * np.eye(size)[i] for times in (2.0, 4.0) for i in range(size)]
        for lengths in (np.ones(size), *longer):
            iterations = np.repeat(lengths / alone_s, count, axis=0)
            energy, time, _ = run_batches(time_s, power_w, states, iterations).T.reshape(3, m, count)
            energy, time = energy / energy[:, :1], time / time[:, :1]
            for goal in (energy, time, energy + time):
                # Values that differ by rounding alone are ties, which the first candidate wins.
                best = (goal <= goal.min(axis=1, keepdims=True) * (1 + 1e-9)).argmax(axis=1)
                wins[np.arange(m), best] += 1
        return wins


def _subset_keys(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct subsets of the rows of resident codes, shape (v, s), and where those of each row are.

    Returns:
        The codes of each distinct subset, `EMPTY` beyond its size, ascending as tuples are, shape (d, s), and of each
        row its subsets 1 to 2^s - 1 (bit i: member i) among them, shape (v, 2^s - 1).
    """
    v, size = codes.shape
    keys = np.full((v, 2**size - 1, size), EMPTY)
    for subset in range(1, 2**size):
        members = [i for i in range(size) if subset >> i & 1]
        keys[:, subset - 1, : len(members)] = codes[:, members]
    rows = keys.reshape(-1, size)
    first, inverse = distinct_rows(rows)
    order = np.lexsort(rows[first].T[::-1])
    return rows[first[order]], np.argsort(order)[inverse].reshape(v, -1)
