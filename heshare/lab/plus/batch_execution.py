"""Execution of a batch whose tasks end one by one, and the options of a batch that no other option dominates.

The tasks of a batch start together and share the GPU (Section III-C 1). While the set S of tasks runs, task i needs
t_i(S) seconds for an iteration and the GPU draws P(S) watts. Both are constant until the next task ends, so a batch is
a sequence of steps, at most one for each task. From the set S with r_i iterations left, the next step takes

    step(S) = min over i in S of r_i t_i(S),    after which    r_i <- r_i - step(S) / t_i(S)

and the tasks without iterations left leave S. With the sets S_1, S_2, ... and the end e_i of each task,

    E_B = sum over l of P(S_l) step(S_l),    tau_i = e_i,    tau_B = max over i of e_i = sum over l of step(S_l)

are the terms of Eqs. 13 and 14. If b tasks wait behind the batch, it adds E_B to the energy and sum_i e_i + b tau_B to
the sum of JCTs. For every weight w >= 0 and every b >= 0 its cost E_B + w (sum_i e_i + b tau_B) is monotone in the
three numbers E_B, sum_i e_i and tau_B. So an option that is not better than another one in any of the three is never
needed.

Example: two tasks with 2 and 5 iterations, 1 s each alone at 100 W and 2 s each together at 150 W. The first ends after
4 s, with 3 iterations of the second left: E_B = 4 s x 150 W + 3 s x 100 W, ends at 4 s and 7 s.

>>> time_s, power_w = np.array([[[1.0, 1.0]], [[2.0, 2.0]]]), np.array([[100.0], [150.0]])
>>> states = np.array([[-1, 0, 0, 1]])  # of the subsets {}, {0}, {1}, {0, 1}
>>> run_batches(time_s, power_w, states, np.array([[2.0, 5.0]])).tolist()
[[900.0, 11.0, 7.0]]

Source: the paper, Section III-C, Eqs. 11 to 14.
"""

from typing import NamedTuple

import numpy as np

from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.compiling import allocation_free, compiled

UNKNOWN = -1
"""Marks a multiset that has not been predicted yet, and a state that does not exist."""
TIED = 1 + 1e-12
"""Tasks whose ends differ by a smaller factor end in the same step, so that rounding makes no extra steps."""


class RateTables(NamedTuple):
    """Predicted times and powers as arrays for compiled code; `heshare.lab.plus.rates` fills them.

    Numba compiles a named tuple of arrays without boxing, which a class would need.

    Attributes:
        time_s: seconds per iteration of each resident of each state at each clock, s, shape (states, c, w).
        power_w: the GPU's power, W, shape (states, c).
        variant_begin: first variant of each multiset by number, `UNKNOWN` before it is predicted, shape (multisets,).
        variant_count: the number of its variants, shape (multisets,).
        states: the state of every subset of members of each variant (bit i: member i runs), shape (v, 2**w).
        terms: what each member adds to the number of a multiset, from `multiset_terms`, shape (w, k).
    """

    time_s: FloatArray
    power_w: FloatArray
    variant_begin: IntArray
    variant_count: IntArray
    states: IntArray
    terms: IntArray


@allocation_free
def run_batch(
    time_s: FloatArray,
    power_w: FloatArray,
    states: IntArray,
    clock: int,
    iterations: FloatArray,
    size: int,
    remaining: FloatArray,
    need_s: FloatArray,
) -> tuple[float, float, float]:
    """Run one batch at one clock: E_B, sum of execution times, tau_B; `remaining` and `need_s` are scratch, (w,)."""
    for i in range(size):
        remaining[i] = iterations[i]
    running = (1 << size) - 1
    energy_j, sum_s, end_s = 0.0, 0.0, 0.0
    while running:
        state = states[running]
        step_s, place = np.inf, 0
        for i in range(size):
            if running >> i & 1:
                need_s[i] = remaining[i] * time_s[state, clock, place]
                step_s = min(step_s, need_s[i])
                place += 1
        energy_j += power_w[state, clock] * step_s
        end_s += step_s
        ended, place = 0, 0
        for i in range(size):
            if running >> i & 1:
                if need_s[i] <= step_s * TIED:
                    sum_s += end_s
                    ended |= 1 << i
                else:
                    remaining[i] -= step_s / time_s[state, clock, place]
                place += 1
        running &= ~ended
    return energy_j, sum_s, end_s


