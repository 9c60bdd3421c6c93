"""The resource configuration algorithm (Section III-C 2, Algorithm 1): batches, MPS percentages and SM clocks.

`configure` is the algorithm from top to bottom; its steps follow below it in the order of the paper's 23 lines. In form
it differs in three ways. The loops of lines 2, 6 and 12 are axes of arrays, so that the predictor gets a few large
calls: neither schemes nor batches affect each other. Queues and batches that several schemes have in common are
configured once. And domination is tested for all solutions together (lines 14 to 19), once within each scheme and once
over all, so that a plan is formed (line 15) only for what stays.

What is ours, since the text leaves it open (`Settings` has every choice, `Settings.literal()` the one nearest to the
text):

- PS, the partial plans of a scheme, and PS' are thinned to a largest size, and clocks are a sample of each GPU's list.
- A task joins a batch or starts one, from left to right in the queue; memory and MPS clients limit a batch (line 5).
- A percentage minimises the JCTs of the whole batch (line 8; the text: of the task), all others at their present value.
  A task alone keeps 100 %.
- Each GPU has a clock of its own (line 12; the text: one for all, of which `literal` takes the same step of each list).
- Batches and percentages are chosen as if all tasks of a batch stayed until its end (Eq. 13), at the default clock: no
  clock is set, and the card takes its top one. Lines 11 to 13 judge plans with tasks that speed up when others end, as
  on a device; the text: by Eq. 13 as well.
- A GPU may begin later than the others (`Instance.begin_s`), for online planning; in the paper's setting all begin at
  0.
"""

from dataclasses import dataclass, replace

import numpy as np

from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import DEFAULT_CLOCK, EMPTY, Batches, BatchModel, unconfigured_batches
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.objectives import Instance
from heshare.scheduling.pareto import non_dominated, non_dominated_indices, rounded_values, thin, thin_ordered
from heshare.scheduling.plan import Batch, Plan
from heshare.scheduling.settings import DEFAULTS, Settings
from heshare.shared.arrays import FloatArray, IntArray, distinct_rows
from heshare.shared.compiled import njit

MOST_PLACES = 1 << 17
"""About how many places of tasks the batches have that are predicted at once, which bounds memory."""
MOST_PLACED = 40_000
"""Largest number of schemes times tasks that is configured: of up to 200 tasks all 200 schemes of an archive."""
LEAST_SCHEMES = 20
"""Schemes that are configured however many tasks there are."""


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

    Minimises energy and average JCT of each scheme over the MPS percentages of its tasks and the clocks of its GPUs.

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

    # Line 1: PS' begins with PS; of large task sets with so many schemes that time and memory grow no faster than the
    # task set. `gpus` has the GPU of each task in each scheme, shape (schemes, n).
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

    # Lines 11 to 13: energy and sum of JCTs of each queue at each clock. The top clock is that of line 11.
    clocks_mhz = clock_candidates(instance, settings)
    energy_j, jct_s = costs_at_clocks(batched, clocks_mhz, model, settings)

    # Lines 12 and 14 to 19, within each scheme: the combinations of its GPUs' clocks whose energy and JCTs no other
    # combination dominates.
    points = []
    clocks = []
    schemes_of_points = []
    for scheme, queue_of_gpu in enumerate(queues.of_gpu):
        point, clock = combine_clocks(queue_of_gpu, energy_j, jct_s, settings)
        points.append(point)
        clocks.append(clock)
        schemes_of_points.append(np.full(len(point), scheme))
    clock_index = np.concatenate(clocks)
    scheme_of = np.concatenate(schemes_of_points)

    # The average JCT of Eq. 15; however a queue is split, all of its tasks wait until their GPU can begin (`begin_s`, 0
    # in the paper's setting).
    waits_s = instance.begin_s[gpus].sum(axis=1)
    configured = np.concatenate(points)
    configured[:, 1] = configured[:, 1] / instance.n + waits_s[scheme_of] / instance.n

    # Lines 14 to 19, over all schemes: PS' keeps what nothing in it dominates. To add solutions one by one and remove
    # those that a new one dominates leaves the same set. Line 14 needs no test: what does not improve on S is dominated
    # by S, which is in the set, or equal to it. Of equal solutions the first stays, which is the configured one.
    objectives = np.concatenate((configured, schemes.objectives[chosen]))
    front = np.flatnonzero(non_dominated(objectives))
    front = front[thin(objectives[front], settings.front)]

    # Line 15: a plan with the assignment, the percentages and the clocks of each point. A scheme of PS that stays runs
    # as stage 1 evaluated it: one task after the other, at 100 % and the default clock.
    sequential = split_into_batches(queues, model, replace(settings, batching="single"))
    shared_plans = PlanBuilder(batched, instance)
    sequential_plans = PlanBuilder(sequential, instance)
    plans = []
    for index in front:
        if index < len(configured):
            queue_of_gpu = queues.of_gpu[scheme_of[index]]
            clock_mhz = clocks_mhz[instance.kind_of, clock_index[index]]
            plans.append(shared_plans.plan(queue_of_gpu, clock_mhz, objectives[index]))
        else:
            queue_of_gpu = queues.of_gpu[index - len(configured)]
            clock_mhz = np.full(instance.k, DEFAULT_CLOCK)
            plans.append(sequential_plans.plan(queue_of_gpu, clock_mhz, objectives[index]))

    # Line 23: return PS'.
    return tuple(plans), objectives[front]


