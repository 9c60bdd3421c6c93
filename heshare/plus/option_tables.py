"""Hash table of the options of batches for compiled code, computed when a batch is first looked up.

A local search evaluates millions of queues, and most batches of a move were met before. There are too many sets of up
to w of n tasks to list them all (sum over s of C(n, s) for each type of GPU), so the table is filled by need. The set
t_1, t_2, ... in SPT order on a type of GPU has the key

    code = ((t_1 + 1) (n + 1) + t_2 + 1) (n + 1) + ...,    key = code x types + type

which no other set of at most w tasks has: the code is a number of base n + 1 whose digits are the tasks plus 1. The
slot of a key is found by open addressing with linear probing. A slot refers to a run of rows with the three values of
each option, E_B, the sum of execution times and tau_B.

Compiled code cannot call the predictor. A set whose workloads are not predicted yet has no options for the moment and
is noted in `missing`; `with_missing` predicts all that were noted, and the search continues with the new table.

Example: the pair of tasks of the example in `heshare.plus.costs` is missing first, and has one option then.

>>> from heshare.scheduling.objectives import make_instance
>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> from heshare.world.cluster import Cluster
>>> from heshare.world.task import Task
>>> from heshare.world.workload import Workload
>>> tasks, predictor = (Task(0, Workload("resnet18", 4), 2.0), Task(1, Workload("resnet18", 4), 5.0)), ToyPredictor()
>>> costs = BatchCosts(make_instance(tasks, Cluster((toy_gpu(),)), predictor), predictor)
>>> table = option_table(costs)
>>> table.members[:2] = [0, 1]
>>> find_options(table, 0, 2, 1 * 3 + 2), int(table.counts[2])
(0, 1)
>>> table = with_missing(costs, table)
>>> table.members[:2] = [0, 1]
>>> first, count = divmod(find_options(table, 0, 2, 1 * 3 + 2), MAX_OPTIONS)
>>> np.round(table.values[first : first + count], 6).tolist()
[[770.0, 11.0, 7.0]]

Source: the options themselves are those of `heshare.plus.batch_execution`.
"""

from typing import NamedTuple

import numpy as np

from heshare.arrays import FloatArray, IntArray
from heshare.compiling import allocation_free, inlined
from heshare.plus.batch_execution import batch_options
from heshare.plus.costs import BatchCosts
from heshare.plus.multisets import multiset_number
from heshare.plus.rates import UNKNOWN
from heshare.scheduling.batch_model import EMPTY

MAX_OPTIONS = 1 << 20
"""A place is this times its first option plus the number of its options, so that one number holds both."""

_MAX_SLOTS = 1 << 20
_OPTIONS_PER_SLOT = 6
_MAX_MISSING = 1 << 16
_PRIME = 2147483647
_FREE = -1


class OptionTable(NamedTuple):
    """The options of sets of tasks on all types of GPU, as arrays for compiled code.

    Numba compiles a named tuple of arrays without boxing, which a class would need.

    Attributes:
        workload: workload of each task, shape (n,).
        iterations: iterations of each task, shape (n,).
        rank: SPT position of each task on each type, shape (kinds, n).
        needs_mib: memory of each task, MiB, shape (n,).
        memory_mib: memory of each type, MiB, shape (kinds,).
        clients: MPS clients of each type, shape (kinds,).
        time_s: times of states, s, shape (states, c, w).
        power_w: powers of states, W, shape (states, c).
        variant_begin: first variant of each multiset on each type, shape (kinds, multisets).
        variant_count: the number of variants of each multiset, shape (kinds, multisets).
        states: states of each variant, shape (v, 2**w).
        multiset_begin: from `multiset_begins`.
        coefficients: from `binomials`.
        slots: the key of the set in each slot, -1 for a free one, and its place, shape (h, 2).
        values: E_B in J, sum of execution times in s, tau_B in s of each option, shape (o, 3).
        counts: slots used, options used, sets missing, shape (3,).
        missing: type and members of the sets that are not predicted, shape (a, 1 + w).
        members: in: the set to look up, shape (w,).
        set_values: scratch for the options of a set, shape (most, 3).
        sources: scratch for their variants and clocks, shape (most, 2).
        by_workload: scratch for the order of members, shape (w,).
        multiset: scratch for the workloads of members, shape (w,).
        scratch: scratch for the work of members, shape (3, w).
    """

    workload: IntArray
    iterations: FloatArray
    rank: IntArray
    needs_mib: FloatArray
    memory_mib: FloatArray
    clients: IntArray
    time_s: FloatArray
    power_w: FloatArray
    variant_begin: IntArray
    variant_count: IntArray
    states: IntArray
    multiset_begin: IntArray
    coefficients: IntArray
    slots: IntArray
    values: FloatArray
    counts: IntArray
    missing: IntArray
    members: IntArray
    set_values: FloatArray
    sources: IntArray
    by_workload: IntArray
    multiset: IntArray
    scratch: FloatArray


