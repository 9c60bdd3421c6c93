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

Example: the pair of tasks of the example in `heshare.lab.plus.costs` is missing first, and has one option then.

>>> from heshare.testing.toy import toy_instance
>>> costs = BatchCosts(*toy_instance([2.0, 5.0]))
>>> table = option_table(costs)
>>> table.members[:2] = [0, 1]
>>> find_options(table, 0, 2, 1 * 3 + 2), int(table.counts[2])
(0, 1)
>>> table = with_missing(costs, table)
>>> table.members[:2] = [0, 1]
>>> first, count = divmod(find_options(table, 0, 2, 1 * 3 + 2), MAX_OPTIONS)
>>> np.round(table.values[first : first + count], 6).tolist()
[[770.0, 11.0, 7.0]]

Source: open addressing: Peterson 1957, doi:10.1147/rd.12.0130. The options are those of
`heshare.lab.plus.batch_execution`.
"""

from typing import NamedTuple

import numpy as np

from heshare.lab.plus.batch_execution import UNKNOWN, RateTables, Scratch, batch_options, scratch_for
from heshare.lab.plus.costs import BatchCosts
from heshare.scheduling.batch_model import EMPTY
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiling import allocation_free, inlined

MAX_OPTIONS = 1 << 20
"""A place is this times its first option plus the number of its options, so that one number holds both."""

_MAX_SLOTS = 1 << 20
_OPTIONS_PER_SLOT = 6
_MAX_MISSING = 1 << 16
_PRIME = 2147483647
_FREE = -1


class OptionTable(NamedTuple):
    """The options of sets of tasks on all types of GPU, as arrays for compiled code.

    Attributes:
        rates: times and powers of all types of GPU, one type after the other.
        scratch: where the options of a set are computed.
        workload: workload of each task, shape (n,).
        iterations: iterations of each task, shape (n,).
        rank: SPT position of each task on each type, shape (kinds, n).
        needs_mib: memory of each task, MiB, shape (n,).
        memory_mib: memory of each type, MiB, shape (kinds,).
        clients: MPS clients of each type, shape (kinds,).
        slots: the key of the set in each slot, -1 for a free one, and its place, shape (h, 2).
        values: E_B in J, sum of execution times in s, tau_B in s of each option, shape (o, 3).
        counts: slots used, options used, sets missing, shape (3,).
        missing: type and members of the sets that are not predicted, shape (a, 1 + w).
        members: in: the set to look up, shape (w,).
    """

    rates: RateTables
    scratch: Scratch
    workload: IntArray
    iterations: FloatArray
    rank: IntArray
    needs_mib: FloatArray
    memory_mib: FloatArray
    clients: IntArray
    slots: IntArray
    values: FloatArray
    counts: IntArray
    missing: IntArray
    members: IntArray


def option_table(costs: BatchCosts, most_slots: int = _MAX_SLOTS) -> OptionTable:
    """Return an empty table of at most so many slots for a task set, with the predictions that there are now."""
    rates = _joined([rates.tables for rates in costs.rates])
    width, n, kinds = costs.choices.width, costs.world.n, len(costs.rates)
    sets = sum(float(n) ** size / np.prod(np.arange(1.0, size + 1)) for size in range(1, width + 1)) * kinds
    slots = 1 << int(np.ceil(np.log2(min(most_slots, max(64.0, 2 * sets)))))
    scratch = scratch_for(rates, width)
    return OptionTable(
        rates=rates,
        scratch=scratch,
        workload=costs.workload,
        iterations=costs.iterations,
        rank=costs.rank,
        needs_mib=np.asarray(costs.world.needs_mib, dtype=np.float64),
        memory_mib=costs.memory_mib,
        clients=costs.clients,
        slots=np.full((slots, 2), _FREE),
        values=np.empty((max(_OPTIONS_PER_SLOT * slots, 2 * len(scratch.values)), 3)),
        counts=np.zeros(3, dtype=np.int64),
        missing=np.full((_MAX_MISSING, 1 + width), EMPTY),
        members=np.empty(width, dtype=np.int64),
    )


def _joined(tables: list[RateTables]) -> RateTables:
    clocks = max(table.power_w.shape[1] for table in tables)
    first_state = np.cumsum([0, *(len(table.power_w) for table in tables)]).tolist()
    first_variant = np.cumsum([0, *(len(table.states) for table in tables)]).tolist()
    return RateTables(
        np.concatenate([_padded(table.time_s, clocks) for table in tables]),
        np.concatenate([_padded(table.power_w, clocks) for table in tables]),
        np.concatenate([_shifted(t.variant_begin, by) for t, by in zip(tables, first_variant, strict=False)]),
        np.concatenate([table.variant_count for table in tables]),
        np.concatenate([_shifted(table.states, by) for table, by in zip(tables, first_state, strict=False)]),
        tables[0].terms,
    )


def _padded(table: FloatArray, clocks: int) -> FloatArray:
    """Repeat the top clock of a shorter grid: a repeated option is dropped as one that is not better."""
    return np.concatenate((table, np.repeat(table[:, -1:], clocks - table.shape[1], axis=1)), axis=1)


def _shifted(table: IntArray, by: int) -> IntArray:
    return np.where(table == UNKNOWN, UNKNOWN, table + by)


def with_missing(costs: BatchCosts, table: OptionTable) -> OptionTable:
    """Predict the sets that a search found missing; return the table with them, `table` itself if none was missing.

    The options of all other sets stay in it.
    """
    count = int(table.counts[2])
    if not count:
        return table
    missing = table.missing[:count].copy()
    for kind in range(len(costs.rates)):
        costs.fill(kind, missing[missing[:, 0] == kind, 1:])
    rates = _joined([rates.tables for rates in costs.rates])
    scratch = scratch_for(rates, len(table.members))
    # Beyond the room of `missing` it is not known which sets have to be computed again: all have to be.
    if count == len(table.missing) or 2 * len(scratch.values) > len(table.values):
        return option_table(costs, len(table.slots))
    table.counts[2] = 0
    result = table._replace(rates=rates, scratch=scratch)
    _recompute(result, missing)
    return result


@allocation_free
def _recompute(table: OptionTable, missing: IntArray) -> None:
    """Compute the options of sets again whose slots have none, given by type and members, shape (m, 1 + w)."""
    for row in range(len(missing)):
        size, code = 0, 0
        while size < missing.shape[1] - 1 and missing[row, 1 + size] != EMPTY:
            table.members[size] = missing[row, 1 + size]
            code = code * (len(table.workload) + 1) + table.members[size] + 1
            size += 1
        kind = missing[row, 0]
        key = code * len(table.clients) + kind
        slot = key % _PRIME & (len(table.slots) - 1)
        while table.slots[slot, 0] != key and table.slots[slot, 0] != _FREE:
            slot = (slot + 1) % len(table.slots)
        # A table that was emptied meanwhile has no such slot; the set is computed when it is met again.
        if table.slots[slot, 0] == key:
            _store_options(table, kind, size, key, slot)
            table.counts[0] -= 1  # its slot was counted before


@inlined
def find_options(table: OptionTable, kind: int, size: int, code: int) -> int:
    """Return the place of the options of the set in `table.members`: `MAX_OPTIONS` times the first, plus their number.

    Options that are not in the table are computed and stored. `size` is the number of members, `code` the members plus
    1 as digits of a number of base n + 1.
    """
    key = code * len(table.clients) + kind
    slot = key % _PRIME & (len(table.slots) - 1)
    while table.slots[slot, 0] != key and table.slots[slot, 0] != _FREE:
        slot = (slot + 1) % len(table.slots)
    place: int = table.slots[slot, 1] if table.slots[slot, 0] == key else _store_options(table, kind, size, key, slot)
    return place


@allocation_free
def _store_options(table: OptionTable, kind: int, size: int, key: int, slot: int) -> int:
    """Compute the options of the set in `table.members` and store them in a free slot; return their place."""
    # A table that is half full is emptied: probing stays short, and no result depends on what is stored.
    if 2 * table.counts[0] > len(table.slots) or table.counts[1] + len(table.scratch.values) > len(table.values):
        for i in range(len(table.slots)):
            table.slots[i, 0] = _FREE
        table.counts[0] = table.counts[1] = 0
    count = _compute_options(table, kind, size)
    place: int = table.counts[1] * MAX_OPTIONS + count
    table.slots[slot, 0], table.slots[slot, 1] = key, place
    for i in range(count):
        for column in range(3):
            table.values[table.counts[1] + i, column] = table.scratch.values[i, column]
    table.counts[0] += 1
    table.counts[1] += count
    return place


@allocation_free
def _compute_options(table: OptionTable, kind: int, size: int) -> int:
    """Fill `table.scratch` with the options of the set, none if it does not fit or is not predicted; count them."""
    needs_mib = 0.0
    for i in range(size):
        needs_mib += table.needs_mib[table.members[i]]
    if needs_mib > table.memory_mib[kind] or size > table.clients[kind]:
        return 0
    first = kind * (len(table.rates.variant_begin) // len(table.clients))
    count: int = batch_options(table.rates, first, table.members, size, table.workload, table.iterations, table.scratch)
    if count != UNKNOWN:
        return count
    # Beyond the room of `missing`, a set is noted when the search meets it again with the next table.
    if table.counts[2] < len(table.missing):
        table.missing[table.counts[2], 0] = kind
        for i in range(table.members.shape[0]):
            table.missing[table.counts[2], 1 + i] = table.members[i] if i < size else EMPTY
        table.counts[2] += 1
    return 0
