"""What is believed of tasks that share a GPU: bulk, memoised questions to the predictor, and how a batch runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import BoolArray, FloatArray, Instance, IntArray
from heshare.world.workload import Resident

NOBODY = -1
DEFAULT_CLOCK = 0


@dataclass(frozen=True, slots=True)
class Batches:
    """b batches, each on its type of GPU.

    Attributes:
        kind: index in the instance's `kinds`, shape (b,).
        tasks: task indices in SPT order, `NOBODY` beyond a batch's size, shape (b, w).
        mps_pct: MPS percentage of each, shape (b, w).
        sm_mhz: the clock, MHz, `DEFAULT_CLOCK` for the card's own, shape (b,).
    """

    kind: IntArray
    tasks: IntArray
    mps_pct: IntArray
    sm_mhz: IntArray

    @property
    def members(self) -> BoolArray:
        """Where there is a task, shape (b, w)."""
        return cast(BoolArray, self.tasks != NOBODY)

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: IntArray | BoolArray) -> Batches:
        """Some of the batches, in the order asked for; repeats are allowed."""
        return Batches(self.kind[rows], self.tasks[rows], self.mps_pct[rows], self.sm_mhz[rows])


def batches(kind: IntArray, tasks: IntArray) -> Batches:
    """Batches at 100 % each and the card's default clock."""
    return Batches(kind, tasks, np.full(tasks.shape, 100), np.full(len(kind), DEFAULT_CLOCK))


@dataclass(frozen=True, slots=True)
class Executions:
    """How b batches run.

    Attributes:
        time_s: tau_i, execution time of each task, s, 0 where there is none, shape (b, w).
        end_s: tau_B, execution time of the batch, the longest of its tasks, s, shape (b,).
        energy_j: E_B, energy of the batch, J, shape (b,).
    """

    time_s: FloatArray
    end_s: FloatArray
    energy_j: FloatArray

    def jct_s(self, behind: IntArray) -> FloatArray:
        """What each batch adds to its queue's sum of JCTs (Eqs. 13 and 15), s, shape (b,).

        Args:
            behind: how many tasks wait for the batch to end, shape (b,).
        """
        return cast(FloatArray, self.time_s.sum(axis=1) + behind * self.end_s)


