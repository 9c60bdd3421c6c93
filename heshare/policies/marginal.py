"""HeShare+ online, by marginal cost: each task where and when it adds least to energy and waiting; clocks likewise.

Beyond the paper. A second that a task spends in the system is given a price, so that energy and JCT are one cost:

    cost = energy above idle + price x sum of JCTs                                              (J = J + W x s)

Nothing is planned ahead and nothing is batched: at each arrival and completion every waiting task is tried beside what
runs on each GPU, and behind it, and takes the cheaper. A GPU's clock is the one at which the power that it draws and
the price of those who wait for it are least, for the work done. The price leads from one end of the front to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np

from heshare.policies.allocation.models import spread
from heshare.policies.description import check
from heshare.policies.policy import Action, Event, GpuView, SetClock, Start, Traits, View
from heshare.policies.registry import register
from heshare.prediction.predictor import FloatArray, Predictor
from heshare.world.catalogue import memory_mib
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

Set = tuple[Workload, ...]
"""Workloads that share a GPU, sorted."""


class Sets:
    """What the predictor says of sets of workloads at a few clocks of each GPU; each question once, many at a time.

    Args:
        predictor: what is believed.
        clocks: how many clocks of a GPU's grid, spread evenly.
        price_w: the price of a second in the system, W.
    """

    def __init__(self, predictor: Predictor, clocks: int, price_w: float) -> None:
        self.price_w = price_w
        self._predictor = predictor
        self._clocks = clocks
        self._known: dict[tuple[Gpu, Set], tuple[FloatArray, FloatArray]] = {}
        self._chosen: dict[tuple[Gpu, Set, int], int] = {}

    def learn(self, gpu: Gpu, sets: Iterable[Set]) -> None:
        """Ask for sets and all that is left of them as their tasks end, as far as they are not known."""
        parts = {part for each in sets for size in range(1, len(each) + 1) for part in combinations(each, size)}
        new = sorted(part for part in parts if (gpu, part) not in self._known)
        if not new:
            return
        grid = grid_of(gpu, self._clocks)
        asked = [tuple(Resident(workload) for workload in part) for part in new for _ in grid]
        answer = self._predictor.co_run(asked, gpu, grid * len(new))
        for number, part in enumerate(new):
            rows = slice(number * len(grid), (number + 1) * len(grid))
            self._known[gpu, part] = answer.time_s[rows, : len(part)], answer.power_w[rows]

    def alone_s(self, gpu: Gpu, workload: Workload) -> float:
        """Seconds per iteration alone at the top clock."""
        return float(self._known[gpu, (workload,)][0][-1, 0])

    def clock(self, gpu: Gpu, running: Set, behind: int) -> int:
        """The place of the cheapest clock for a set: (power above idle + price x tasks that run or wait) x time."""
        key = gpu, running, behind
        if key not in self._chosen:
            times_s, power_w = self._known[gpu, running]
            slowness = (times_s / times_s[-1]).mean(axis=1)
            rate_w = power_w - gpu.idle_w + self.price_w * (len(running) + behind)
            self._chosen[key] = int(np.argmin(rate_w * slowness))
        return self._chosen[key]

    def mhz(self, gpu: Gpu, running: Set, behind: int) -> int:
        """The cheapest clock for a set, MHz."""
        return grid_of(gpu, self._clocks)[self.clock(gpu, running, behind)]

    def drain(self, gpu: Gpu, running: Sequence[tuple[Workload, float]]) -> tuple[float, float]:
        """What it costs until everything that runs has ended, with nobody joining, and when that is.

        Args:
            gpu: the type of GPU.
            running: workloads and iterations left.

        Returns:
            The cost, J, and the time from now, s.
        """
        left = sorted(running)
        cost_j = now_s = 0.0
        while left:
            names = tuple(workload for workload, _ in left)
            place = self.clock(gpu, names, 0)
            times_s, power_w = self._known[gpu, names]
            ends_s = [iterations * float(times_s[place, at]) for at, (_, iterations) in enumerate(left)]
            step_s = min(ends_s)
            cost_j += step_s * (float(power_w[place]) - gpu.idle_w + self.price_w * len(left))
            now_s += step_s
            left = [
                (workload, iterations - step_s / float(times_s[place, at]))
                for at, (workload, iterations) in enumerate(left)
                if ends_s[at] > step_s * (1 + 1e-9)
            ]
        return cost_j, now_s


@cache
def grid_of(gpu: Gpu, clocks: int) -> list[int]:
    """So many clocks of a GPU's grid, as `spread` chooses them, MHz."""
    return list(spread(gpu.clocks_mhz, clocks))


