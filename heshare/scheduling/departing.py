"""How a batch runs when its tasks end one by one, and what remains of its options: compiled, with a numpy form.

The numpy form (`run_states`) is the definition; the compiled one (`fill_menus`) does the same operations in the same
order for one set at a time, and the tests hold them equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
NOBODY = -1
TIED = 1 + 1e-12
"""Tasks whose ends differ by less end together."""

_F = TypeVar("_F", bound=Callable[..., Any])
if TYPE_CHECKING:

    def compiled(function: _F) -> _F:
        """Compile with numba, kept on disk, in strict IEEE arithmetic."""
        ...

    def inlined(function: _F) -> _F:
        """The same, put into its callers, so that the many arrays of an argument are not copied for each call."""
        ...

    def bare(function: _F) -> _F:
        """The same for what makes no array: nothing is counted, where counting who uses an array would take longest."""
        ...
else:
    compiled = njit(cache=True, fastmath=False)
    bare = njit(cache=True, fastmath=False, _nrt=False)
    inlined = njit(cache=True, fastmath=False, _nrt=False, inline="always")


def run_states(
    time_s: FloatArray, power_w: FloatArray, states: IntArray, iterations: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Run r batches through the states that they pass as their tasks end (the readable form).

    Args:
        time_s: seconds per iteration of the residents of each state, s, shape (states, w).
        power_w: power of each state, W, shape (states,).
        states: the state of every subset of each batch's members, shape (r, 2**s).
        iterations: work of each member, above zero, shape (r, s).

    Returns:
        E_B in J, the sum of the members' times in s, and tau_B in s, each of shape (r,).
    """
    rows, size = iterations.shape
    left, mask = iterations.copy(), np.full(rows, 2**size - 1)
    energy_j, spent_s, end_s = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    while (on := np.flatnonzero(mask)).size:
        here = mask[on, None] >> np.arange(size) & 1
        state = states[on, mask[on]]
        rank = np.maximum(np.cumsum(here, axis=1) - 1, 0)
        each_s = time_s[state[:, None], rank]
        need_s = np.where(here == 1, left[on] * each_s, np.inf)
        step_s = need_s.min(axis=1)
        energy_j[on] += power_w[state] * step_s
        end_s[on] += step_s
        over = need_s <= step_s[:, None] * TIED
        for member in range(size):
            spent_s[on] += np.where(over[:, member], end_s[on], 0.0)
        left[on] = np.where((here == 1) & ~over, left[on] - step_s[:, None] / each_s, left[on])
        mask[on] &= ~(over << np.arange(size)).sum(axis=1)
    return energy_j, spent_s, end_s


@bare
def run_one(
    time_s: FloatArray,
    power_w: FloatArray,
    states: IntArray,
    clock: int,
    iterations: FloatArray,
    size: int,
    left: FloatArray,
    need_s: FloatArray,
) -> tuple[float, float, float]:
    """One batch at one clock, as `run_states`; `left` and `need_s` are scratch, shape (w,)."""
    for i in range(size):
        left[i] = iterations[i]
    mask = (1 << size) - 1
    energy_j, spent_s, end_s = 0.0, 0.0, 0.0
    while mask:
        state = states[mask]
        step_s, rank = np.inf, 0
        for i in range(size):
            if mask >> i & 1:
                need_s[i] = left[i] * time_s[state, clock, rank]
                step_s = min(step_s, need_s[i])
                rank += 1
        energy_j += power_w[state, clock] * step_s
        end_s += step_s
        over, rank = 0, 0
        for i in range(size):
            if mask >> i & 1:
                if need_s[i] <= step_s * TIED:
                    spent_s += end_s
                    over |= 1 << i
                else:
                    left[i] -= step_s / time_s[state, clock, rank]
                rank += 1
        mask &= ~over
    return energy_j, spent_s, end_s


@bare
def number_of(workload: IntArray, size: int, sizes: IntArray, binomials: IntArray) -> int:
    """The number of a multiset of ascending workload indices among all multisets."""
    at = int(sizes[size])
    for i in range(size):
        at += int(binomials[workload[i] + i, i + 1])
    return at


@bare
def menu_of(
    task: IntArray,
    size: int,
    workload: IntArray,
    iterations: FloatArray,
    time_s: FloatArray,
    power_w: FloatArray,
    begin: IntArray,
    count: IntArray,
    states: IntArray,
    sizes: IntArray,
    binomials: IntArray,
    value: FloatArray,
    which: IntArray,
    perm: IntArray,
    alike: IntArray,
    work: FloatArray,
) -> int:
    """The non-dominated options of one set: fills `value` (o, 3), `which` (o, 2), `perm`; returns how many.

    Args:
        task: the members' indices, shape (w,), the first `size` count.
        size: how many.
        workload: the workload of every task, shape (n,).
        iterations: the iterations of every task, shape (n,).
        time_s: as in `Tables`, and so the five after it.
        power_w: as in `Tables`.
        begin: as in `Tables`.
        count: as in `Tables`.
        states: as in `Tables`.
        sizes: where the multisets of each size begin.
        binomials: for numbering.
        value: out: E_B in J, sum of times in s, tau_B in s.
        which: out: variant and clock.
        perm: out: the members' positions by workload, shape (w,).
        alike: scratch, shape (w,).
        work: scratch, shape (3, w).
    """
    for i in range(size):
        at = i
        while at > 0 and workload[task[perm[at - 1]]] > workload[task[i]]:
            perm[at] = perm[at - 1]
            at -= 1
        perm[at] = i
    for i in range(size):
        alike[i], work[0, i] = workload[task[perm[i]]], iterations[task[perm[i]]]
    number = number_of(alike, size, sizes, binomials)
    kept = 0
    for variant in range(begin[number], begin[number] + count[number]):
        for clock in range(time_s.shape[1]):
            energy_j, spent_s, end_s = run_one(time_s, power_w, states[variant], clock, work[0], size, work[1], work[2])
            kept = _keep(value, which, kept, energy_j, spent_s, end_s, variant, clock)
    return kept


@bare
def _keep(
    value: FloatArray,
    which: IntArray,
    kept: int,
    energy_j: float,
    spent_s: float,
    end_s: float,
    variant: int,
    clock: int,
) -> int:
    """Add an option unless another is as good in all three; drop those that it beats. Order of coming stays."""
    for i in range(kept):
        if value[i, 0] <= energy_j and value[i, 1] <= spent_s and value[i, 2] <= end_s:
            return kept
    stays = 0
    for i in range(kept):
        if not (energy_j <= value[i, 0] and spent_s <= value[i, 1] and end_s <= value[i, 2]):
            if stays != i:
                value[stays, 0], value[stays, 1], value[stays, 2] = value[i, 0], value[i, 1], value[i, 2]
                which[stays, 0], which[stays, 1] = which[i, 0], which[i, 1]
            stays += 1
    value[stays, 0], value[stays, 1], value[stays, 2] = energy_j, spent_s, end_s
    which[stays, 0], which[stays, 1] = variant, clock
    return stays + 1