def option_table(costs: BatchCosts) -> OptionTable:
    """Return an empty table for a task set, with the predictions that there are now."""
    tables = [rates.tables for rates in costs.rates]
    width, n = costs.choices.width, costs.world.n
    clocks = max(len(table.clocks_mhz) for table in tables)
    first_state = np.cumsum([0, *(len(table.power_w) for table in tables)]).tolist()
    first_variant = np.cumsum([0, *(len(table.states) for table in tables)]).tolist()
    sets = sum(float(n) ** size / np.prod(np.arange(1.0, size + 1)) for size in range(1, width + 1)) * len(tables)
    slots = 1 << int(np.ceil(np.log2(min(_MAX_SLOTS, max(64.0, 2 * sets)))))
    most = max(int(table.variant_count.max(initial=1)) for table in tables) * clocks
    return OptionTable(
        workload=costs.workload,
        iterations=costs.iterations,
        rank=costs.rank,
        needs_mib=np.asarray(costs.world.needs_mib, dtype=np.float64),
        memory_mib=costs.memory_mib,
        clients=costs.clients,
        time_s=np.concatenate([_padded(table.time_s, clocks) for table in tables]),
        power_w=np.concatenate([_padded(table.power_w, clocks) for table in tables]),
        variant_begin=np.stack([_shifted(t.variant_begin, by) for t, by in zip(tables, first_variant, strict=False)]),
        variant_count=np.stack([table.variant_count for table in tables]),
        states=np.concatenate([_shifted(table.states, by) for table, by in zip(tables, first_state, strict=False)]),
        multiset_begin=costs.multiset_begin,
        coefficients=costs.coefficients,
        slots=np.full((slots, 2), _FREE),
        values=np.empty((max(_OPTIONS_PER_SLOT * slots, 2 * most), 3)),
        counts=np.zeros(3, dtype=np.int64),
        missing=np.full((_MAX_MISSING, 1 + width), EMPTY),
        members=np.empty(width, dtype=np.int64),
        set_values=np.empty((most, 3)),
        sources=np.empty((most, 2), dtype=np.int64),
        by_workload=np.empty(width, dtype=np.int64),
        multiset=np.empty(width, dtype=np.int64),
        scratch=np.empty((3, width)),
    )


def _padded(table: FloatArray, clocks: int) -> FloatArray:
    """Repeat the top clock of a shorter grid: a repeated option is dropped as one that is not better."""
    return np.concatenate((table, np.repeat(table[:, -1:], clocks - table.shape[1], axis=1)), axis=1)


def _shifted(table: IntArray, by: int) -> IntArray:
    return np.where(table == UNKNOWN, UNKNOWN, table + by)


def with_missing(costs: BatchCosts, table: OptionTable) -> OptionTable:
    """Predict the sets that a search found missing; return a new table, or `table` itself if none was missing."""
    count = int(table.counts[2])
    if not count:
        return table
    missing = table.missing[:count]
    for kind in range(len(costs.rates)):
        costs.fill(kind, missing[missing[:, 0] == kind, 1:])
    return option_table(costs)


@inlined
def find_options(table: OptionTable, kind: int, size: int, code: int) -> int:
    """Return the place of the options of the set in `table.members`: `MAX_OPTIONS` times the first, plus their number.

    Args:
        table: the table; the options are computed and stored if they are not in it.
        kind: the type of GPU.
        size: members of the set.
        code: the members plus 1 as digits of a number of base n + 1.
    """
    key = code * len(table.clients) + kind
    slot = key % _PRIME % len(table.slots)
    while table.slots[slot, 0] != key and table.slots[slot, 0] != _FREE:
        slot = (slot + 1) % len(table.slots)
    place: int = table.slots[slot, 1] if table.slots[slot, 0] == key else _store_options(table, kind, size, key, slot)
    return place


@allocation_free
def _store_options(table: OptionTable, kind: int, size: int, key: int, slot: int) -> int:
    """Compute the options of the set in `table.members` and store them in a free slot; return their place."""
    # A table that is half full is emptied: probing stays short, and no result depends on what is stored.
    if 2 * table.counts[0] > len(table.slots) or table.counts[1] + len(table.set_values) > len(table.values):
        for i in range(len(table.slots)):
            table.slots[i, 0] = _FREE
        table.counts[0] = table.counts[1] = 0
    count = _compute_options(table, kind, size)
    place: int = table.counts[1] * MAX_OPTIONS + count
    table.slots[slot, 0], table.slots[slot, 1] = key, place
    for i in range(count):
        for column in range(3):
            table.values[table.counts[1] + i, column] = table.set_values[i, column]
    table.counts[0] += 1
    table.counts[1] += count
    return place


@allocation_free
def _compute_options(table: OptionTable, kind: int, size: int) -> int:
    """Fill `table.set_values` with the options of the set; none if it does not fit or is not predicted yet."""
    needs_mib = 0.0
    for i in range(size):
        needs_mib += table.needs_mib[table.members[i]]
    if needs_mib > table.memory_mib[kind] or size > table.clients[kind]:
        return 0
    for i in range(size):
        place = i
        while place > 0 and table.multiset[place - 1] > table.workload[table.members[i]]:
            table.multiset[place] = table.multiset[place - 1]
            place -= 1
        table.multiset[place] = table.workload[table.members[i]]
    number = multiset_number(table.multiset, size, table.multiset_begin, table.coefficients)
    if table.variant_begin[kind, number] == UNKNOWN:
        # Beyond the room of `missing`, a set is noted when the search meets it again with the next table.
        if table.counts[2] < len(table.missing):
            table.missing[table.counts[2], 0] = kind
            for i in range(table.members.shape[0]):
                table.missing[table.counts[2], 1 + i] = table.members[i] if i < size else EMPTY
            table.counts[2] += 1
        return 0
    count: int = batch_options(
        table.members, size, table.workload, table.iterations, table.time_s, table.power_w, table.variant_begin[kind],
        table.variant_count[kind], table.states, table.multiset_begin, table.coefficients, table.set_values,
        table.sources, table.by_workload, table.multiset, table.scratch,
    )  # fmt: skip
    return count