class Sharing:
    """Asks the predictor about sets of tasks that share a GPU, each distinct question once.

    Tasks with the same workload are alike for the predictor; only their iterations differ.

    Args:
        world: the task set on its cluster.
        predictor: what the scheduler believes.
    """

    def __init__(self, world: Instance, predictor: Predictor) -> None:
        self.world = world
        self._predictor = predictor
        self._workloads = sorted({task.workload for task in world.tasks})
        self._workload = np.array([self._workloads.index(task.workload) for task in world.tasks])
        self._iterations = np.array([task.iterations for task in world.tasks])
        self._row: dict[tuple[int, ...], int] = {}
        self._times, self._powers = np.zeros((1024, 1)), np.zeros(1024)

    def execute(self, asked: Batches, *, piecewise: bool = False) -> Executions:
        """Run batches whose tasks start together and end when the last one ends (Eq. 13).

        Args:
            asked: the batches.
            piecewise: whether tasks speed up when another one ends; otherwise all run as if all stayed until the end.
        """
        return self._departing(asked) if piecewise else self._together(asked)

    def _together(self, asked: Batches) -> Executions:
        """Eq. 13 literally: every task runs as if all of the batch stayed until its end."""
        per_iteration, power_w = self.rates(asked)
        time_s = np.where(asked.members, per_iteration * self._iterations[asked.tasks], 0.0)
        end_s = time_s.max(axis=1)
        return Executions(time_s, end_s, power_w * end_s)

    def _departing(self, asked: Batches) -> Executions:
        """As on a device: whoever is left when a task ends goes on with one co-runner less."""
        left = np.where(asked.members, self._iterations[asked.tasks], 0.0)
        time_s, end_s, energy_j = np.zeros(left.shape), np.zeros(len(asked)), np.zeros(len(asked))
        rows = np.arange(len(asked))
        while len(rows):
            now = asked.take(rows)
            now = Batches(now.kind, np.where(left[rows] > 0, now.tasks, NOBODY), now.mps_pct, now.sm_mhz)
            per_iteration, power_w = self.rates(now)
            need_s = np.where(now.members, left[rows] * per_iteration, np.inf)
            step_s = need_s.min(axis=1)
            energy_j[rows] += power_w * step_s
            end_s[rows] += step_s
            over = need_s <= step_s[:, None] * (1 + 1e-12)
            time_s[rows] = np.where(over, end_s[rows][:, None], time_s[rows])
            rest = np.where(now.members & ~over, left[rows] - step_s[:, None] / per_iteration, 0.0)
            left[rows] = rest
            rows = rows[(rest > 0).any(axis=1)]
        return Executions(time_s, end_s, energy_j)

    def rates(self, asked: Batches) -> tuple[FloatArray, FloatArray]:
        """Seconds per iteration of each task while all of its batch run, shape (b, w), and the GPU's power, W, (b,).

        Seconds are 1 where there is no task.
        """
        code = np.where(asked.members, self._workload[asked.tasks] * 128 + asked.mps_pct, NOBODY)
        order = np.argsort(-code, axis=1, kind="stable")
        table = np.concatenate(
            (asked.kind[:, None], asked.sm_mhz[:, None], np.take_along_axis(code, order, axis=1)), axis=1
        )
        first, inverse = distinct_rows(table)
        found = self._lookup(table[first])
        width = code.shape[1]
        sorted_s = np.ones((len(asked), width))
        known = min(width, self._times.shape[1])
        sorted_s[:, :known] = self._times[found[inverse], :known]
        per_iteration = np.empty_like(sorted_s)
        np.put_along_axis(per_iteration, order, sorted_s, axis=1)
        return np.where(asked.members, per_iteration, 1.0), self._powers[found[inverse]]

    def _lookup(self, distinct: IntArray) -> IntArray:
        """The row in the tables of each distinct question; asks the predictor what is not there yet."""
        keys = [tuple(row[: np.count_nonzero(row >= 0)].tolist()) for row in distinct]
        missing = sorted({key for key in keys if key not in self._row})
        for kind in sorted({key[0] for key in missing}):
            self._ask(kind, [key for key in missing if key[0] == kind])
        return np.array([self._row[key] for key in keys], dtype=np.int64)

    def _ask(self, kind: int, keys: list[tuple[int, ...]]) -> None:
        sets = [tuple(Resident(self._workloads[code // 128], code % 128) for code in key[2:]) for key in keys]
        clocks = [key[1] or None for key in keys]
        answer = self._predictor.co_run(sets, self.world.kinds[kind], clocks)
        first, widest = len(self._row), answer.time_s.shape[1]
        self._grow(first + len(keys), widest)
        self._times[first : first + len(keys), :widest] = np.nan_to_num(answer.time_s, nan=1.0)
        self._powers[first : first + len(keys)] = answer.power_w
        self._row.update((key, first + index) for index, key in enumerate(keys))

    def _grow(self, rows: int, width: int) -> None:
        height = len(self._times)
        taller = max(rows, 2 * height) - height if rows > height else 0
        wider = max(0, width - self._times.shape[1])
        self._times = np.pad(self._times, ((0, taller), (0, wider)), constant_values=1.0)
        self._powers = np.pad(self._powers, (0, taller))


def distinct_rows(table: IntArray) -> tuple[IntArray, IntArray]:
    """Indices of the distinct rows of a table of whole numbers, (d,), and which of them each row is, (rows,)."""
    rows = np.ascontiguousarray(table, dtype=np.int32)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    return first, inverse.ravel()
