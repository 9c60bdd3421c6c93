"""The resource configuration algorithm (Section III-C 2, Algorithm 1): batches, MPS percentages and SM clocks.

`configure` is the algorithm from top to bottom; the steps stand below it in the order of its 23 lines. Two things
differ in form from the paper's text, not in what is computed. All schemes of PS go through each step together (the loop
of line 2 is an axis of the arrays), so that the predictor gets a few large calls. And a queue of tasks that several
schemes have in common is configured once.
"""

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import DEFAULT_CLOCK, EMPTY, Batches, BatchModel, unconfigured_batches
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.objectives import Instance
from heshare.scheduling.pareto import non_dominated, non_dominated_indices, rounded_values, thin, thin_ordered
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.arrays import FloatArray, IntArray, distinct_rows

MOST_TRIALS = 1 << 17
"""Places of tasks in the batches that are predicted at once: more would need memory that grows with the task set."""
MOST_PLACED, LEAST_SCHEMES = 40_000, 20
"""Tasks in all schemes that are configured together, and schemes that are configured in any case."""


@dataclass(frozen=True, slots=True)
class Queues:
    """The distinct queues of the GPUs of several schemes.

    Attributes:
        kind: type of GPU of each queue, index in the instance's `kinds`, shape (q,).
        tasks: task indices of each queue, shorter tasks first, `EMPTY` after the last one, shape (q, w).
        length: number of tasks of each queue, shape (q,).
        of_gpu: the queue of each GPU of each scheme, `EMPTY` for none, shape (schemes, k).
    """

    kind: IntArray
    tasks: IntArray
    length: IntArray
    of_gpu: IntArray


@dataclass(frozen=True, slots=True)
class BatchedQueues:
    """Queues in batches (Eqs. 11-12).

    Attributes:
        batches: all batches, queue by queue in order of execution, b in all.
        queue: the queue of each batch, shape (b,).
        behind: number of tasks in later batches of its queue, shape (b,).
    """

    batches: Batches
    queue: IntArray
    behind: IntArray


