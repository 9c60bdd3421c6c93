"""Numbers for distinct rows of integers, rows for sets without an order, and predictions by the number of a set."""

from typing import Any

import numpy as np

from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiling import compiled

EMPTY = -1
"""Marks an entry beyond the end of a row."""
_FACTOR, _BITS = 0x9E3779B1, (1 << 31) - 1
"""Mix the entries of a row; products stay below 2 ** 63."""


def distinct_rows(table: IntArray) -> tuple[IntArray, IntArray]:
    """Return the indices of the distinct rows of a table, (d,), and which of them each row equals, (rows,)."""
    # Rows as opaque bytes sort much faster than np.unique with axis=0.
    rows = np.ascontiguousarray(table, dtype=np.int32)
    opaque = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(opaque, return_index=True, return_inverse=True)
    return first, inverse.ravel()


class RowTable:
    """Numbers for distinct rows of integers, 0, 1, 2, ... in the order in which the rows first come.

    The entries of all rows stand one behind the other, so that a wide row does not widen the others.

    Attributes:
        begin: where the entries of each row begin, and where those of the last row end, shape (at least the rows + 1,).
    """

    def __init__(self) -> None:
        self.begin, self._entries = np.zeros(512, dtype=np.int64), np.zeros(2048, dtype=np.int32)
        self._slots = np.full(1024, EMPTY)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def numbers(self, rows: IntArray) -> IntArray:
        """Return the number of each of m rows, shape (m, w) -> (m,); rows of other widths may have come before."""
        count, entries = self._count + len(rows), int(self.begin[self._count]) + rows.size
        self._entries, self.begin = _with_room(self._entries, entries), _with_room(self.begin, count + 1)
        if 2 * count > len(self._slots):
            self._slots = _slots_of(self._entries, self.begin, self._count, 1 << (2 * count).bit_length())
        numbers, self._count = _numbered(rows, self._entries, self.begin, self._slots, self._count)
        return numbers

    def since(self, first: int) -> IntArray:
        """Return the rows from a number on, `EMPTY` behind the entries of each, shape (m, w)."""
        begin = self.begin[first : self._count + 1]
        sizes = np.diff(begin)
        rows = np.full((len(sizes), int(sizes.max(initial=0))), EMPTY)
        rows[np.arange(rows.shape[1]) < sizes[:, None]] = self._entries[begin[0] : begin[-1]]
        return rows


class PredictedSets:
    """Predictions for distinct sets of residents, numbered in the order in which the sets first come.

    Attributes:
        keys: the sets by number: `heads` numbers that they share, such as a clock, then their members, the largest
            first.
        predicted: how many sets have a prediction.
    """

    def __init__(self, heads: int) -> None:
        self.keys, self.predicted, self._heads = RowTable(), 0, heads
        self._time_s, self._power_w = np.zeros(2048), np.zeros(512)

    def add(self, time_s: FloatArray, power_w: FloatArray) -> None:
        """Add the predictions of the next m sets: seconds per iteration, (m, w), as the members, and power, W, (m,)."""
        numbers = np.arange(self.predicted, self.predicted + len(power_w) + 1)
        begin = self._begin(numbers)
        self._time_s, self._power_w = _with_room(self._time_s, begin[-1]), _with_room(self._power_w, numbers[-1])
        self._time_s[begin[0] : begin[-1]] = time_s[np.arange(time_s.shape[1]) < np.diff(begin)[:, None]]
        self._power_w[numbers[:-1]] = power_w
        self.predicted = int(numbers[-1])

    def predictions(self, numbers: IntArray, order: IntArray, absent: float) -> tuple[FloatArray, FloatArray]:
        """Return seconds per iteration in the given order, `absent` elsewhere, (m, w), and power, W, of numbered sets.

        `order` is as from `sorted_sets`, shape (m, w).
        """
        return values_in_order(self._begin(numbers), order, self._time_s, absent), self._power_w[numbers]

    def _begin(self, numbers: IntArray) -> IntArray:
        begin: IntArray = self.keys.begin[numbers] - self._heads * numbers
        return begin


def _with_room(array: Any, least: int) -> Any:
    return array if len(array) >= least else lengthened(array, least)


@compiled
def lengthened(array: Any, least: int) -> Any:
    """Return a copy of an array, zeros behind, that is twice as long as `least`."""
    result = np.zeros((2 * least, *array.shape[1:]), dtype=array.dtype)
    result[: len(array)] = array
    return result


@compiled
def _numbered(rows: Any, entries: Any, begin: IntArray, slots: IntArray, count: int) -> tuple[IntArray, int]:
    numbers = np.empty(len(rows), dtype=np.int64)
    for place in range(len(rows)):
        row, width = rows[place], rows.shape[1]
        while width and row[width - 1] < 0:
            width -= 1
        slot = _code(row, 0, width) % len(slots)
        while slots[slot] >= 0 and not _equal(entries, begin[slots[slot]], begin[slots[slot] + 1], row, width):
            slot = (slot + 1) % len(slots)
        if slots[slot] < 0:
            begin[count + 1] = begin[count] + width
            entries[begin[count] : begin[count + 1]] = row[:width]
            slots[slot] = count
            count += 1
        numbers[place] = slots[slot]
    return numbers, count


@compiled
def _slots_of(entries: Any, begin: IntArray, count: int, length: int) -> IntArray:
    slots = np.full(length, EMPTY)
    for number in range(count):
        slot = _code(entries, begin[number], begin[number + 1]) % length
        while slots[slot] >= 0:
            slot = (slot + 1) % length
        slots[slot] = number
    return slots


@compiled
def _code(entries: Any, first: int, last: int) -> int:
    code = last - first
    for place in range(first, last):
        code = (code * _FACTOR + int(entries[place])) & _BITS
        code ^= code >> 15
    return code


@compiled
def _equal(entries: Any, first: int, last: int, row: Any, width: int) -> bool:
    for column in range(min(width, last - first)):
        if entries[first + column] != row[column]:
            return False
    return width == last - first


@compiled
def sorted_sets(heads: IntArray, members: IntArray) -> tuple[IntArray, IntArray]:
    """Return rows that are equal for equal sets of numbers, since the order in a set does not matter.

    There are h numbers in `heads` before each set, shape (m, h); `members` are `EMPTY` where there is none, shape (m,
    w). Behind the heads stand the members, the largest first, shape (m, h + w); with them comes the position of each of
    these in its set, shape (m, w).
    """
    (m, w), h = members.shape, heads.shape[1]
    rows, order = np.full((m, h + w), EMPTY), np.full((m, w), EMPTY)
    for row in range(m):
        rows[row, :h] = heads[row]
        size = 0
        for position in range(w):
            number, place = members[row, position], size
            if number == EMPTY:
                continue
            while place and rows[row, h + place - 1] < number:
                rows[row, h + place], order[row, place] = rows[row, h + place - 1], order[row, place - 1]
                place -= 1
            rows[row, h + place], order[row, place] = number, position
            size += 1
    return rows, order


@compiled
def values_in_order(begin: IntArray, order: IntArray, values: FloatArray, absent: float) -> FloatArray:
    """Return the values of the members of m sets at their positions, `absent` elsewhere, shape (m, w).

    `order` is as from `sorted_sets`, shape (m, w); the values of a set, in the order of its members there, begin at
    `begin`, shape (m,).
    """
    m, w = order.shape
    result = np.full((m, w), absent)
    for row in range(m):
        for place in range(w):
            if order[row, place] == EMPTY:
                break
            result[row, order[row, place]] = values[begin[row] + place]
    return result
