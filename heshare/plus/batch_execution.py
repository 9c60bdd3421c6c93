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

>>> time_s, power_w = np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([100.0, 150.0])
>>> states = np.array([[-1, 0, 0, 1]])  # of the subsets {}, {0}, {1}, {0, 1}
>>> [float(value[0]) for value in run_states(time_s, power_w, states, np.array([[2.0, 5.0]]))]
[900.0, 11.0, 7.0]

The numpy form (`run_states`) is the definition. The compiled form (`run_batch`) does the same operations in the same
order for one batch, and the tests compare the two bit by bit.
"""

import numpy as np

from heshare.arrays import FloatArray, IntArray
from heshare.compiling import allocation_free
from heshare.plus.multisets import multiset_number

TIED = 1 + 1e-12
"""Tasks whose ends differ by a smaller factor end in the same step, so that rounding makes no extra steps."""


def run_states(
    time_s: FloatArray, power_w: FloatArray, states: IntArray, iterations: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Run r batches through the states that they pass as their tasks end (the readable form).

    Args:
        time_s: seconds per iteration of the residents of each state, s, shape (states, w).
        power_w: power of each state, W, shape (states,).
        states: the state of every subset of each batch's members (bit i: member i runs), shape (r, 2**s).
        iterations: work of each member, above zero, shape (r, s).

    Returns:
        E_B in J, the sum of the members' execution times in s, and tau_B in s, each of shape (r,).
    """
    rows, size = iterations.shape
    remaining, running = iterations.copy(), np.full(rows, 2**size - 1)
    energy_j, sum_s, end_s = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    while (active := np.flatnonzero(running)).size:
        present = running[active, None] >> np.arange(size) & 1
        state = states[active, running[active]]
        # Times of a state are listed for its residents only: the place of a member among those that still run.
        place = np.maximum(np.cumsum(present, axis=1) - 1, 0)
        iteration_s = time_s[state[:, None], place]
        need_s = np.where(present == 1, remaining[active] * iteration_s, np.inf)
        step_s = need_s.min(axis=1)
        energy_j[active] += power_w[state] * step_s
        end_s[active] += step_s
        ended = need_s <= step_s[:, None] * TIED
        # Member by member, as in the compiled form: another order of additions would give other last bits.
        for member in range(size):
            sum_s[active] += np.where(ended[:, member], end_s[active], 0.0)
        after = remaining[active] - step_s[:, None] / iteration_s
        remaining[active] = np.where((present == 1) & ~ended, after, remaining[active])
        running[active] &= ~(ended << np.arange(size)).sum(axis=1)
    return energy_j, sum_s, end_s


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
    """Run one batch at one clock, as `run_states` does; `remaining` and `need_s` are scratch, shape (w,)."""
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


@allocation_free
def batch_options(
    members: IntArray,
    size: int,
    workload: IntArray,
    iterations: FloatArray,
    time_s: FloatArray,
    power_w: FloatArray,
    variant_begin: IntArray,
    variant_count: IntArray,
    states: IntArray,
    multiset_begin: IntArray,
    coefficients: IntArray,
    values: FloatArray,
    sources: IntArray,
    by_workload: IntArray,
    multiset: IntArray,
    scratch: FloatArray,
) -> int:
    """Fill `values`, `sources` and `by_workload` with the non-dominated options of one batch; return how many.

    Args:
        members: the members' task indices, shape (w,), of which the first `size` count.
        size: the number of members.
        workload: the workload of every task, shape (n,).
        iterations: the iterations of every task, shape (n,).
        time_s: as in `RateTables`, as the next four.
        power_w: as in `RateTables`.
        variant_begin: as in `RateTables`.
        variant_count: as in `RateTables`.
        states: as in `RateTables`.
        multiset_begin: from `multiset_begins`.
        coefficients: from `binomials`.
        values: out: E_B in J, sum of execution times in s, tau_B in s, shape (o, 3).
        sources: out: variant and clock, shape (o, 2).
        by_workload: out: the members' places sorted by workload, shape (w,).
        multiset: scratch, shape (w,).
        scratch: scratch, shape (3, w).
    """
    # Insertion sort: the sets have at most eight members, and the order of equal workloads has to stay.
    for i in range(size):
        place = i
        while place > 0 and workload[members[by_workload[place - 1]]] > workload[members[i]]:
            by_workload[place] = by_workload[place - 1]
            place -= 1
        by_workload[place] = i
    for i in range(size):
        task = members[by_workload[i]]
        multiset[i], scratch[0, i] = workload[task], iterations[task]
    number = multiset_number(multiset, size, multiset_begin, coefficients)
    count = 0
    for variant in range(variant_begin[number], variant_begin[number] + variant_count[number]):
        for clock in range(time_s.shape[1]):
            energy_j, sum_s, end_s = run_batch(
                time_s, power_w, states[variant], clock, scratch[0], size, scratch[1], scratch[2]
            )
            count = _insert_option(values, sources, count, energy_j, sum_s, end_s, variant, clock)
    return count


@allocation_free
def _insert_option(
    values: FloatArray,
    sources: IntArray,
    count: int,
    energy_j: float,
    sum_s: float,
    end_s: float,
    variant: int,
    clock: int,
) -> int:
    """Append an option unless another one is as good in all three values; drop those that it dominates.

    The options keep the order in which they were appended, so that ties are resolved alike in every process.
    """
    for i in range(count):
        if values[i, 0] <= energy_j and values[i, 1] <= sum_s and values[i, 2] <= end_s:
            return count
    kept = 0
    for i in range(count):
        if not (energy_j <= values[i, 0] and sum_s <= values[i, 1] and end_s <= values[i, 2]):
            if kept != i:
                values[kept, 0], values[kept, 1], values[kept, 2] = values[i, 0], values[i, 1], values[i, 2]
                sources[kept, 0], sources[kept, 1] = sources[i, 0], sources[i, 1]
            kept += 1
    values[kept, 0], values[kept, 1], values[kept, 2] = energy_j, sum_s, end_s
    sources[kept, 0], sources[kept, 1] = variant, clock
    return kept + 1
