"""HeShare+: a search for better plans than the paper's, with the paper's batch model, and its three policies.

`docs/bound.md` has the derivation and its sources.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter

import numpy as np

from heshare.lab.plus.batch_table import DEFAULT_CHOICES, BatchChoices, BatchTable, FeasibleBatches
from heshare.lab.plus.fronts import (
    QueueFronts,
    front_of_queues,
    merged_front,
    suffix_fronts,
    suffix_sets,
    sum_fronts,
)
from heshare.lab.plus.local_search import assign, construct, descend, memo_of, perturb, queues_of
from heshare.policies.heshare import TITLES, FrontPolicy
from heshare.policies.policy import Traits
from heshare.policies.registry import register
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import EMPTY
from heshare.scheduling.front import Front, PlanChoice
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import non_dominated, thin
from heshare.scheduling.plan import Batch
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import require
from heshare.shared.interruption import InterruptedWithResult
from heshare.world.cluster import Cluster
from heshare.world.task import Task

Progress = Callable[[int, FloatArray], object]
"""Called with the rounds done and the objectives of the front so far, shape (m, 2); False stops the search."""
Queue = tuple[int, tuple[int, ...]]
"""A type of GPU and its tasks in SPT order."""
_NO_POINT = -1


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Limits of the search.

    R rounds with C coarse weights, W weights and P perturbations make about C + 3 W + (R - 2) W (1 + P) descents.

    Attributes:
        rounds: rounds along the weights, including the coarse first one.
        weights: weights on time between the ends of the front.
        coarse_weights: weights of the first round.
        perturbations: perturbations of the best assignment of every weight in each round, from the third on.
        perturbation_size: tasks that a perturbation moves.
        exhaustive_gpus: largest cluster on which every GPU is tried for every task; on larger ones a sample.
        sampled_gpus: GPUs sampled for a task.
        passes: passes over all tasks with a sample.
        swap_tasks: largest task set that is searched by swaps too.
        labels: about the largest number of partial plans of a queue for its front.
        sum_points: about the largest number of partial plans of several queues for the front of a cluster.
        front_plans: the largest number of plans in the final front.
        choices: the clocks and MPS percentages that a batch may have.

    Raises:
        InputError: a value is out of its range.
    """

    rounds: int = 8
    weights: int = 24
    coarse_weights: int = 7
    perturbations: int = 6
    perturbation_size: int = 3
    exhaustive_gpus: int = 40
    sampled_gpus: int = 6
    passes: int = 2
    swap_tasks: int = 200
    labels: int = 64
    sum_points: int = 128
    front_plans: int = 100
    choices: BatchChoices = DEFAULT_CHOICES

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "choices":
                least = _LEAST.get(field.name, 1)
                value = getattr(self, field.name)
                require(field.name, value, value >= least, f"at least {least}", "Correct the setting.")


_LEAST = {
    "weights": 2,
    "coarse_weights": 2,
    "perturbations": 0,
    "exhaustive_gpus": 0,
    "swap_tasks": 0,
    "labels": 4,
    "sum_points": 4,
    "front_plans": 3,
}

DEFAULT_SETTINGS = SearchSettings()


def optimise(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    effort: SearchSettings = DEFAULT_SETTINGS,
    budget_s: float | None = None,
    progress: Progress | None = None,
    ready_s: FloatArray | None = None,
    seeds: Sequence[IntArray] = (),
) -> Front:
    """Return the front of a task set, planned by HeShare+.

    Args:
        tasks: the task set; arrival times are ignored, all tasks are available at the start.
        cluster: the GPUs.
        predictor: predicts times and powers.
        rng: source of randomness; the same state gives the same front, byte for byte, unless a budget is given.
        effort: the limits of the search, and the clocks and MPS percentages that a batch may have.
        budget_s: time of the search, s, instead of `effort.rounds` rounds; the front then depends on the speed of
            the machine. The first round is always finished.
        progress: called after every round with the front so far; False stops the search.
        ready_s: when each GPU begins with these tasks, s from now, shape (k,); at once unless given.
        seeds: assignments to begin with in addition, GPU of each task, shape (n,), such as the last plan's.

    Returns:
        The final Pareto front, with `.trade_off`, `.en_opt` and `.jct_opt`.

    Raises:
        InputError: there is no task, one fits no GPU, or the budget is not a positive number.
        InterruptedWithResult: a Ctrl-C after the first weights, with the front so far.

    Example:
        On two GPUs of one type, the only non-dominated plan of two tasks runs one task on each.

        >>> from heshare.testing.toy import ToyPredictor, toy_gpu
        >>> from heshare.world.workload import Workload
        >>> tasks = Task(0, Workload("resnet18", 4), 2.0), Task(1, Workload("resnet18", 4), 5.0)
        >>> front = optimise(tasks, Cluster((toy_gpu(),) * 2), ToyPredictor(), rng=np.random.default_rng(0))
        >>> front.objectives.round(6).tolist()
        [[770.0, 3.5]]
    """
    start_s = perf_counter()
    good = budget_s is None or 0 <= budget_s < math.inf
    require("budget_s", budget_s, good, "finite seconds of at least zero, or None", "Correct the budget.")
    before = predictor.calls
    table = BatchTable(make_instance(tasks, cluster, predictor, ready_s), predictor, effort.choices)
    search = PlusSearch(table, effort, rng, seeds)
    try:
        search.run(None if budget_s is None else start_s + budget_s, progress)
    except KeyboardInterrupt as stop:
        if not len(search.objectives()) or type(stop) is not KeyboardInterrupt:
            raise
        front = replace(search.front(), predictor_rows=predictor.calls - before)
        raise InterruptedWithResult("the plans are those of the search so far", front) from None
    return replace(search.front(), predictor_rows=predictor.calls - before)


