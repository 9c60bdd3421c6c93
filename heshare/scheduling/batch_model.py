"""The batch model (Section III-C 1, Eqs. 11-15): predicted times and energy of batches of tasks that share a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from heshare.arrays import BoolArray, FloatArray, IntArray
from heshare.compiling import compiled
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import Instance, numbered_workloads
from heshare.world.workload import Resident

EMPTY = -1
"""Marks an index without a task, or a GPU without a queue."""
DEFAULT_CLOCK = 0
"""Marks the GPU's default clock."""
_PCTS = 128
"""More than any MPS percentage: a resident's code is workload times this plus percentage."""
_FACTOR, _BITS = 0x9E3779B1, (1 << 31) - 1
"""Mix the entries of a row; products stay below 2 ** 63."""


@dataclass(frozen=True, slots=True)
class Batches:
    """b batches (Eq. 11), each on a type of GPU.

    Attributes:
        kind: index in the instance's `kinds`, shape (b,).
        tasks: task indices in SPT order, `EMPTY` after the last task, shape (b, w).
        mps_pct: MPS percentage of each task, shape (b, w).
        sm_mhz: SM clock, MHz, or `DEFAULT_CLOCK`, shape (b,).
    """

    kind: IntArray
    tasks: IntArray
    mps_pct: IntArray
    sm_mhz: IntArray

    @property
    def members(self) -> BoolArray:
        """Mask of the tasks, shape (b, w)."""
        return cast(BoolArray, self.tasks != EMPTY)

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: IntArray | BoolArray) -> Batches:
        """Return the batches of some rows, in their order; rows may repeat."""
        return Batches(self.kind[rows], self.tasks[rows], self.mps_pct[rows], self.sm_mhz[rows])


def unconfigured_batches(kind: IntArray, tasks: IntArray) -> Batches:
    """Return batches whose tasks have 100 % each, at the default clock."""
    return Batches(kind, tasks, np.full(tasks.shape, 100), np.full(len(kind), DEFAULT_CLOCK))


@dataclass(frozen=True, slots=True)
class BatchExecutions:
    """Predicted execution of b batches.

    Attributes:
        time_s: tau_i, execution time of each task, s, 0 where there is none, shape (b, w).
        end_s: tau_B, execution time of the batch, the longest of its tasks, s, shape (b,).
        energy_j: E_B, energy of the batch (Eq. 14), J, shape (b,).
    """

    time_s: FloatArray
    end_s: FloatArray
    energy_j: FloatArray

    def jct_s(self, behind: IntArray) -> FloatArray:
        """Return what each batch adds to the sum of JCTs of its queue (Eqs. 13 and 15), s, shape (b,).

        By Eq. 13 a task's JCT is its own time plus the times of all batches before. So in the sum over the queue each
        batch counts the times of its tasks, and its own length once for every task behind it.

        Args:
            behind: number of tasks in later batches of the queue, shape (b,).
        """
        return cast(FloatArray, self.time_s.sum(axis=1) + behind * self.end_s)


