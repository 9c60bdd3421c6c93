"""The operators of stage 1 (Section III-B 2): initialisation, selection, elitism selection, priority mutation.

Each is a pure function over a whole population: a scheme is a row of GPU indices, one for each task.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from scipy.stats import rankdata

from heshare.scheduling.objectives import BoolArray, FloatArray, Instance, IntArray, Queues, queues, sum_by_gpu
from heshare.scheduling.pareto import crowding, ranks, significant
from heshare.scheduling.settings import Settings


def average_ranks(world: Instance) -> FloatArray:
    """Each GPU's average rank by energy and by time for each task, shape (n, k); infinite where it does not fit."""
    by_energy = rankdata(significant(world.energy_j), method="min", axis=1)
    by_time = rankdata(significant(world.time_s + world.begin_s), method="min", axis=1)
    return np.where(world.fits, (by_energy + by_time) / 2, np.inf)


def anywhere(fits: BoolArray, count: int, rng: np.random.Generator) -> IntArray:
    """`count` schemes that put every task on a GPU drawn uniformly from those it fits, shape (count, n)."""
    # One scheme at a time: all at once would not fit into memory on a large cluster.
    return np.array([np.where(fits, rng.random(fits.shape), -1.0).argmax(axis=1) for _ in range(count)])


def initialise(world: Instance, settings: Settings, rng: np.random.Generator) -> IntArray:
    """The initial population; by default multi-objective initialisation (Section III-B 2a).

    That puts every task on a GPU with the least average rank.

    Equal ranks are drawn anew for each individual. The rule alone gives nearly equal individuals, so all but the
    first are then mutated at random, each at its own rate.

    Returns:
        Schemes, shape (population, n).
    """
    if settings.initialisation == "random":
        return anywhere(world.fits, settings.population, rng)
    rank, count = average_ranks(world), settings.population
    seeds = anywhere(rank == rank.min(axis=1, keepdims=True), count, rng)
    rate = settings.seed_mutation * rng.random((count, 1))
    rate[0] = 0.0
    strays = rng.random(seeds.shape) < rate
    return np.where(strays, anywhere(world.fits, count, rng), seeds)