def spt_queues(gpus: IntArray, instance: Instance) -> Queues:
    """Return the distinct queues of p schemes, GPUs of shape (p, n) (Algorithm 1, lines 3 and 4).

    Tasks with shorter execution times come first. GPUs of one type with the same tasks have the same queue, in one
    scheme or in several.
    """
    p, n = gpus.shape
    kind = instance.kind_of[gpus]
    spt_rank = instance.solo.spt_rank[kind, np.arange(n)]

    # Sorted by scheme, then GPU, then SPT rank, the tasks of a queue are adjacent.
    scheme = np.repeat(np.arange(p), n)
    order = np.lexsort((spt_rank.ravel(), gpus.ravel(), scheme))
    task = order % n
    owner = scheme[order] * instance.k + gpus.ravel()[order]
    begin = np.flatnonzero(np.diff(owner, prepend=-1))
    length = np.diff(begin, append=len(owner))

    # One row a queue: its type of GPU, then its tasks.
    rows = np.full((len(begin), int(length.max()) + 1), EMPTY)
    rows[:, 0] = kind.ravel()[order[begin]]
    position = np.arange(len(task)) - np.repeat(begin, length)
    rows[np.repeat(np.arange(len(begin)), length), 1 + position] = task

    # Equal rows are one queue. `distinct_rows` numbers them by their bytes; here they are numbered as they appear, so
    # that the order of plans does not depend on bytes. The `argsort` of a permutation is its inverse.
    first, number = distinct_rows(rows)
    by_appearance = np.argsort(first)
    of_gpu = np.full((p, instance.k), EMPTY)
    of_gpu.ravel()[owner[begin]] = np.argsort(by_appearance)[number]
    kept = first[by_appearance]
    return Queues(rows[kept, 0], rows[kept, 1:], length[kept], of_gpu)


