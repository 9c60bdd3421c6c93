"""Menus of sets of tasks at hand for compiled code: worked out when first met, then remembered in a hash table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heshare.scheduling.costs import BatchCosts
from heshare.scheduling.departing import NOBODY, FloatArray, IntArray, bare, inlined, menu_of, number_of
from heshare.scheduling.rates import UNKNOWN

_LARGEST = 1 << 20
_MENU = 6
_ASKED = 1 << 16
MOST = 1 << 20
_PRIME = 2147483647


class Menus(NamedTuple):
    """Menus of sets, worked out when first met and kept in a hash table; the tables of all types of GPU in one.

    Attributes:
        workload: workload of each task, shape (n,).
        iterations: iterations of each task, shape (n,).
        rank: SPT position of each task on each type, shape (kinds, n).
        needs_mib: memory of each task, shape (n,).
        memory_mib: memory of each type, shape (kinds,).
        clients: MPS clients of each type, shape (kinds,).
        time_s: times of states, s, shape (states, c, w).
        power_w: powers of states, W, shape (states, c).
        begin: first variant of each multiset on each type, shape (kinds, sets).
        variants: how many variants each multiset has, shape (kinds, sets).
        states: states of each variant, shape (v, 2**w).
        sizes: where the multisets of each size begin.
        binomials: for numbering.
        table: the key of the set in each slot, -1 for none, and where its menu is, shape (h, 2); see `find`.
        value: E_B in J, sum of times in s, tau_B in s of options, shape (o, 3).
        used: slots used, options used, sets missing, shape (3,).
        missing: type and members of sets whose tables have to be filled, shape (a, 1 + w).
        one: scratch for a menu, shape (most, 3).
        which: scratch for a menu, shape (most, 2).
        perm: scratch for a menu, shape (w,).
        some: scratch for a set, shape (w,).
        alike: scratch for its workloads, shape (w,).
        work: scratch for their work, shape (3, w).
    """

    workload: IntArray
    iterations: FloatArray
    rank: IntArray
    needs_mib: FloatArray
    memory_mib: FloatArray
    clients: IntArray
    time_s: FloatArray
    power_w: FloatArray
    begin: IntArray
    variants: IntArray
    states: IntArray
    sizes: IntArray
    binomials: IntArray
    table: IntArray
    value: FloatArray
    used: IntArray
    missing: IntArray
    one: FloatArray
    which: IntArray
    perm: IntArray
    some: IntArray
    alike: IntArray
    work: FloatArray


def menus(costs: BatchCosts) -> Menus:
    """The menus of a task set, as far as its tables are filled now."""
    tables = [rates.tables for rates in costs.rates]
    width, n = costs.freedom.width, costs.world.n
    clocks = max(len(table.clocks_mhz) for table in tables)
    offset = np.cumsum([0, *(len(table.power_w) for table in tables)])
    variants = np.cumsum([0, *(len(table.states) for table in tables)])
    sets = sum(float(n) ** size / np.prod(np.arange(1.0, size + 1)) for size in range(1, width + 1)) * len(tables)
    slots = 1 << int(np.ceil(np.log2(min(_LARGEST, max(64.0, 2 * sets)))))
    most = max(int(table.count.max(initial=1)) for table in tables) * clocks
    return Menus(
        costs.workload,
        costs.iterations,
        costs.rank,
        np.asarray(costs.world.needs_mib, dtype=np.float64),
        costs.memory_mib,
        costs.clients,
        np.concatenate([_padded(table.time_s, clocks) for table in tables]),
        np.concatenate([_padded(table.power_w, clocks) for table in tables]),
        np.stack([_shifted(one.begin, int(by)) for one, by in zip(tables, variants, strict=False)]),
        np.stack([table.count for table in tables]),
        np.concatenate([_shifted(one.states, int(by)) for one, by in zip(tables, offset, strict=False)]),
        costs.sizes,
        costs.binomials,
        np.full((slots, 2), NOBODY),
        np.empty((max(_MENU * slots, 2 * most), 3)),
        np.zeros(3, dtype=np.int64),
        np.full((_ASKED, 1 + width), NOBODY),
        np.empty((most, 3)),
        np.empty((most, 2), dtype=np.int64),
        np.empty(width, dtype=np.int64),
        np.empty(width, dtype=np.int64),
        np.empty(width, dtype=np.int64),
        np.empty((3, width)),
    )  # fmt: skip


def _padded(table: FloatArray, clocks: int) -> FloatArray:
    """Repeat the top clock of a shorter grid: an option twice is an option once."""
    return np.concatenate((table, np.repeat(table[:, -1:], clocks - table.shape[1], axis=1)), axis=1)


def _shifted(table: IntArray, by: int) -> IntArray:
    return np.where(table == UNKNOWN, UNKNOWN, table + by)


def refill(costs: BatchCosts, old: Menus) -> Menus:
    """Ask for what a search found missing; returns menus with it, `old` itself if nothing was."""
    count = int(old.used[2])
    if not count:
        return old
    missing = old.missing[:count]
    for kind in range(len(costs.rates)):
        costs.ensure(kind, missing[missing[:, 0] == kind, 1:])
    return menus(costs)


@inlined
def find(m: Menus, kind: int, size: int, code: int) -> int:
    """Where the menu of the set in `m.some` is: `MOST` times its first option, plus how many it has.

    Args:
        m: the menus.
        kind: the type of GPU.
        size: members of the set.
        code: the members as digits of a number, each one more than the task's index, of base n + 1.
    """
    key = code * len(m.clients) + kind
    slot = key % _PRIME % len(m.table)
    while m.table[slot, 0] != key and m.table[slot, 0] != NOBODY:
        slot = (slot + 1) % len(m.table)
    place: int = m.table[slot, 1] if m.table[slot, 0] == key else _enter(m, kind, size, key, slot)
    return place


@bare
def _enter(m: Menus, kind: int, size: int, key: int, slot: int) -> int:
    """Work the menu of the set in `m.some` out and put it into a free slot; a full table is emptied first."""
    if 2 * m.used[0] > len(m.table) or m.used[1] + len(m.one) > len(m.value):
        for i in range(len(m.table)):
            m.table[i, 0] = NOBODY
        m.used[0] = m.used[1] = 0
    kept = _menu(m, kind, size)
    place: int = m.used[1] * MOST + kept
    m.table[slot, 0], m.table[slot, 1] = key, place
    for i in range(kept):
        for column in range(3):
            m.value[m.used[1] + i, column] = m.one[i, column]
    m.used[0] += 1
    m.used[1] += kept
    return place


@bare
def _menu(m: Menus, kind: int, size: int) -> int:
    """Fill `m.one` with the menu of the set in `m.some`; none if it does not fit, or is not in the tables yet."""
    needs_mib = 0.0
    for i in range(size):
        needs_mib += m.needs_mib[m.some[i]]
    if needs_mib > m.memory_mib[kind] or size > m.clients[kind]:
        return 0
    for i in range(size):
        at = i
        while at > 0 and m.alike[at - 1] > m.workload[m.some[i]]:
            m.alike[at] = m.alike[at - 1]
            at -= 1
        m.alike[at] = m.workload[m.some[i]]
    if m.begin[kind, number_of(m.alike, size, m.sizes, m.binomials)] == UNKNOWN:
        if m.used[2] < len(m.missing):
            m.missing[m.used[2], 0] = kind
            for i in range(m.some.shape[0]):
                m.missing[m.used[2], 1 + i] = m.some[i] if i < size else NOBODY
            m.used[2] += 1
        return 0
    kept: int = menu_of(
        m.some, size, m.workload, m.iterations, m.time_s, m.power_w, m.begin[kind], m.variants[kind], m.states,
        m.sizes, m.binomials, m.one, m.which, m.perm, m.alike, m.work,
    )  # fmt: skip
    return kept