@dataclass(slots=True)
class _Lane:
    """One GPU while an event is answered: what runs on it, what it will cost, and who queues for it."""

    view: GpuView
    running: list[tuple[Workload, float]]
    free_mib: float
    cost_j: float = 0.0
    end_s: float = 0.0
    queued: int = 0
    queued_s: float = 0.0

    @property
    def names(self) -> Set:
        return tuple(sorted(workload for workload, _ in self.running))

    @property
    def signature(self) -> tuple[object, ...]:
        """Lanes of one signature are as good as each other."""
        return self.view.gpu.name, tuple(self.running), self.free_mib, self.queued, self.queued_s


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to run a task: what it adds to the cost, for how long, and what then runs."""

    lane: _Lane
    later: bool
    cost_j: float
    seconds: float
    running: list[tuple[Workload, float]]


@register("marginal", title="HeShare+ marginal")
class Marginal:
    """Tasks of the waiting room, the shortest first, each where and when it adds least to the cost.

    Only tasks on one GPU. The defaults were chosen on task sets that no comparison uses.

    Args:
        price_w: the price of a second that a task spends in the system, W. About 30 is the end of least energy, 300
            and more that of least JCT.
        most: how many tasks share a GPU at most.
        clocks: how many clocks of a GPU's grid are considered.
        overlap: how long a task that queues is taken to hold up those behind it, as a share of its time alone: it
            will share the GPU with others.
        look: how many waiting tasks are considered at an event, the shortest first.
        sizes: the largest inference batch size that it may choose, in steps of two from the task's own up; 0 keeps the
            task's own.

    Raises:
        InputError: a parameter is out of its range.
    """

    name = "marginal"
    gangs = False
    tick_s: float | None = None
    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(
        self,
        price_w: float = 100.0,
        most: int = 4,
        clocks: int = 8,
        overlap: float = 0.7,
        look: int = 200,
        sizes: int = 0,
    ) -> None:
        check("price_w", price_w, 0 < price_w < np.inf, "watts above zero")
        check("most", most, most >= 1, "at least one task")
        check("clocks", clocks, clocks >= 1, "at least one clock")
        check("overlap", overlap, 0 <= overlap <= 1, "a share from 0 to 1")
        check("look", look, look >= 1, "at least one task")
        check("sizes", sizes, sizes >= 0, "an inference batch size, or 0 for the task's own")
        self._price_w, self._most, self._clocks, self._overlap, self._look = price_w, most, clocks, overlap, look
        self._sizes_to = sizes

    def reset(self, cluster: Cluster, predictor: Predictor, rng: np.random.Generator) -> None:
        """Forget everything."""
        self._kinds = cluster.kinds
        self._sets = Sets(predictor, self._clocks, self._price_w)
        self._runs: dict[int, Workload] = {}

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        """Try every waiting task everywhere; start those whose cheapest place is beside what runs."""
        lanes = [self._lane(gpu) for gpu in view.gpus]
        starts = []
        for task in self._shortest(view):
            gpu = self._place(task, view.remaining[task.id], lanes)
            if gpu is not None:
                size = self._runs[task.id].batch_size
                starts.append(Start(task.id, gpu, batch_size=None if size == task.workload.batch_size else size))
        for lane in lanes:
            if lane.running:
                wanted = self._sets.mhz(lane.view.gpu, lane.names, lane.queued)
                if wanted != lane.view.requested_mhz:
                    yield SetClock(lane.view.index, wanted)
        yield from starts

    def _lane(self, gpu: GpuView) -> _Lane:
        running = [(self._runs[each.task.id], each.remaining) for each in gpu.running.values()]
        lane = _Lane(gpu, running, gpu.free_mib)
        self._sets.learn(gpu.gpu, [lane.names])
        lane.cost_j, lane.end_s = self._sets.drain(gpu.gpu, running)
        return lane

    def _shortest(self, view: View) -> list[Task]:
        """The waiting tasks by their time alone on the GPU that suits them best."""
        for kind in self._kinds:
            self._sets.learn(kind, [(task.workload,) for task in view.waiting])
        times_s = {
            task.id: view.remaining[task.id] * min(self._sets.alone_s(kind, task.workload) for kind in self._kinds)
            for task in view.waiting
        }
        return sorted(view.waiting, key=lambda task: (times_s[task.id], task.id))[: self._look]

    def _place(self, task: Task, left: float, lanes: Sequence[_Lane]) -> int | None:
        """Enter a task where it costs least; the GPU if it is to start there now, None if it waits."""
        distinct = list({lane.signature: lane for lane in reversed(lanes)}.values())
        options = [
            option
            for workload in self._forms(task.workload)
            for option in self._options(workload, left * task.workload.batch_size / workload.batch_size, distinct)
        ]
        if not options:
            return None
        best = min(options, key=lambda option: (option.cost_j, option.later, option.lane.view.index))
        lane = best.lane
        if best.later:
            lane.queued += 1
            lane.queued_s += self._overlap * best.seconds
            return None
        self._runs[task.id] = best.running[-1][0]
        lane.running = best.running
        lane.free_mib -= memory_mib(best.running[-1][0])
        lane.cost_j, lane.end_s = best.cost_j + lane.cost_j, best.seconds
        return lane.view.index

    def _forms(self, workload: Workload) -> list[Workload]:
        """A workload at the inference batch sizes that may be chosen, its own first."""
        forms = [workload]
        while 2 * forms[-1].batch_size <= self._sizes_to:
            forms.append(replace(workload, batch_size=2 * forms[-1].batch_size))
        return forms

    def _options(self, workload: Workload, left: float, lanes: Sequence[_Lane]) -> Iterator[_Option]:
        """What it costs to run a task beside what runs on each GPU, and behind it."""
        need_mib = memory_mib(workload)
        beside = [lane for lane in lanes if self._joins(lane, need_mib)]
        for kind in self._kinds:
            own = [lane for lane in beside if lane.view.gpu == kind]
            self._sets.learn(kind, [(workload,), *(tuple(sorted((*lane.names, workload))) for lane in own)])
        for lane in lanes:
            if lane.running and need_mib <= lane.view.gpu.memory_mib:
                alone_j, alone_s = self._sets.drain(lane.view.gpu, [(workload, left)])
                yield _Option(lane, True, alone_j + self._price_w * (lane.end_s + lane.queued_s), alone_s, [])
        for lane in beside:
            together = [*lane.running, (workload, left)]
            cost_j, end_s = self._sets.drain(lane.view.gpu, together)
            yield _Option(lane, False, cost_j - lane.cost_j, end_s, together)

    def _joins(self, lane: _Lane, need_mib: float) -> bool:
        """Whether a task may start beside what runs: nobody is passed who queues for the same GPU."""
        room = min(self._most, lane.view.gpu.mps_clients)
        return not lane.queued and len(lane.running) < room and need_mib <= lane.free_mib
