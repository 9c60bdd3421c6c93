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

    Attributes:
        rows: the rows by number, `EMPTY` behind the entries of each; those from `len(table)` on are not used.
    """

    def __init__(self) -> None:
        self.rows = np.full((512, 4), EMPTY, dtype=np.int32)
        self._slots = np.full(1024, EMPTY)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def numbers(self, rows: IntArray) -> IntArray:
        """Return the number of each of m rows, shape (m, w) -> (m,); rows of other widths may have come before."""
        self._reserve(self._count + len(rows), rows.shape[1])
        numbers, self._count = _numbered(rows, self.rows, self._slots, self._count)
        return numbers

    def _reserve(self, count: int, width: int) -> None:
        height, before = self.rows.shape
        if count > height or width > before:
            larger = np.full((max(height, 2 * count if count > height else 0), max(before, width)), EMPTY, np.int32)
            larger[: self._count, :before] = self.rows[: self._count]
            self.rows = larger
        if 2 * count > len(self._slots):
            self._slots = np.full(1 << (4 * count).bit_length(), EMPTY)
            _numbered(self.rows[: self._count], self.rows, self._slots, 0)


class PredictedSets:
    """Predictions for distinct sets of residents, numbered in the order in which the sets first come.

    Attributes:
        keys: the sets by number: what they share, such as a clock, then their members, the largest first.
        time_s: seconds per iteration of each member, in the order of the members, shape (at least the sets, w).
        power_w: power, W, shape (at least the sets,).
        predicted: how many sets have a prediction.
    """

    def __init__(self) -> None:
        self.keys, self.predicted = RowTable(), 0
        self.time_s, self.power_w = np.ones((512, 2)), np.zeros(512)

    def add(self, time_s: FloatArray, power_w: FloatArray) -> None:
        """Add the predictions of the next m sets, shapes (m, w) and (m,)."""
        first, last = self.predicted, self.predicted + len(power_w)
        (height, width), wide = self.time_s.shape, time_s.shape[1]
        if last > height or wide > width:
            more = max(last, 2 * height) - height if last > height else 0
            self.time_s = np.pad(self.time_s, ((0, more), (0, max(wide - width, 0))))
            self.power_w = np.pad(self.power_w, (0, more))
        self.time_s[first:last, :wide], self.power_w[first:last] = time_s, power_w
        self.predicted = last


@compiled
def _numbered(rows: Any, known: Any, slots: IntArray, count: int) -> tuple[IntArray, int]:
    numbers = np.empty(len(rows), dtype=np.int64)
    for place in range(len(rows)):
        row, width = rows[place], rows.shape[1]
        while width and row[width - 1] < 0:
            width -= 1
        code = width
        for column in range(width):
            code = (code * _FACTOR + int(row[column])) & _BITS
            code ^= code >> 15
        slot = code % len(slots)
        while slots[slot] >= 0 and not _equal(known[slots[slot]], row, width):
            slot = (slot + 1) % len(slots)
        if slots[slot] < 0:
            known[count, :width] = row[:width]
            known[count, width:] = EMPTY
            slots[slot] = count
            count += 1
        numbers[place] = slots[slot]
    return numbers, count


@compiled
def _equal(known: Any, row: Any, width: int) -> bool:
    for column in range(width):
        if known[column] != row[column]:
            return False
    return width == len(known) or known[width] < 0


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
def values_in_order(numbers: IntArray, order: IntArray, values: FloatArray, absent: float) -> FloatArray:
    """Return the values of the members of numbered sets at their positions, `absent` elsewhere, shape (m, w).

    `order` is as from `sorted_sets`, shape (m, w); `values` has a row for each set, in the order of its members there.
    """
    m, w = order.shape
    result = np.full((m, w), absent)
    for row in range(m):
        for place in range(w):
            if order[row, place] == EMPTY:
                break
            result[row, order[row, place]] = values[numbers[row], place]
    return result