class PlusSearch:
    """The iterated local search over weights, with the archive of all assignments that it finds.

    `seeds` are assignments to begin with in addition, GPU of each task, shape (n,), such as the last plan's.

    Attributes:
        archive: the assignments found and their fronts.
    """

    def __init__(
        self, table: BatchTable, settings: SearchSettings, rng: np.random.Generator, seeds: Sequence[IntArray] = ()
    ) -> None:
        instance = table.instance
        self.archive = FrontArchive(table, settings)
        self._table = table
        self._settings = settings
        self._rng = rng
        self._seeds = list(seeds)
        self._memo = memo_of(table)
        self._longest: IntArray = np.argsort(-instance.time_of_kind.min(axis=1), kind="stable")
        self._exhaustive = instance.k <= settings.exhaustive_gpus
        self._swaps = instance.n <= settings.swap_tasks and self._exhaustive
        self._weights = np.zeros(0)
        self._best: list[IntArray] = []
        self._best_costs: list[float] = []

    def run(self, until_s: float | None = None, progress: Progress | None = None) -> None:
        """Search round by round, until the rounds are done or the time is over; the first round is always finished.

        `until_s` is a moment of `perf_counter`, s, None for `settings.rounds` rounds; `progress` is called after every
        round, and False stops the search.
        """
        self._find_weights()
        done = 1
        end_s = math.inf if until_s is None else until_s
        while progress is None or progress(done, self.objectives()) is not False:
            if perf_counter() >= end_s or (until_s is None and done >= self._settings.rounds):
                break
            self._refine(done, end_s)
            done += 1

    def objectives(self) -> FloatArray:
        """Return [energy in J, average JCT in s] of the front so far, by energy, shape (m, 2)."""
        return self.archive.objectives()

    def front(self) -> Front:
        """Return the front, thinned to at most `settings.front_plans` plans."""
        return self.archive.front()

    def _find_weights(self) -> None:
        """Search at coarse weights over the whole range; set the weights of the next rounds from the front's slopes."""
        instance = self._table.instance
        # At this weight energy and the sum of JCTs count about the same: E / T of queues of n / k tasks.
        energy_j = float(instance.best_j.sum())
        jct_s = float(instance.best_s.sum()) * (1 + instance.n / instance.k) / 2
        coarse = energy_j / jct_s * 10.0 ** np.linspace(-3, 3, self._settings.coarse_weights)
        schemes = [self._local_optimum(None, weight)[0] for weight in coarse]
        self.archive.add(schemes)

        low, high = self.archive.weight_range()
        self._weights = np.geomspace(low / 2, high * 2, self._settings.weights)
        nearest = np.abs(np.log(coarse)[None] - np.log(self._weights)[:, None]).argmin(axis=1)
        self._best = [schemes[index] for index in nearest]
        self._best_costs = [np.inf] * len(self._weights)

    def _refine(self, number: int, end_s: float) -> None:
        """Traverse the weights once, each from its best scheme and its neighbour's, then from perturbations."""
        forth = number % 2 == 1
        indices = range(len(self._weights))
        neighbour: int | None = None
        for index in indices if forth else reversed(indices):
            starts: list[IntArray | None] = [None, *self._seeds] if number == 1 else []

            # The coarse round's assignments were optimal for other weights: their cost at this one is not computed yet.
            if not np.isfinite(self._best_costs[index]):
                starts.append(self._best[index])
            if neighbour is not None:
                starts.append(self._best[neighbour])

            perturbations = self._settings.perturbations if number > 1 else 0
            for trial in range(len(starts) + perturbations):
                if perf_counter() >= end_s:
                    self.archive.add(self._best)
                    return
                perturbed = trial >= len(starts)
                start = self._best[index] if perturbed else starts[trial]
                scheme, cost = self._local_optimum(start, float(self._weights[index]), perturbed=perturbed)
                if cost < self._best_costs[index]:
                    self._best[index] = scheme
                    self._best_costs[index] = cost
            neighbour = index

        self.archive.add(self._best)

    def _local_optimum(
        self, start: IntArray | None, weight: float, *, perturbed: bool = False
    ) -> tuple[IntArray, float]:
        """Return a scheme improved until no move improves it, and its cost; without a start from a constructed one."""
        table = self._table
        settings = self._settings
        n = table.instance.n
        k = table.instance.k
        moved = self._rng.permutation(n)[: settings.perturbation_size if perturbed else 0]
        moved_to = self._rng.integers(k, size=len(moved))
        order = self._rng.permutation(n)
        # With all GPUs as targets, a descent ends by itself; n * n passes are no limit.
        targets = np.tile(np.arange(k), (n, 1)) if self._exhaustive else self._sampled_gpus(n)
        passes = n * n if self._exhaustive else settings.passes

        queues = queues_of(table, weight)
        if start is None:
            construct(table.arrays, self._memo, queues, self._longest)
        else:
            assign(table.arrays, self._memo, queues, start)
        perturb(table.arrays, self._memo, queues, moved, moved_to)
        cost = descend(table.arrays, self._memo, queues, order, targets, self._swaps, passes)
        return queues.gpu_of, cost

    def _sampled_gpus(self, n: int) -> IntArray:
        kind_of = self._table.instance.kind_of
        groups = [np.flatnonzero(kind_of == kind) for kind in range(kind_of.max() + 1)]
        per_kind = -(-self._settings.sampled_gpus // len(groups))
        return np.concatenate([gpus[self._rng.integers(len(gpus), size=(n, per_kind))] for gpus in groups], axis=1)


class FrontArchive:
    """The assignments found by a search and the front of all their plans; the front of each queue is computed once.

    Attributes:
        points: [energy in J, sum of JCTs in s] of the front so far, by energy, shape (m, 2).
    """

    def __init__(self, table: BatchTable, settings: SearchSettings) -> None:
        self.points = np.zeros((0, 2))
        self._table = table
        self._front_plans = settings.front_plans
        # The more queues are summed, the fewer points each one needs.
        many = table.instance.k > settings.exhaustive_gpus
        self._labels = min(settings.labels, 16) if many else settings.labels
        self._sum_points = min(settings.sum_points, 48) if many else settings.sum_points
        self._stored: dict[Queue, tuple[QueueFronts, FeasibleBatches]] = {}
        self._seen: set[tuple[Queue, ...]] = set()
        self._sources: list[tuple[tuple[Queue, ...], IntArray]] = []
        self._batches_at: dict[tuple[Queue, int], tuple[Batch, ...]] = {}

    def add(self, schemes: Iterable[IntArray]) -> None:
        """Add the fronts of schemes, GPU of each task, shape (n,), and retain the non-dominated points."""
        new = []
        for scheme in schemes:
            queues = self._queues_of(scheme)
            # GPUs of a type are alike unless they begin at different times, so permutations are the same assignment.
            signature = queues if self._table.instance.begin_s.any() else tuple(sorted(queues))
            if signature not in self._seen:
                self._seen.add(signature)
                new.append(queues)
        self._store_fronts(sorted({queue for queues in new for queue in queues if queue[1]} - self._stored.keys()))
        for queues in new:
            self._add_points(queues)

    def objectives(self) -> FloatArray:
        """Return [energy in J, average JCT in s] of the front so far, by energy, shape (m, 2)."""
        return np.asarray(self.points / np.array([1.0, self._table.instance.n]))

    def weight_range(self) -> tuple[float, float]:
        """Return the smallest and the largest slope of the front, which is a weight on the sum of JCTs, J / s."""
        points = self.points
        if len(points) < 2:
            return 1.0, 1.0
        # Neighbours that almost coincide have extreme slopes; a few points spread over the front do not.
        chosen = thin(points, 12)
        slopes = -np.diff(points[chosen, 0]) / np.diff(points[chosen, 1])
        return float(slopes.min()), float(slopes.max())

    def front(self) -> Front:
        """Return the front, thinned to at most `settings.front_plans` plans."""
        objectives = self.objectives()
        kept = np.flatnonzero(non_dominated(objectives))
        kept = kept[thin(objectives[kept], self._front_plans)]
        plans = []
        for point in kept.tolist():
            queues, chosen = self._sources[point]
            plans.append(tuple(self._batches(queue, int(at)) for queue, at in zip(queues, chosen, strict=True)))
        return front_of_queues(self._table.instance, plans, objectives[kept])

    def _queues_of(self, scheme: IntArray) -> tuple[Queue, ...]:
        kind_of = self._table.instance.kind_of
        order = np.lexsort((self._table.rank[kind_of[scheme], np.arange(len(scheme))], scheme))
        parts = np.split(order, np.searchsorted(scheme[order], np.arange(1, len(kind_of))))
        return tuple((kind, tuple(part.tolist())) for kind, part in zip(kind_of.tolist(), parts, strict=True))

    def _store_fronts(self, queues: list[Queue]) -> None:
        """Compute the fronts of queues; the options of all queues of a type are computed at once."""
        width = self._table.width
        for kind in sorted({kind for kind, _ in queues}):
            of_kind = [(np.array(tasks), suffix_sets(len(tasks), width)) for at, tasks in queues if at == kind]
            tasks_of_sets = [np.where(sets == EMPTY, EMPTY, order[sets]) for order, sets in of_kind]
            options = self._table.options(kind, np.concatenate(tasks_of_sets))
            row = 0
            for order, sets in of_kind:
                part = options.part(row, row + len(sets))
                row += len(sets)
                front = suffix_fronts(len(order), width, part, self._labels)
                self._stored[kind, tuple(order.tolist())] = front, FeasibleBatches(order, sets, part)

    def _add_points(self, queues: tuple[Queue, ...]) -> None:
        """Add the sums of the fronts of an assignment's queues."""
        used = [gpu for gpu, queue in enumerate(queues) if queue[1]]
        fronts = [self._stored[queues[gpu]][0].of(len(queues[gpu][1])) for gpu in used]
        sums, chosen = sum_fronts(fronts, self._sum_points)
        begin_s = self._table.instance.begin_s
        sums[:, 1] += sum(float(begin_s[gpu]) * len(queues[gpu][1]) for gpu in used)
        points = np.full((len(sums), len(queues)), _NO_POINT)
        points[:, used] = chosen

        joined = np.concatenate((self.points, sums))
        kept = merged_front(joined)
        old = len(self.points)
        self._sources = [self._sources[at] if at < old else (queues, points[at - old]) for at in kept.tolist()]
        self.points = joined[kept]

    def _batches(self, queue: Queue, point: int) -> tuple[Batch, ...]:
        if point == _NO_POINT:
            return ()
        if (queue, point) not in self._batches_at:
            fronts, feasible = self._stored[queue]
            options = fronts.options(int(fronts.begin[-2]) + point)
            batches = tuple(feasible.batch(option, self._table.instance) for option in options)
            self._batches_at[queue, point] = batches
        return self._batches_at[queue, point]


class HeSharePlus(FrontPolicy):
    """One plan of HeShare+'s front, released batch by batch as HeShare's plans are.

    Args:
        choice: `trade-off` (the knee), `en-opt` (least energy) or `jct-opt` (least average JCT).
        rounds: rounds of the search.

    Raises:
        InputError: fewer than one round.
    """

    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(self, choice: PlanChoice = "trade-off", *, rounds: int = DEFAULT_SETTINGS.rounds) -> None:
        self.effort = replace(DEFAULT_SETTINGS, rounds=rounds)
        super().__init__(choice, ("heshare+", self.effort))
        self.name = f"heshare+:{choice}"

    def plan_front(self, tasks: Sequence[Task], predictor: Predictor) -> Front:
        """Return HeShare+'s front."""
        return optimise(tasks, self.cluster, predictor, rng=self.rng, effort=self.effort)


def _register(choice: PlanChoice, title: str) -> None:
    @register(
        f"heshare+:{choice}", title=f"HeShare+ {title}", parameters={"rounds": DEFAULT_SETTINGS.rounds}, preset={}
    )
    def policy(*, rounds: int = DEFAULT_SETTINGS.rounds) -> HeSharePlus:
        return HeSharePlus(choice, rounds=rounds)


for _choice, _title in TITLES.items():
    _register(_choice, _title)
