"""What the predictor says of sets of residents on one type of GPU, as dense tables: the raw material of batch costs.

A *state* is residents (workload and MPS percentage) that run together; it has times and a power at every clock. A
*variant* is a way to run a multiset of workloads: its members' percentages, with the states that it passes through
as members end. Both are asked of the predictor in bulk, once, and then only looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import comb
from typing import Any

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.departing import FloatArray, IntArray, run_states
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one type of GPU, for compiled code.

    Attributes:
        time_s: seconds per iteration of each resident of each state at each clock, s, shape (states, c, w).
        power_w: the GPU's power, W, shape (states, c).
        clocks_mhz: the clocks, MHz, shape (c,).
        begin: first variant of each multiset by `multiset`, `UNKNOWN` before it was asked for, shape (sets,).
        count: how many variants it has, shape (sets,).
        states: the state of every subset of members of each variant (bit i: member i is there), shape (v, 2**w).
        mps_pct: the members' MPS percentages, shape (v, w).
    """

    time_s: FloatArray
    power_w: FloatArray
    clocks_mhz: IntArray
    begin: IntArray
    count: IntArray
    states: IntArray
    mps_pct: IntArray


def binomials(workloads: int, width: int) -> IntArray:
    """Binomial coefficients with which `multiset` numbers multisets, shape (workloads + width, width + 1)."""
    return np.array([[comb(a, b) for b in range(width + 1)] for a in range(workloads + width)], dtype=np.int64)


def sizes(workloads: int, width: int) -> IntArray:
    """Where the multisets of each size begin among all of up to `width` members, shape (width + 2,)."""
    counts = [0, 0, *(comb(workloads + size - 1, size) for size in range(1, width + 1))]
    return np.cumsum(np.array(counts, dtype=np.int64))