@compiled
def run_batches(time_s: FloatArray, power_w: FloatArray, states: IntArray, iterations: FloatArray) -> FloatArray:
    """Return E_B in J, the sum of execution times in s, and tau_B in s of r batches at the first clock, shape (r, 3).

    Per state and clock there are `time_s`, seconds per iteration of its residents, shape (states, c, w), and `power_w`,
    W, shape (states, c). `states` are those of every subset of the members (bit i: member i runs), shape (r, 2**s),
    `iterations` the work of each member, above zero, shape (r, s).
    """
    rows, size = iterations.shape
    values, remaining, need_s = np.empty((rows, 3)), np.empty(size), np.empty(size)
    for row in range(rows):
        values[row, 0], values[row, 1], values[row, 2] = run_batch(
            time_s, power_w, states[row], 0, iterations[row], size, remaining, need_s
        )
    return values


class Scratch(NamedTuple):
    """Arrays in which `batch_options` works and leaves its result.

    Attributes:
        values: out: E_B in J, sum of execution times in s, tau_B in s of each option, shape (most, 3).
        sources: out: variant and clock of each option, shape (most, 2).
        by_workload: out: the members' places sorted by workload, shape (w,).
        steps: work of the members, work left, and time left, shape (3, w).
    """

    values: FloatArray
    sources: IntArray
    by_workload: IntArray
    steps: FloatArray


def scratch_for(rates: RateTables, width: int) -> Scratch:
    """Return scratch for the options of sets of up to `width` tasks."""
    most = int(rates.variant_count.max(initial=1)) * rates.time_s.shape[1]
    by_workload = np.empty(width, dtype=np.int64)
    return Scratch(np.empty((most, 3)), np.empty((most, 2), dtype=np.int64), by_workload, np.empty((3, width)))


@allocation_free
def batch_options(
    rates: RateTables,
    first: int,
    members: IntArray,
    size: int,
    workload: IntArray,
    iterations: FloatArray,
    scratch: Scratch,
) -> int:
    """Fill `scratch` with the non-dominated options of one batch; return how many, or `UNKNOWN` if not predicted yet.

    `rates` are of one type of GPU, or of several, one after the other; `first` is the place of the type's first
    multiset in them. Of `members`, task indices of shape (w,), the first `size` count. `workload` and `iterations` are
    those of every task, shape (n,).
    """
    values, sources, by_workload, steps = scratch
    # Insertion sort: the sets have at most eight members, and the order of equal workloads has to stay.
    for i in range(size):
        place = i
        while place > 0 and workload[members[by_workload[place - 1]]] > workload[members[i]]:
            by_workload[place] = by_workload[place - 1]
            place -= 1
        by_workload[place] = i
    number = first
    for i in range(size):
        task = members[by_workload[i]]
        number += rates.terms[i, workload[task]]
        steps[0, i] = iterations[task]
    if rates.variant_begin[number] == UNKNOWN:
        return UNKNOWN
    count = 0
    for variant in range(rates.variant_begin[number], rates.variant_begin[number] + rates.variant_count[number]):
        for clock in range(rates.time_s.shape[1]):
            values[count, 0], values[count, 1], values[count, 2] = run_batch(
                rates.time_s, rates.power_w, rates.states[variant], clock, steps[0], size, steps[1], steps[2]
            )
            sources[count, 0], sources[count, 1] = variant, clock
            count = _without_dominated(values, sources, count)
    return count


@allocation_free
def _without_dominated(values: FloatArray, sources: IntArray, last: int) -> int:
    """Drop the last option if another one is as good in all values, else those that it dominates; return their number.

    The options keep their order, so that ties are resolved alike in every process.
    """
    for i in range(last):
        if values[i, 0] <= values[last, 0] and values[i, 1] <= values[last, 1] and values[i, 2] <= values[last, 2]:
            return last
    kept = 0
    for i in range(last + 1):
        better = values[last, 0] <= values[i, 0] and values[last, 1] <= values[i, 1] and values[last, 2] <= values[i, 2]
        if i == last or not better:
            values[kept, 0], values[kept, 1], values[kept, 2] = values[i, 0], values[i, 1], values[i, 2]
            sources[kept, 0], sources[kept, 1] = sources[i, 0], sources[i, 1]
            kept += 1
    return kept