class BatchModel:
    """Predicts the execution of batches and caches the predictions.

    Tasks with the same workload are equal for the predictor; only their iterations differ.

    Args:
        instance: the task set on its cluster.
        predictor: predicts time and power of tasks that share a GPU.
    """

    def __init__(self, instance: Instance, predictor: Predictor) -> None:
        self.instance = instance
        self._predictor = predictor
        self._workloads, self._workload = numbered_workloads(instance.tasks)
        self._iterations = np.array([task.iterations for task in instance.tasks])
        # Predictions by the number of the key (kind, clock, codes of the residents): times, power.
        self._keys, self._predicted = RowTable(), 0
        self._times, self._powers = np.ones((1024, 1)), np.zeros(1024)
        self._residents: dict[int, Resident] = {}

    def execute(self, batches: Batches, *, piecewise: bool = False) -> BatchExecutions:
        """Predict batches whose tasks start together and which end with their last task (Eqs. 13 and 14).

        Args:
            batches: the batches.
            piecewise: whether the remaining tasks speed up when a task ends, as on a device. Otherwise each task runs
                as if all stayed until the end of the batch (Eq. 13, literally).
        """
        return self._execute_piecewise(batches) if piecewise else self._execute_literally(batches)

    def _execute_literally(self, batches: Batches) -> BatchExecutions:
        per_iteration, power_w = self.rates(batches)
        time_s = np.where(batches.members, per_iteration * self._iterations[batches.tasks], 0.0)
        end_s = time_s.max(axis=1)
        return BatchExecutions(time_s, end_s, power_w * end_s)

    def _execute_piecewise(self, batches: Batches) -> BatchExecutions:
        left = np.where(batches.members, self._iterations[batches.tasks], 0.0)
        time_s, end_s, energy_j = np.zeros(left.shape), np.zeros(len(batches)), np.zeros(len(batches))
        rows = np.arange(len(batches))
        # Each pass advances the unfinished batches to the next end of a task.
        while len(rows):
            present = batches.take(rows)
            present = Batches(
                present.kind, np.where(left[rows] > 0, present.tasks, EMPTY), present.mps_pct, present.sm_mhz
            )
            per_iteration, power_w = self.rates(present)
            need_s = np.where(present.members, left[rows] * per_iteration, np.inf)
            step_s = need_s.min(axis=1)
            energy_j[rows] += power_w * step_s
            end_s[rows] += step_s
            # Equal tasks end together, whatever the rounding.
            done = need_s <= step_s[:, None] * (1 + 1e-12)
            time_s[rows] = np.where(done, end_s[rows][:, None], time_s[rows])
            rest = np.where(present.members & ~done, left[rows] - step_s[:, None] / per_iteration, 0.0)
            left[rows] = rest
            rows = rows[(rest > 0).any(axis=1)]
        return BatchExecutions(time_s, end_s, energy_j)

    def rates(self, batches: Batches) -> tuple[FloatArray, FloatArray]:
        """Return seconds per iteration of each task while its whole batch runs, (b, w), and the power, W, (b,).

        Seconds are 1 where there is no task.
        """
        keys, order = _sorted_keys(batches.kind, batches.sm_mhz, batches.tasks, batches.mps_pct, self._workload)
        numbers = self._keys.numbers(keys)
        if self._predicted < len(self._keys):
            self._predict_new()
        return _in_order(numbers, order, self._times, self._powers)

    def _predict_new(self) -> None:
        """Predict the keys that have a number but no prediction, in one call for each type of GPU."""
        first, last = self._predicted, len(self._keys)
        new = self._keys.rows[first:last]
        for kind in np.unique(new[:, 0]).tolist():
            rows = np.flatnonzero(new[:, 0] == kind)
            answer = self._predictor.co_run(
                [self._set(codes) for codes in new[rows, 2:].tolist()],
                self.instance.kinds[kind],
                [mhz or None for mhz in new[rows, 1].tolist()],
            )
            width = answer.time_s.shape[1]
            self._grow(last, width)
            self._times[first + rows, :width] = np.nan_to_num(answer.time_s, nan=1.0)
            self._powers[first + rows] = answer.power_w
        self._predicted = last

    def _set(self, codes: list[int]) -> tuple[Resident, ...]:
        """Return the residents of a key; each is one object, which predictors look up faster."""
        known = self._residents
        return tuple([known[code] if code in known else self._resident(code) for code in codes if code >= 0])

    def _resident(self, code: int) -> Resident:
        return self._residents.setdefault(code, Resident(self._workloads[code // _PCTS], code % _PCTS))

    def _grow(self, rows: int, width: int) -> None:
        height = len(self._times)
        more_rows = max(rows, 2 * height) - height if rows > height else 0
        more_columns = max(0, width - self._times.shape[1])
        if more_rows or more_columns:
            self._times = np.pad(self._times, ((0, more_rows), (0, more_columns)), constant_values=1.0)
            self._powers = np.pad(self._powers, (0, more_rows))


@compiled
def _sorted_keys(
    kind: IntArray, sm_mhz: IntArray, tasks: IntArray, mps_pct: IntArray, workload: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the key of each of b batches, (b, 2 + w), and the position of each of its residents, (b, w).

    A key is kind, clock and the residents as codes, the largest first, since their order does not matter.
    """
    b, w = tasks.shape
    keys, order = np.full((b, 2 + w), EMPTY), np.full((b, w), EMPTY)
    for row in range(b):
        keys[row, 0], keys[row, 1] = kind[row], sm_mhz[row]
        size = 0
        for position in range(w):
            if tasks[row, position] == EMPTY:
                continue
            code, place = workload[tasks[row, position]] * _PCTS + mps_pct[row, position], size
            while place and keys[row, 1 + place] < code:
                keys[row, 2 + place], order[row, place] = keys[row, 1 + place], order[row, place - 1]
                place -= 1
            keys[row, 2 + place], order[row, place] = code, position
            size += 1
    return keys, order


@compiled
def _in_order(
    numbers: IntArray, order: IntArray, times: FloatArray, powers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the predictions of numbered keys, each time at its resident's position, shapes (b, w) and (b,)."""
    b, w = order.shape
    time_s, power_w = np.ones((b, w)), np.empty(b)
    for row in range(b):
        power_w[row] = powers[numbers[row]]
        for place in range(w):
            if order[row, place] == EMPTY:
                break
            time_s[row, order[row, place]] = times[numbers[row], place]
    return time_s, power_w


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


@compiled
def _numbered(rows: Any, known: Any, slots: IntArray, count: int) -> tuple[IntArray, int]:
    """Return the number of each row and how many are known now; new rows go to `known` and `slots`."""
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
    """Return whether a known row has just the first `width` entries of a row."""
    for column in range(width):
        if known[column] != row[column]:
            return False
    return width == len(known) or known[width] < 0