class Rates:
    """The tables of one type of GPU; what is missing is asked of the predictor when it is needed.

    Args:
        gpu: the type of GPU.
        workloads: the workloads of the task set, ascending.
        predictor: what is believed.
        width: the most members of a set.
        clocks_mhz: clocks, MHz, ascending, shape (c,).
        mps_pcts: percentages of sets of two; larger sets get `coarse` ones.
        coarse: percentages tried in larger sets.
        variants: the most variants of a set, one of them 100 % for all.
        limited: the most members of a set with more than that one.
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
        coarse: tuple[int, ...],
        variants: int,
        limited: int,
    ) -> None:
        self.gpu, self.width = gpu, width
        self._workloads, self._predictor = workloads, predictor
        self._pcts, self._coarse, self._most, self._limited = mps_pcts, coarse, variants, limited
        self._clocks_mhz = clocks_mhz
        self._sizes = sizes(len(workloads), width)
        self._binomials = binomials(len(workloads), width)
        self._known: dict[tuple[int, ...], int] = {}
        self._residents: dict[int, Resident] = {}
        # What a predictor's answers lead to is kept with the predictor: other task sets have the same workloads.
        self._chosen: dict[object, Any] = getattr(predictor, "notes", {})
        total, clocks = int(self._sizes[-1]), len(clocks_mhz)
        self.tables = Tables(
            np.ones((0, clocks, width)),
            np.zeros((0, clocks)),
            clocks_mhz,
            np.full(total, UNKNOWN),
            np.zeros(total, dtype=np.int64),
            np.zeros((0, 2**width), dtype=np.int64),
            np.zeros((0, width), dtype=np.int64),
        )

    def warm(self, size: int) -> None:
        """Fill the tables for every multiset of up to `size` workloads."""
        for members in range(1, size + 1):
            every = combinations_with_replacement(range(len(self._workloads)), members)
            self.ensure(np.array(list(every), dtype=np.int64))

    def number(self, sets: IntArray) -> IntArray:
        """The number of each multiset of workload indices, each row ascending, shape (m, s) -> (m,)."""
        size = sets.shape[1]
        at = self._sizes[size] + self._binomials[sets + np.arange(size), np.arange(1, size + 1)].sum(axis=1)
        return np.asarray(at, dtype=np.int64)

    def ensure(self, sets: IntArray) -> None:
        """Fill the tables for multisets of one size, given as ascending workload indices, shape (m, s)."""
        if not len(sets):
            return
        sets = np.unique(sets[self.tables.begin[self.number(sets)] == UNKNOWN], axis=0)
        if not len(sets):
            return
        chosen = self._variants(sets)
        counts = np.array([len(one) for one in chosen])
        pct = np.array([vector for one in chosen for vector in one], dtype=np.int64)
        codes = np.repeat(sets, counts, axis=0) * 128 + pct
        states = self._states(codes)
        old = self.tables
        numbers = self.number(sets)
        begin, count = old.begin.copy(), old.count.copy()
        begin[numbers] = len(old.states) + np.cumsum(counts) - counts
        count[numbers] = counts
        padded = np.pad(pct, ((0, 0), (0, self.width - pct.shape[1])))
        self.tables = Tables(
            self.tables.time_s,
            self.tables.power_w,
            old.clocks_mhz,
            begin,
            count,
            np.concatenate((old.states, states)),
            np.concatenate((old.mps_pct, padded)),
        )

    def _states(self, codes: IntArray) -> IntArray:
        """State of every subset of each row of resident codes, shape (v, s) -> (v, 2**w); new ones are asked for."""
        size = codes.shape[1]
        members = [[i for i in range(size) if mask >> i & 1] for mask in range(2**size)]
        keys = [[tuple(row[i] for i in some) for some in members] for row in codes.tolist()]
        missing = sorted({key for row in keys for key in row if key and key not in self._known})
        if missing:
            time_s, power_w = self._ask(missing, self._clocks_mhz)
            first = len(self._known)
            self._known.update((key, first + index) for index, key in enumerate(missing))
            old = self.tables
            self.tables = Tables(
                np.concatenate((old.time_s, time_s)),
                np.concatenate((old.power_w, power_w)),
                old.clocks_mhz,
                old.begin,
                old.count,
                old.states,
                old.mps_pct,
            )
        result = np.full((len(codes), 2**self.width), UNKNOWN)
        result[:, 1 : 2**size] = [[self._known[key] for key in row[1:]] for row in keys]
        return result

    def _ask(self, keys: list[tuple[int, ...]], clocks_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        """Times, shape (m, c, w), 1 where there is nobody, and powers, shape (m, c), of sets of resident codes."""
        for code in {code for key in keys for code in key}.difference(self._residents):
            self._residents[code] = Resident(self._workloads[code // 128], code % 128)
        sets = [tuple([self._residents[code] for code in key]) for key in keys]
        count = len(clocks_mhz)
        clocks: list[int | None] = clocks_mhz.tolist() * len(sets)
        answer = self._predictor.co_run([one for one in sets for _ in range(count)], self.gpu, clocks)
        time_s = np.ones((len(sets), count, self.width))
        widest = answer.time_s.shape[1]
        time_s[:, :, :widest] = np.nan_to_num(answer.time_s, nan=1.0).reshape(len(sets), count, widest)
        return time_s, answer.power_w.reshape(len(sets), count)

    def _variants(self, sets: IntArray) -> list[list[tuple[int, ...]]]:
        """The percentage vectors that each multiset keeps, from 100 % for all on."""
        size = sets.shape[1]
        full = (100,) * size
        if size == 1 or size > self._limited or self._most == 1:
            return [[full]] * len(sets)
        shares = self._pcts if size == 2 else self._coarse
        tried = [full, *(one for one in product(reversed(shares), repeat=size) if one != full)]
        named = [tuple([self._workloads[one] for one in row]) for row in sets.tolist()]
        chosen = self._chosen.setdefault((self.gpu, shares, self._most), {})
        new = [at for at, name in enumerate(named) if name not in chosen]
        if new:
            votes = self._votes(sets[new], np.array(tried))
            order = np.argsort(-votes, axis=1, kind="stable")
            best = np.where(np.take_along_axis(votes, order, axis=1) > 0, order, 0)[:, : self._most - 1]
            for at, row in zip(new, np.sort(best, axis=1).tolist(), strict=True):
                chosen[named[at]] = [tried[one] for one in sorted({0, *row})]
        return [chosen[name] for name in named]

    def _votes(self, sets: IntArray, tried: IntArray) -> IntArray:
        """How often each tried vector serves a multiset best, over lengths of its tasks and goals, shape (m, t).

        Tasks of equal length and each one in turn twice and four times as long; least energy, least sum of times,
        and half of each. At the top clock.
        """
        m, size = sets.shape
        count = len(tried)
        codes = (sets[:, None] * 128 + tried[None]).reshape(-1, size)
        members = [[i for i in range(size) if mask >> i & 1] for mask in range(1, 2**size)]
        keys = [[tuple(row[i] for i in some) for some in members] for row in codes.tolist()]
        time_s, power_w, states = self._at_top(keys)
        alone = time_s[states[::count][:, [2**i for i in range(size)]], 0]
        votes = np.zeros((m, count), dtype=np.int64)
        for lengths in _lengths(size):
            iterations = np.repeat(lengths / alone, count, axis=0)
            energy_j, spent_s, _ = run_states(time_s, power_w, states, iterations)
            energy, spent = energy_j.reshape(m, count), spent_s.reshape(m, count)
            energy, spent = energy / energy[:, :1], spent / spent[:, :1]
            for goal in (energy, spent, energy + spent):
                best = (goal <= goal.min(axis=1, keepdims=True) * (1 + 1e-9)).argmax(axis=1)
                votes[np.arange(m), best] += 1
        return votes

    def _at_top(self, keys: list[list[tuple[int, ...]]]) -> tuple[FloatArray, FloatArray, IntArray]:
        """Times (m, w) and powers (m,) at the top clock of the states, and each row's states, shape (rows, 2**s)."""
        distinct = sorted({key for row in keys for key in row})
        time_s, power_w = self._ask(distinct, self._clocks_mhz[-1:])
        at = {key: index for index, key in enumerate(distinct)}
        return time_s[:, 0], power_w[:, 0], np.array([[UNKNOWN, *(at[key] for key in row)] for row in keys])


def _lengths(size: int) -> FloatArray:
    """Relative lengths of a set's tasks with which its percentages are tried, shape (l, size)."""
    longer = [1.0 + (times - 1) * np.eye(size)[i] for times in (2.0, 4.0) for i in range(size)]
    return np.array([np.ones(size), *longer])