def tournament(rank: IntArray, distance: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    """Binary tournament: indices of `count` winners by front, then by crowding distance, shape (count,)."""
    one, other = rng.integers(len(rank), size=(2, count))
    lost = (rank[other] < rank[one]) | ((rank[other] == rank[one]) & (distance[other] > distance[one]))
    winners: IntArray = np.where(lost, other, one)
    return winners


def environmental_selection(objectives: FloatArray, count: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Who lives on: the best `count` of m by front, then by crowding distance, then by age.

    Args:
        objectives: of parents and offspring, shape (m, 2).
        count: how many.

    Returns:
        Their indices, fronts and crowding distances, each of shape (count,).
    """
    rank = ranks(objectives)
    distance = crowding(objectives, rank)
    kept = np.lexsort((-distance, rank))[:count]
    return kept, rank[kept], distance[kept]


def segment_scores(schemes: IntArray, parts: FloatArray, world: Instance, settings: Settings) -> FloatArray:
    """By what the GPUs' subsets are compared in crossover: [energy, JCT], less is better, shape (p, k, 2).

    `totals` are the subsets' own sums. `normalised` divides them by the least energy and time that their tasks need
    anywhere; a GPU without tasks then stands at its scheme's own level, neither good nor bad.
    """
    if settings.segments == "totals":
        return parts
    bests = (world.best_j, world.best_s)
    least = np.stack([sum_by_gpu(schemes, np.broadcast_to(best, schemes.shape), world.k) for best in bests], axis=2)
    level = parts.sum(axis=1, keepdims=True) / least.sum(axis=1, keepdims=True)
    scores: FloatArray = np.divide(parts, least, out=np.broadcast_to(level, parts.shape).copy(), where=least > 0)
    return scores


def elitism_selection(
    parents: tuple[IntArray, IntArray],
    scores: tuple[FloatArray, FloatArray],
    world: Instance,
    rng: np.random.Generator,
) -> IntArray:
    """Multi-objective elitism selection (Section III-B 2b): each GPU's better subset goes to the child.

    Each child has its own targeted objective, a weight between energy and JCT, which decides when one parent's
    subset is better in the one and worse in the other. A task that both subsets claim (a conflict) goes with the
    better subset; one that neither brings (an omission) goes to whichever of its parents' GPUs suits it better.

    Args:
        parents: schemes of p pairs, each of shape (p, n).
        scores: their `segment_scores`, each of shape (p, k, 2).
        world: the task set on its cluster.
        rng: draws the targeted objectives.

    Returns:
        One child a pair, shape (p, n).
    """
    first, second = parents
    p, n = first.shape
    energy_weight = rng.random((p, 1))
    both = scores[0] + scores[1]
    share = np.divide(scores[0], both, out=np.full_like(both, 0.5), where=both > 0)
    first_score = energy_weight * share[:, :, 0] + (1 - energy_weight) * share[:, :, 1]
    row, task = np.arange(p)[:, None], np.arange(n)
    at_first, at_second = first_score[row, first], 1 - first_score[row, second]
    first_offers, second_offers = at_first <= 0.5, at_second < 0.5
    suits = energy_weight * (world.energy_j[task, first] - world.energy_j[task, second]) / world.best_j
    suits += (1 - energy_weight) * (world.time_s[task, first] - world.time_s[task, second]) / world.best_s
    repaired = np.where(first_offers & second_offers, at_first <= at_second, suits <= 0)
    take_first = np.where(first_offers ^ second_offers, first_offers, repaired)
    return np.where(take_first, first, second)


def uniform_crossover(parents: tuple[IntArray, IntArray], rng: np.random.Generator) -> IntArray:
    """One child a pair, every task where it is in either parent, with equal chance, shape (p, n)."""
    return cast(IntArray, np.where(rng.random(parents[0].shape) < 0.5, *parents))


def random_reset(schemes: IntArray, world: Instance, rate: float, rng: np.random.Generator) -> IntArray:
    """Every task, with chance `rate`, to a GPU drawn uniformly from those it fits, shape (p, n)."""
    options, count = world.options
    drawn = (rng.random(schemes.shape) * count).astype(np.int64)
    moved = rng.random(schemes.shape) < rate
    return cast(IntArray, np.where(moved, options[np.arange(world.n), drawn], schemes))


def added_jct(line: Queues, child: IntArray, task: IntArray, now: IntArray, world: Instance) -> FloatArray:
    """By how much a task on each GPU raises the sum of JCTs, s: its own wait and time and the delay of those behind.

    Args:
        line: the queues of p schemes.
        child: the row of each of q questions in those schemes, shape (q,).
        task: the task asked about, shape (q,).
        now: the GPU where it is, shape (q,).
        world: the task set on its cluster.

    Returns:
        Shape (q, k); infinite where the task does not fit.
    """
    p, n = line.key.shape
    wide = world.k * n
    ordered = (line.key + wide * np.arange(p)[:, None]).ravel()
    wanted = np.arange(world.k) * n + world.rank[task] + wide * child[:, None]
    before = np.searchsorted(ordered, wanted.ravel()).reshape(wanted.shape) - n * child[:, None]
    done_s = np.concatenate((np.zeros((p, 1)), np.cumsum(line.time_s, axis=1)), axis=1)
    begin = np.concatenate((np.zeros((p, 1), dtype=np.int64), line.end[:, :-1]), axis=1)
    wait_s = done_s[child[:, None], before] - done_s[child[:, None], begin[child]]
    behind = line.end[child] - before - (np.arange(world.k) == now[:, None])
    return cast(FloatArray, wait_s + world.begin_s + world.time_s[task] * (1 + behind))


def targets(
    schemes: IntArray, moved: BoolArray, line: Queues, world: Instance, settings: Settings
) -> tuple[IntArray, IntArray]:
    """Where each moved task would go: to the GPU of least energy, and to that of least performance degradation.

    Load-aware: degradation is what the task adds to the sum of JCTs, and decides between GPUs of equal energy.
    Static: the GPU of least energy and that of least time for the task alone, whatever is queued there.

    Returns:
        Two arrays of shape (q,) for the q true elements of `moved` in row-major order.
    """
    child, task = np.nonzero(moved)
    energy = world.energy_j[task]
    if settings.targets == "static":
        return energy.argmin(axis=1), world.time_s[task].argmin(axis=1)
    added = added_jct(line, child, task, schemes[moved], world)
    least = energy <= energy.min(axis=1, keepdims=True) * (1 + 1e-9)
    return np.where(least, added, np.inf).argmin(axis=1), added.argmin(axis=1)


def resource_use(world: Instance) -> FloatArray:
    """How each task uses each type of GPU: log time, power over TDP, memory over the card's, shape (kinds, n, 3)."""
    fits = world.fits[:, world.first_of_kind]
    time_s = np.where(fits, world.time_s[:, world.first_of_kind], 1.0)
    power_w = np.where(fits, world.energy_j[:, world.first_of_kind], 0.0) / time_s
    tdp_w = np.array([gpu.tdp_w for gpu in world.kinds])
    size_mib = np.array([gpu.memory_mib for gpu in world.kinds])
    use = np.stack((np.log(time_s), power_w / tdp_w, world.needs_mib[:, None] / size_mib), axis=2)
    return np.ascontiguousarray(use.transpose(1, 0, 2))


def recover(
    schemes: IntArray, moved: BoolArray, target: IntArray, use: FloatArray, world: Instance, settings: Settings
) -> IntArray:
    """Migration with task recovery (Section III-B 2c): an overloaded target sends back what is most like the newcomer.

    A GPU is overloaded when its busy time passes `settings.overload` times its share, the mean over all GPUs. For
    each task that arrives there, the most similar ones of its tasks go to the GPU that the newcomer came from, until
    they free as much time as it takes.

    Args:
        schemes: before the migration, shape (p, n); not changed.
        moved: which tasks migrate, shape (p, n).
        target: the GPU that each of the q moved tasks goes to, shape (q,).
        use: `resource_use` of the task set; tasks are alike when the sum of the differences is small.
        world: the task set on its cluster.
        settings: says when a GPU is overloaded.

    Returns:
        Schemes after migration and recovery, shape (p, n).
    """
    after = schemes.copy()
    after[moved] = target
    child, task = np.nonzero(moved)
    source = schemes[moved]
    if not settings.recovery:
        return after
    busy_s = sum_by_gpu(after, world.time_s[np.arange(after.shape[1]), after], world.k)
    mean_s = np.cumsum(busy_s, axis=1)[:, -1:] / world.k
    over = (busy_s > settings.overload * mean_s)[child, target] & (source != target)
    child, task, source, gpu = child[over], task[over], source[over], target[over]
    if not len(task):
        return after
    may_go = (schemes[child] == gpu[:, None]) & ~moved[child] & world.fits[:, source].T
    kind = world.kind_of[gpu]
    apart = np.abs(use[kind, task][:, None] - use[kind]).sum(axis=2)
    distance = np.where(may_go, apart, np.inf)
    order = np.argsort(distance, axis=1, kind="stable")
    time_s = np.where(np.take_along_axis(may_go, order, axis=1), world.time_s[order, gpu[:, None]], 0.0)
    freed_s = np.concatenate((np.zeros((len(task), 1)), np.cumsum(time_s, axis=1)[:, :-1]), axis=1)
    leaves = (freed_s < world.time_s[task, gpu][:, None]) & (time_s > 0)
    question, position = np.nonzero(leaves)
    after[child[question], order[question, position]] = source[question]
    return after


def priority_mutation(
    schemes: IntArray, use: FloatArray, world: Instance, settings: Settings, rng: np.random.Generator
) -> IntArray:
    """Priority mutation (Section III-B 2c): two offspring of each scheme, one for energy, one for JCT, (2p, n)."""
    moved = rng.random(schemes.shape) < settings.mutation_rate
    line = queues(schemes, world)
    both = targets(schemes, moved, line, world, settings)
    return np.concatenate([recover(schemes, moved, target, use, world, settings) for target in both])