def split_into_batches(queues: Queues, model: BatchModel, settings: Settings) -> BatchedQueues:
    """Split queues into batches (Algorithm 1, line 5), by `settings.batching`.

    `jct`, the default and the paper's, splits where that lowers the average JCT; `memory` where a batch is full;
    `single` after every task. With `jct`, each next task of a queue either joins the current batch or starts a new one.
    Joining slows the whole batch down; splitting makes the task wait for the batch's end. The tasks behind wait for
    both in either case, so the sum of all JCTs decides. All tasks have 100 % and the default clock. A task that does
    not fit the batch's memory, or would exceed the number of MPS clients, starts a new batch.
    """
    instance = model.instance
    capacity_mib = np.array([gpu.memory_mib for gpu in instance.kinds])[queues.kind]
    clients = np.array([gpu.mps_clients for gpu in instance.kinds])[queues.kind]
    count, width = queues.tasks.shape
    starts_batch = np.zeros((count, width), dtype=bool)
    starts_batch[:, 0] = True

    # The current batch of each queue: where it begins, its memory, the sum of its tasks' times, and its own length.
    begin = np.zeros(count, dtype=np.int64)
    used_mib = instance.needs_mib[queues.tasks[:, 0]]
    sum_s, end_s = _run_unconfigured(queues.kind, queues.tasks[:, :1], model)

    for position in range(1, width):
        rows = np.flatnonzero(queues.length > position)
        task = queues.tasks[rows, position]
        behind = queues.length[rows] - position - 1
        need_mib = instance.needs_mib[task]
        fits = (used_mib[rows] + need_mib <= capacity_mib[rows]) & (position - begin[rows] < clients[rows])

        split = ~fits
        if settings.batching == "single":
            split[:] = True
        elif settings.batching == "jct":
            alone_s, _ = _run_unconfigured(queues.kind[rows], task[:, None], model)
            # Split, the task and all behind it wait for the current batch, and those behind for the task, too. What
            # they wait for earlier batches is the same in both cases and left out.
            split_s = sum_s[rows] + (1 + behind) * (end_s[rows] + alone_s)

            joining = rows[fits]
            together = _positions(queues.tasks[joining], begin[joining], position)
            joined_sum_s, joined_end_s = _run_unconfigured(queues.kind[joining], together, model)
            split[fits] = split_s[fits] < joined_sum_s + behind[fits] * joined_end_s

            # The batch is the task alone where it was split, else the one that it joined.
            sum_s[joining] = joined_sum_s
            end_s[joining] = joined_end_s
            sum_s[rows[split]] = alone_s[split]
            end_s[rows[split]] = alone_s[split]

        starts_batch[rows, position] = split
        used_mib[rows] = np.where(split, need_mib, used_mib[rows] + need_mib)
        begin[rows] = np.where(split, position, begin[rows])

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

    One pass of coordinate descent at the default clock: from 100 % each, the tasks of a batch are set once each, in SPT
    order, to the percentage with the least `settings.mps_goal`, of equal ones to the largest. Goals are the sum of JCTs
    of the batch (`batch`, the default), with the delay of the tasks behind (`queue`), the task's own JCT (`own`, the
    text of line 8), or the batch's energy times that sum (`both`). Percentages may sum to more than 100. A task alone
    keeps 100 %.
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
        shared = np.flatnonzero((size > 1) & (size > position))
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
    """Return rows, each with so many places of tasks, in equal blocks of about `MOST_PLACES` places."""
    if not len(rows):
        return []
    return np.array_split(rows, -(-len(rows) * places // MOST_PLACES))


def clock_candidates(instance: Instance, settings: Settings) -> IntArray:
    """Return GPU_freqs of Algorithm 1: SM clocks of each GPU type, MHz, ascending, shape (kinds, c).

    They are evenly spaced in each GPU's list of clocks, with both ends.

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
    queue_count = int(batched.queue[-1]) + 1

    # Each distinct batch at each clock: its energy, its length, and the sum of its tasks' times. Equal batches of
    # several queues have other numbers of tasks behind them, which are counted below.
    first, inverse = distinct_rows(np.column_stack((batches.kind, batches.tasks, batches.mps_pct)))
    batch_j = np.empty((len(first), clocks))
    end_s = np.empty((len(first), clocks))
    sum_s = np.empty((len(first), clocks))
    for places in blocks(np.arange(len(first)), clocks * batches.tasks.shape[1]):
        trials = batches.take(np.repeat(first[places], clocks))
        trials = replace(trials, sm_mhz=clocks_mhz[batches.kind[first[places]]].ravel())
        run = model.execute(trials, piecewise=settings.piecewise)
        batch_j[places] = run.energy_j.reshape(-1, clocks)
        end_s[places] = run.end_s.reshape(-1, clocks)
        sum_s[places] = run.time_s.sum(axis=1).reshape(-1, clocks)

    # A batch adds its energy (Eq. 14); to the JCTs its tasks' times, and its length for each task behind (Eq. 13).
    jct_s = sum_s[inverse] + batched.behind[:, None] * end_s[inverse]
    queue_j = np.zeros((queue_count, clocks))
    queue_s = np.zeros((queue_count, clocks))
    np.add.at(queue_j, batched.queue, batch_j[inverse])
    np.add.at(queue_s, batched.queue, jct_s)
    return queue_j, queue_s


def combine_clocks(
    queue_of_gpu: IntArray, energy_j: FloatArray, jct_s: FloatArray, settings: Settings
) -> tuple[FloatArray, IntArray]:
    """Return the Pareto front of one scheme over its GPUs' clocks, thinned to `merge` (Algorithm 1, lines 12, 14-19).

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
    queue_j = energy_j[queue_of_gpu[used]]
    queue_s = jct_s[queue_of_gpu[used]]
    if settings.clock_scope == "plan":
        points = np.stack((queue_j.sum(axis=0), queue_s.sum(axis=0)), axis=1)
        kept = np.flatnonzero(non_dominated(points))
        return points[kept], np.repeat(kept[:, None], len(queue_of_gpu), axis=1)

    points, used_clocks = _sum_queues(queue_j, queue_s, settings.merge)
    top = energy_j.shape[1] - 1
    clock_index = np.full((len(points), len(queue_of_gpu)), top)
    clock_index[:, used] = used_clocks
    return points, clock_index


@njit(cache=True)
def _sum_queues(energy_j: FloatArray, jct_s: FloatArray, limit: int) -> tuple[FloatArray, IntArray]:
    """Return the front of all sums of one point of each queue, thinned to `limit` after each queue, and their clocks.

    A partial plan that another one dominates is part of no plan of the front, since sums keep the order.

    `energy_j` and `jct_s` are of g queues at c clocks, (g, c); returned are points, (m, 2), and clocks, (m, g).
    """
    queue_count = len(energy_j)
    total_j = np.zeros(1)
    total_s = np.zeros(1)
    clocks = np.zeros((1, queue_count), dtype=np.int64)

    for queue in range(queue_count):
        own = non_dominated_indices(rounded_values(energy_j[queue]), rounded_values(jct_s[queue]))
        count = len(total_j) * len(own)
        sums_j = np.empty(count)
        sums_s = np.empty(count)
        for place in range(count):
            # All pairs of a partial plan and a clock: place = partial plan x clocks + clock.
            before = place // len(own)
            clock = own[place % len(own)]
            sums_j[place] = total_j[before] + energy_j[queue, clock]
            sums_s[place] = total_s[before] + jct_s[queue, clock]

        front = non_dominated_indices(rounded_values(sums_j), rounded_values(sums_s))
        front = thin_ordered(sums_j, sums_s, front, limit)
        total_j = np.empty(len(front))
        total_s = np.empty(len(front))
        longer = np.empty((len(front), queue_count), dtype=np.int64)
        for place in range(len(front)):
            total_j[place] = sums_j[front[place]]
            total_s[place] = sums_s[front[place]]
            for earlier in range(queue):
                longer[place, earlier] = clocks[front[place] // len(own), earlier]
            longer[place, queue] = own[front[place] % len(own)]
        clocks = longer

    points = np.empty((len(total_j), 2))
    for place in range(len(total_j)):
        points[place, 0] = total_j[place]
        points[place, 1] = total_s[place]
    return points, clocks


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