def configure(
    schemes: Schemes, instance: Instance, predictor: Predictor | BatchModel, settings: Settings = DEFAULTS
) -> tuple[tuple[Plan, ...], FloatArray]:
    """Algorithm 1: batches, MPS percentages and clocks for Pareto schemes (Eq. 16).

    Minimises energy and average JCT of each scheme over the MPS percentages and clocks of its batches.

    Args:
        schemes: PS, the Pareto set of stage 1.
        instance: the problem instance that PS belongs to.
        predictor: predicts time and power; or a model of the instance's batches, to share it.
        settings: the choices that the paper leaves open.

    Returns:
        PS' (line 23): the plans of the final front in order of energy, and their [energy in J, average JCT in s],
        shape (m, 2).
    """
    model = predictor if isinstance(predictor, BatchModel) else BatchModel(instance, predictor)

    # Line 1: PS' begins with PS. All schemes of up to 200 tasks; of larger task sets so many that time and memory grow
    # no faster than the task set.
    most = min(settings.solutions, max(LEAST_SCHEMES, MOST_PLACED // instance.n))
    chosen = thin(schemes.objectives, most)
    gpus = schemes.gpus[chosen]

    # Lines 2 to 4: the assignment of each scheme S, on each GPU shorter tasks first.
    queues = spt_queues(gpus, instance)

    # Line 5: batches, split where that lowers the average JCT.
    batched = split_into_batches(queues, model, settings)

    # Lines 6 to 10: the MPS percentage of each task t of each batch B.
    mps_pct = mps_percentages(batched, model, settings)
    batched = replace(batched, batches=replace(batched.batches, mps_pct=mps_pct))

    # Lines 11 to 13: energy and JCTs of each queue at each clock. The last clock is the top one, which is line 11.
    clocks_mhz = clock_candidates(instance, settings)
    energy_j, jct_s = costs_at_clocks(batched, clocks_mhz, model, settings)

    # Lines 12 and 14 to 19, within each scheme: the clocks of its GPUs that no others dominate.
    points = []
    steps = []
    scheme = []
    for place, queue_of_gpu in enumerate(queues.of_gpu):
        point, step = combine_clocks(queue_of_gpu, energy_j, jct_s, settings)
        points.append(point)
        steps.append(step)
        scheme.append(np.full(len(point), place))
    clock_step = np.concatenate(steps)
    scheme_of = np.concatenate(scheme)

    # The average JCT of Eq. 15; however a queue is split, all of its tasks wait until their GPU can begin.
    begin_s = instance.begin_s[gpus].sum(axis=1)
    configured = np.concatenate(points)
    configured[:, 1] = configured[:, 1] / instance.n + begin_s[scheme_of] / instance.n

    # Lines 14 to 19, over all schemes: PS' keeps what nothing in it dominates, schemes of PS included.
    objectives = np.concatenate((configured, schemes.objectives[chosen]))
    front = np.flatnonzero(non_dominated(objectives))
    front = front[thin(objectives[front], settings.front)]

    # Line 15: a plan with the assignment, the percentages and the clocks of each point. A scheme of PS that stays runs
    # its tasks one by one, at 100 % and the default clock.
    sequential = split_into_batches(queues, model, replace(settings, batching="single"))
    shared_plans = PlanBuilder(batched, instance)
    sequential_plans = PlanBuilder(sequential, instance)
    plans = []
    for index in front:
        if index < len(configured):
            queue_of_gpu = queues.of_gpu[scheme_of[index]]
            clock_mhz = clocks_mhz[instance.kind_of, clock_step[index]]
            plans.append(shared_plans.plan(queue_of_gpu, clock_mhz, objectives[index]))
        else:
            queue_of_gpu = queues.of_gpu[index - len(configured)]
            clock_mhz = np.full(instance.k, DEFAULT_CLOCK)
            plans.append(sequential_plans.plan(queue_of_gpu, clock_mhz, objectives[index]))

    # Line 23: return PS'.
    return tuple(plans), objectives[front]


def spt_queues(schemes: IntArray, instance: Instance) -> Queues:
    """Return the distinct queues of p schemes, shape (p, n) (Algorithm 1, lines 3 and 4).

    Tasks with shorter execution times come first. GPUs of one type with the same tasks have the same queue, in one
    scheme or in several.
    """
    p, n = schemes.shape
    kind = instance.kind_of[schemes]
    spt_rank = instance.solo.spt_rank[kind, np.arange(n)]

    # Sorted by scheme, then GPU, then SPT rank, the tasks of a queue stand together.
    scheme = np.repeat(np.arange(p), n)
    order = np.lexsort((spt_rank.ravel(), schemes.ravel(), scheme))
    task = order % n
    owner = scheme[order] * instance.k + schemes.ravel()[order]
    begin = np.flatnonzero(np.diff(owner, prepend=-1))
    length = np.diff(begin, append=len(owner))

    # One row a queue: its type of GPU, then its tasks.
    rows = np.full((len(begin), int(length.max()) + 1), EMPTY)
    rows[:, 0] = kind.ravel()[order[begin]]
    position = np.arange(len(task)) - np.repeat(begin, length)
    rows[np.repeat(np.arange(len(begin)), length), 1 + position] = task

    # Equal rows are one queue; queues are numbered in order of first appearance.
    first, number = distinct_rows(rows)
    by_appearance = np.argsort(first)
    of_gpu = np.full((p, instance.k), EMPTY)
    of_gpu.ravel()[owner[begin]] = np.argsort(by_appearance)[number]
    kept = first[by_appearance]
    return Queues(rows[kept, 0], rows[kept, 1:], length[kept], of_gpu)


def split_into_batches(queues: Queues, model: BatchModel, settings: Settings) -> BatchedQueues:
    """Split queues into batches, by default where that lowers the average JCT (Algorithm 1, line 5).

    Each next task of a queue either joins the current batch or starts a new one. Joining slows the whole batch down;
    splitting makes the task wait for the batch's end. The tasks behind wait for both in either case, so the sum of all
    JCTs decides. All tasks have 100 % and the default clock. A task that does not fit the batch's memory, or would
    exceed the number of MPS clients, starts a new batch.
    """
    instance = model.instance
    capacity_mib = np.array([gpu.memory_mib for gpu in instance.kinds])[queues.kind]
    clients = np.array([gpu.mps_clients for gpu in instance.kinds])[queues.kind]
    count, width = queues.tasks.shape
    starts_batch = np.zeros((count, width), dtype=bool)
    starts_batch[:, 0] = True

    # The current batch of each queue: where it begins, its memory, its tasks' times and its own length.
    begin = np.zeros(count, dtype=np.int64)
    used_mib = instance.needs_mib[queues.tasks[:, 0]]
    times_s, end_s = _run_unconfigured(queues.kind, queues.tasks[:, :1], model)

    for step in range(1, width):
        rows = np.flatnonzero(queues.length > step)
        task = queues.tasks[rows, step]
        behind = queues.length[rows] - step - 1
        need_mib = instance.needs_mib[task]
        fits = (used_mib[rows] + need_mib <= capacity_mib[rows]) & (step - begin[rows] < clients[rows])

        split = ~fits
        if settings.batching == "single":
            split[:] = True
        elif settings.batching == "jct":
            own_s, _ = _run_unconfigured(queues.kind[rows], task[:, None], model)
            split_s = times_s[rows] + (1 + behind) * (end_s[rows] + own_s)

            joining = rows[fits]
            together = _positions(queues.tasks[joining], begin[joining], step)
            joined_times_s, joined_end_s = _run_unconfigured(queues.kind[joining], together, model)
            split[fits] = split_s[fits] < joined_times_s + behind[fits] * joined_end_s

            times_s[joining] = joined_times_s
            end_s[joining] = joined_end_s
            times_s[rows[split]] = own_s[split]
            end_s[rows[split]] = own_s[split]

        starts_batch[rows, step] = split
        used_mib[rows] = np.where(split, need_mib, used_mib[rows] + need_mib)
        begin[rows] = np.where(split, step, begin[rows])

    return _cut(queues, starts_batch)


def _run_unconfigured(kind: IntArray, tasks: IntArray, model: BatchModel) -> tuple[FloatArray, FloatArray]:
    # The sum of the tasks' times and the length of batches at 100 % and the default clock, s, shape (b,) each.
    run = model.execute(unconfigured_batches(kind, tasks))
    return run.time_s.sum(axis=1), run.end_s


def _positions(tasks: IntArray, begin: IntArray, last: int) -> IntArray:
    # The tasks at the positions `begin` to `last` of each row, `EMPTY` behind them.
    width = int(last + 1 - begin.min(initial=last))
    position = begin[:, None] + np.arange(width)
    found = np.take_along_axis(tasks, np.minimum(position, last), axis=1)
    return np.where(position <= last, found, EMPTY)


def _cut(queues: Queues, starts_batch: np.ndarray) -> BatchedQueues:
    # The batches that begin where `starts_batch` is true, each up to the next one's begin or the end of its queue.
    queue, begin = np.nonzero(starts_batch & (queues.tasks != EMPTY))
    is_last = np.append(queue[1:] != queue[:-1], True)
    end = np.where(is_last, queues.length[queue], np.append(begin[1:], 0))

    position = begin[:, None] + np.arange(int((end - begin).max()))
    found = queues.tasks[queue[:, None], np.minimum(position, end[:, None] - 1)]
    tasks = np.where(position < end[:, None], found, EMPTY)
    return BatchedQueues(unconfigured_batches(queues.kind[queue], tasks), queue, queues.length[queue] - end)


def mps_percentages(batched: BatchedQueues, model: BatchModel, settings: Settings) -> IntArray:
    """Return the MPS percentage of each task of each batch (Algorithm 1, lines 6-10), shape (b, w).

    Coordinate descent: from 100 % each, the tasks of a batch are set once each, in SPT order, to the percentage with
    the least `settings.mps_goal`, of equal ones to the largest. A task alone keeps 100 %: a limit can only slow it.
    """
    if settings.mps_goal == "none":
        return batched.batches.mps_pct.copy()

    # Equal batches get equal percentages; with the goal `queue` they must have as many tasks behind them, too.
    behind = batched.behind if settings.mps_goal == "queue" else np.zeros_like(batched.behind)
    keys = np.column_stack((behind, batched.batches.kind, batched.batches.tasks))
    first, inverse = distinct_rows(keys)
    batches = batched.batches.take(first)
    behind = behind[first]

    candidates = np.array(settings.mps_pcts[::-1])  # the largest first, which wins ties
    size = batches.members.sum(axis=1)
    width = batches.tasks.shape[1]
    for position in range(width):  # line 7
        shared = np.flatnonzero(size > max(position, 1))
        for rows in blocks(shared, width * len(candidates)):
            trials = batches.take(np.repeat(rows, len(candidates)))
            trials.mps_pct[:, position] = np.tile(candidates, len(rows))
            run = model.execute(trials)

            # Line 8: the percentage with the least score.
            if settings.mps_goal == "own":
                score = run.time_s[:, position]
            elif settings.mps_goal == "both":
                score = run.energy_j * run.time_s.sum(axis=1)
            else:
                score = run.jct_s(np.repeat(behind[rows], len(candidates)))
            score = score.reshape(len(rows), len(candidates))

            # Equal but for rounding is equal.
            is_least = score <= score.min(axis=1, keepdims=True) * (1 + 1e-9)
            batches.mps_pct[rows, position] = candidates[is_least.argmax(axis=1)]
    return batches.mps_pct[inverse]


def blocks(rows: IntArray, places: int) -> list[IntArray]:
    """Return rows in blocks of at most `MOST_TRIALS` places of tasks, where each row has so many."""
    if not len(rows):
        return []
    return np.array_split(rows, -(-len(rows) * places // MOST_TRIALS))


def clock_candidates(instance: Instance, settings: Settings) -> IntArray:
    """Return GPU_freqs of Algorithm 1: SM clocks of each GPU type, MHz, ascending, evenly spaced, shape (kinds, c).

    A GPU with fewer clocks repeats some of them. With `clock_scope="none"` the only candidate is the default clock.
    """
    if settings.clock_scope == "none":
        return np.full((len(instance.kinds), 1), DEFAULT_CLOCK)

    rows = []
    for gpu in instance.kinds:
        last = len(gpu.clocks_mhz) - 1
        index = np.linspace(0, last, settings.clocks) if settings.clocks > 1 else np.array([last])
        rows.append(np.array(gpu.clocks_mhz)[np.round(index).astype(np.int64)])
    return np.array(rows)


def costs_at_clocks(
    batched: BatchedQueues, clocks_mhz: IntArray, model: BatchModel, settings: Settings
) -> tuple[FloatArray, FloatArray]:
    """Return energy (Eq. 14, J) and sum of JCTs (Eq. 15, s) of each queue at each clock (Algorithm 1, lines 11-13).

    Args:
        batched: the queues, with their MPS percentages.
        clocks_mhz: candidates of each type of GPU, shape (kinds, c).
        model: predicts batches.
        settings: `piecewise` says whether tasks speed up when others end.

    Returns:
        Two arrays of shape (q, c).
    """
    batches = batched.batches
    clocks = clocks_mhz.shape[1]
    queues = int(batched.queue[-1]) + 1

    # Each distinct batch at each clock: its energy, its length, and the sum of its tasks' times.
    first, inverse = distinct_rows(np.column_stack((batches.kind, batches.tasks, batches.mps_pct)))
    batch_j = np.empty((len(first), clocks))
    end_s = np.empty((len(first), clocks))
    times_s = np.empty((len(first), clocks))
    for places in blocks(np.arange(len(first)), clocks * batches.tasks.shape[1]):
        trials = batches.take(np.repeat(first[places], clocks))
        trials = replace(trials, sm_mhz=clocks_mhz[batches.kind[first[places]]].ravel())
        run = model.execute(trials, piecewise=settings.piecewise)
        batch_j[places] = run.energy_j.reshape(-1, clocks)
        end_s[places] = run.end_s.reshape(-1, clocks)
        times_s[places] = run.time_s.sum(axis=1).reshape(-1, clocks)

    # A batch adds its energy (Eq. 14); to the JCTs its tasks' times, and its length for each task behind (Eq. 13).
    jct_s = times_s[inverse] + batched.behind[:, None] * end_s[inverse]
    queue_j = np.zeros((queues, clocks))
    queue_s = np.zeros((queues, clocks))
    np.add.at(queue_j, batched.queue, batch_j[inverse])
    np.add.at(queue_s, batched.queue, jct_s)
    return queue_j, queue_s


def combine_clocks(
    queue_of_gpu: IntArray, energy_j: FloatArray, jct_s: FloatArray, settings: Settings
) -> tuple[FloatArray, IntArray]:
    """Return the Pareto front of one scheme over the clocks of its GPUs (Algorithm 1, lines 12 and 14-19).

    With `clock_scope="gpu"` each GPU takes a clock of its own. Energy and the sum of JCTs add up over GPUs, so the
    front of k GPUs is the non-dominated part of all sums of a point of the first k - 1 and a point of the last. With
    `clock_scope="plan"` all GPUs take the same step of their clocks.

    Args:
        queue_of_gpu: the queue of each GPU, `EMPTY` for none, shape (k,).
        energy_j: energy of each queue at each clock, J, shape (q, c).
        jct_s: sum of JCTs likewise, s, shape (q, c).
        settings: `clock_scope`, and `merge`, which bounds the partial plans.

    Returns:
        [energy in J, sum of JCTs in s] of m plans, shape (m, 2), and the place of each GPU's clock, shape (m, k).
    """
    used = np.flatnonzero(queue_of_gpu != EMPTY)
    own_j = energy_j[queue_of_gpu[used]]
    own_s = jct_s[queue_of_gpu[used]]
    if settings.clock_scope == "plan":
        points = np.stack((own_j.sum(axis=0), own_s.sum(axis=0)), axis=1)
        kept = np.flatnonzero(non_dominated(points))
        return points[kept], np.repeat(kept[:, None], len(queue_of_gpu), axis=1)

    points, used_steps = _sum_queues(own_j, own_s, settings.merge)
    top = energy_j.shape[1] - 1
    steps = np.full((len(points), len(queue_of_gpu)), top)
    steps[:, used] = used_steps
    return points, steps


@njit(cache=True)
def _sum_queues(energy_j: FloatArray, jct_s: FloatArray, limit: int) -> tuple[FloatArray, IntArray]:
    """Return the front of all sums of one point of each queue, thinned to `limit` after each queue, and their clocks.

    `energy_j` and `jct_s` are of g queues at c clocks, (g, c); returned are points, (m, 2), and clocks, (m, g).
    """
    queues = len(energy_j)
    total_j = np.zeros(1)
    total_s = np.zeros(1)
    steps = np.zeros((1, queues), dtype=np.int64)

    for queue in range(queues):
        own = non_dominated_indices(rounded_values(energy_j[queue]), rounded_values(jct_s[queue]))
        count = len(total_j) * len(own)
        sums_j = np.empty(count)
        sums_s = np.empty(count)
        for place in range(count):
            before = place // len(own)
            clock = own[place % len(own)]
            sums_j[place] = total_j[before] + energy_j[queue, clock]
            sums_s[place] = total_s[before] + jct_s[queue, clock]

        front = non_dominated_indices(rounded_values(sums_j), rounded_values(sums_s))
        front = thin_ordered(sums_j, sums_s, front, limit)
        total_j = sums_j[front]
        total_s = sums_s[front]
        longer = np.empty((len(front), queues), dtype=np.int64)
        for place in range(len(front)):
            longer[place] = steps[front[place] // len(own)]
            longer[place, queue] = own[front[place] % len(own)]
        steps = longer

    points = np.empty((len(total_j), 2))
    points[:, 0] = total_j
    points[:, 1] = total_s
    return points, steps


class PlanBuilder:
    """Builds plans (Algorithm 1, line 15) of queues in batches. Each queue is built once at each clock."""

    def __init__(self, batched: BatchedQueues, instance: Instance) -> None:
        self._batched = batched
        self._instance = instance
        self._built: dict[tuple[int, int], tuple[Batch, ...]] = {}

    def plan(self, queue_of_gpu: IntArray, clocks_mhz: IntArray, objectives: FloatArray) -> Plan:
        """Return the plan of each GPU's queue (or `EMPTY`) and clock, shape (k,); objectives are [J, s], (2,)."""
        queues = []
        for queue, clock_mhz in zip(queue_of_gpu.tolist(), clocks_mhz.tolist(), strict=True):
            queues.append(() if queue == EMPTY else self._batches(queue, clock_mhz))
        return Plan(
            self._instance.cluster, self._instance.tasks, tuple(queues), float(objectives[0]), float(objectives[1])
        )

    def _batches(self, queue: int, clock_mhz: int) -> tuple[Batch, ...]:
        if (queue, clock_mhz) not in self._built:
            rows = np.flatnonzero(self._batched.queue == queue).tolist()
            self._built[queue, clock_mhz] = tuple(self._batch(row, clock_mhz) for row in rows)
        return self._built[queue, clock_mhz]

    def _batch(self, row: int, clock_mhz: int) -> Batch:
        batches = self._batched.batches
        is_member = batches.tasks[row] != EMPTY
        ids = tuple(self._instance.tasks[index].id for index in batches.tasks[row, is_member].tolist())
        return Batch(ids, tuple(batches.mps_pct[row, is_member].tolist()), clock_mhz or None)
