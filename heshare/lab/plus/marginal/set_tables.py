"""Numbered sets of workloads and a lower bound on what one more task costs, as arrays for compiled code.

With V_S(r) the cost until the set S with r_j iterations left has ended, and R(S) its cost per second, V_S is piecewise
linear in r: for every order in which its members end it has one gradient G(S), from

    V_S = R(S) tau + V_(S - j)(r - tau / t(S)),    tau = r_j t_j(S),    j the first to end

Beside a task i, the set T of those that still run adds to the marginal cost of i, in each second,

    R(T + i) - sum over j in T of G_j(T) / t_j(T + i)  >=  rho(T, i),    the least over all orders of ends.

So each iteration of i costs at least a(S) = rho(S, i) t_i(S + i) until the first member of S ends, at least b(S), the
least of a(T) over the non-empty T inside S, until the last one has ended, and a({}) after that. Beside i, the first
one ends no earlier than sigma f, where f is its end without i, and sigma the least of t_j(S + i) / t_j(S). The last
one ends no earlier than mu g, where g is the largest r_j t_j(S), and mu the least of t_j(T + i) / t_j(S). So i does
at least sigma f / t_i(S + i) iterations in the first part, and mu g over the largest t_i(T + i) in the first two.
With n iterations of i, a >= b >= c, where b and c are lowered to the least of those before,

    V_(S + i) - V_S >= c n + (b - c) min(n, mu g / max t_i(T + i)) + (a - b) min(n, sigma f / t_i(S + i))

Example: on the toy GPU two tasks take turns. Beside a task with 5 iterations, each of the first iterations of another
takes 2 s and delays the first task by 1 s: 100 J, and 10 W x (2 s + 1 s). It is as cheap as alone once that has ended.

>>> from heshare.testing.toy import ToyPredictor, toy_gpu
>>> tables = SetTables(SetPredictions(ToyPredictor(), clocks=2, price_w=10.0), (toy_gpu(),), most=2)
>>> one, other = Workload("mobilenet", 4), Workload("resnet18", 4)
>>> tables.join(tables.workload(other), [tables.number(0, (one,))])
>>> tables.arrays.bound[tables.number(0, (one,)), tables.workload(other)].tolist()
[110.0, 20.0, 1.0, 0.0, 1.0]
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, groupby

import numpy as np

from heshare.lab.plus.marginal.drain_costs import SetArrays
from heshare.lab.plus.marginal.set_predictions import Set, SetPredictions, clock_grid
from heshare.world.gpu import Gpu
from heshare.world.workload import Workload

_WIDEST = 3
"""Members of the largest set with a bound: the orders of the ends are as many as its factorial."""
_NO_BOUND = -np.inf, 0.0, 0.0, 0.0, 0.0


class SetTables:
    """Numbers workloads and sets as they occur, and fills the arrays of their costs.

    Args:
        predictions: the predictions.
        kinds: the types of GPU; set k is the empty set of type k.
        most: the largest number of members.

    Attributes:
        arrays: the costs of all sets.
    """

    def __init__(self, predictions: SetPredictions, kinds: Sequence[Gpu], most: int) -> None:
        self._predictions, self._kinds, self._most = predictions, kinds, most
        self._workloads: dict[Workload, int] = {}
        self._list: list[Workload] = []
        self._numbers: dict[tuple[int, Set], int] = {}
        self._sets: list[tuple[int, Set]] = []
        self._gradients: dict[int, list[tuple[float, ...]]] = {}
        self._joining: dict[tuple[int, Set, Workload], tuple[float, float, list[float]]] = {}
        self.arrays = _empty(64, 16, most, predictions.clocks)
        for kind in range(len(kinds)):
            self.number(kind, ())

    def workload(self, workload: Workload) -> int:
        """Return the number of a workload."""
        if workload not in self._workloads:
            self._workloads[workload] = len(self._list)
            self._list.append(workload)
            self._reserve()
        return self._workloads[workload]

    def number(self, kind: int, running: Set) -> int:
        """Return the number of a sorted set on a type of GPU; it is predicted if need be."""
        if (kind, running) not in self._numbers:
            self._predictions.predict(self._kinds[kind], [running])
            self._add(kind, running)
        return self._numbers[kind, running]

    def join(self, workload: int, numbers: Iterable[int]) -> None:
        """Add the sets that consist of a workload and of given sets, those of a type predicted in one call."""
        added = self._list[workload]
        wanted = sorted({(*self._sets[number], number) for number in numbers})
        for kind, group in groupby(wanted, key=lambda item: item[0]):
            pairs = [(tuple(sorted((*running, added))), number) for _, running, number in group]
            self._predictions.predict(self._kinds[kind], [joined for joined, _ in pairs])
            for joined, number in pairs:
                self._link(number, workload, self.number(kind, joined))

    def _add(self, kind: int, running: Set) -> None:
        """Number a predicted set, and first what remains of it as its members end."""
        members = [self.workload(workload) for workload in running]
        without = [self.number(kind, running[:i] + running[i + 1 :]) for i in range(len(running))]
        number, size = len(self._sets), len(running)
        self._numbers[kind, running] = number
        self._sets.append((kind, running))
        self._reserve()
        arrays = self.arrays
        arrays.size[number] = size
        if not running:
            return
        gpu = self._kinds[kind]
        clock = self._predictions.cheapest_clock(gpu, running, 0)
        times_s, power_w = self._predictions.of(gpu, running)
        above_w, relative_time = self._predictions.relative_costs(gpu, running)
        arrays.time_s[number, :size] = times_s[clock]
        arrays.rate_w[number] = float(power_w[clock]) - gpu.idle_w + self._predictions.price_w * size
        arrays.without[number, :size] = without
        arrays.member[number, :size] = members
        arrays.above_w[number, : len(above_w)] = above_w
        arrays.relative_time[number, : len(above_w)] = relative_time
        arrays.clock[number] = clock

    def _link(self, number: int, workload: int, joined: int) -> None:
        running, added = self._sets[number][1], self._list[workload]
        bound = self._bound(self._sets[number][0], running, added)
        self.arrays.joined[number, workload] = joined
        self.arrays.place[number, workload] = self._sets[joined][1].index(added)
        self.arrays.bound[number, workload] = bound

    def _bound(self, kind: int, running: Set, added: Workload) -> tuple[float, ...]:
        """Return the coefficients of the lower bound on what one more workload costs beside a set.

        They are c, b - c, mu over the largest t_i, a - b, and sigma over t_i; c is -inf where there is no bound.
        """
        if len(running) > _WIDEST:
            return _NO_BOUND
        alone, _, _ = self._beside(kind, (), added)
        if not running:
            return alone, 0.0, 0.0, 0.0, 0.0
        whole = range(len(running))
        while_all, own_s, beside_s = self._beside(kind, running, added)
        times_s = self.arrays.time_s[self.number(kind, running)].tolist()
        first = min(beside_s[i] / times_s[i] for i in whole)
        while_some, last, slowest_s = while_all, first, own_s
        for part in [part for size in range(1, len(running)) for part in combinations(whole, size)]:
            cost_j, part_own_s, part_s = self._beside(kind, tuple([running[i] for i in part]), added)
            while_some, slowest_s = min(while_some, cost_j), max(slowest_s, part_own_s)
            last = min(last, *(part_s[place] / times_s[i] for place, i in enumerate(part)))
        after = min(while_some, alone)
        if after == -np.inf:
            return _NO_BOUND
        return after, while_some - after, last / slowest_s, while_all - while_some, first / own_s

    def _beside(self, kind: int, running: Set, added: Workload) -> tuple[float, float, list[float]]:
        """Return the least cost per iteration of one more workload, J, its time and those of the others, s.

        The cost is -inf where equal workloads are predicted to run at different paces.
        """
        key = kind, running, added
        if key not in self._joining:
            number, with_added = self.number(kind, running), tuple(sorted((*running, added)))
            joined = self.number(kind, with_added)
            times_s = self.arrays.time_s[joined, : len(with_added)].tolist()
            place, count = with_added.index(added), with_added.count(added)
            own_s, beside_s = times_s[place], times_s[:place] + times_s[place + 1 :]
            relieved_w = max(
                sum(cost_j / time_s for cost_j, time_s in zip(gradient, beside_s, strict=True))
                for gradient in self._gradient(number)
            )
            cost_j = (float(self.arrays.rate_w[joined]) - relieved_w) * own_s
            alike = len(set(times_s[place : place + count])) == 1
            self._joining[key] = cost_j if alike else -np.inf, own_s, beside_s
        return self._joining[key]

    def _gradient(self, number: int) -> list[tuple[float, ...]]:
        """Return the gradients of V of a set, one for each order in which its members end, J per iteration."""
        if number not in self._gradients:
            arrays, size = self.arrays, int(self.arrays.size[number])
            times_s = [float(time_s) for time_s in arrays.time_s[number, :size]]
            found: list[tuple[float, ...]] = [] if size else [()]
            for first in range(size):
                others_s = times_s[:first] + times_s[first + 1 :]
                for rest in self._gradient(int(arrays.without[number, first])):
                    relieved_w = sum(cost_j / time_s for cost_j, time_s in zip(rest, others_s, strict=True))
                    own_j = times_s[first] * (float(arrays.rate_w[number]) - relieved_w)
                    found.append((*rest[:first], own_j, *rest[first:]))
            self._gradients[number] = found
        return self._gradients[number]

    def _reserve(self) -> None:
        """Lengthen the arrays if all their rows are in use."""
        sets, workloads = self.arrays.joined.shape
        if len(self._sets) <= sets and len(self._list) <= workloads:
            return
        old = self.arrays
        self.arrays = _empty(
            2 * sets if len(self._sets) > sets else sets,
            2 * workloads if len(self._list) > workloads else workloads,
            self._most,
            self._predictions.clocks,
        )
        for new, array in zip(self.arrays, old, strict=True):
            new[tuple(slice(length) for length in array.shape)] = array


def grids_mhz(kinds: Sequence[Gpu], clocks: int) -> np.ndarray:
    """Return the clocks of each type of GPU, MHz, shape (kinds, c); zeros beyond the clocks of a type."""
    result = np.zeros((len(kinds), clocks), dtype=np.int64)
    for kind, gpu in enumerate(kinds):
        grid = clock_grid(gpu, clocks)
        result[kind, : len(grid)] = grid
    return result


def _empty(sets: int, workloads: int, most: int, clocks: int) -> SetArrays:
    return SetArrays(
        size=np.zeros(sets, dtype=np.int64),
        time_s=np.ones((sets, most)),
        rate_w=np.zeros(sets),
        without=np.zeros((sets, most), dtype=np.int64),
        member=np.full((sets, most), -1),
        joined=np.full((sets, workloads), -1),
        place=np.zeros((sets, workloads), dtype=np.int64),
        bound=np.zeros((sets, workloads, len(_NO_BOUND))),
        above_w=np.full((sets, clocks), np.inf),
        relative_time=np.ones((sets, clocks)),
        clock=np.zeros(sets, dtype=np.int64),
    )
