"""The genetic operators of stage 1 (Section III-B 2), each one function over a whole population.

The paper's three are multi-objective initialisation (2a, `initialise`), multi-objective elitism selection (2b,
`elitism_selection`), and priority mutation with task recovery (2c, `priority_mutation`). Uniform crossover and random
reset are the ordinary operators that an ablation puts in their place. A scheme is a row of GPU indices, one a task.

What is ours, since the text leaves it open (`Settings` has the choices): the random spread of the first population; the
weight of a child's targeted objective, and the rule for a task that neither inherited subset contains; that only some
tasks migrate; degradation as delay in the queues, since stage 1 runs tasks alone; when a GPU is overloaded, and that
resource usage is time, power and memory. A subset's JCT is the sum of its tasks' JCTs.
"""

import numpy as np

from heshare.scheduling.objectives import Instance, SoloCosts
from heshare.scheduling.pareto import round_significant
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiled import njit

# 2a: multi-objective initialisation


def initialise(instance: Instance, settings: Settings, rng: np.random.Generator) -> IntArray:
    """Return the initial population, by default by multi-objective initialisation (Section III-B 2a).

    Each task goes to a GPU with the least average rank; equal ranks are drawn for each individual. The rule alone gives
    nearly equal individuals, so all but the first are then mutated at random, each at its own rate. Schemes have the
    shape (population, n).
    """
    count = settings.population
    if settings.initialisation == "random":
        return random_schemes(instance.fits, count, rng)

    rank = average_ranks(instance)
    is_best = rank == rank.min(axis=1, keepdims=True)
    best_ranked = random_schemes(is_best, count, rng)

    rate = settings.seed_mutation * rng.random((count, 1))
    rate[0] = 0.0
    mutated = rng.random(best_ranked.shape) < rate
    return np.where(mutated, random_schemes(instance.fits, count, rng), best_ranked)


def average_ranks(instance: Instance) -> FloatArray:
    """Return the mean of each GPU's ranks by energy and by time for each task, shape (n, k); infinite if no fit."""
    by_energy = _ranks(round_significant(instance.energy_j))
    by_time = _ranks(round_significant(instance.time_s + instance.begin_s))
    return np.where(instance.fits, (by_energy + by_time) / 2, np.inf)


def _ranks(values: FloatArray) -> IntArray:
    # Ranks in each row, (n, k), from 1 on; equal values have the same one: one more than the number of smaller values.
    # One column at a time, since all comparisons at once would need the memory of n k k values.
    smaller = [(values < values[:, [column]]).sum(axis=1) for column in range(values.shape[1])]
    return 1 + np.stack(smaller, axis=1)


def random_schemes(allowed: BoolArray, count: int, rng: np.random.Generator) -> IntArray:
    """Return `count` schemes, each task on a GPU drawn uniformly from its allowed ones, (n, k) -> (count, n)."""
    # One scheme at a time: the random numbers of all at once would not fit into memory on a large cluster.
    return np.array([np.where(allowed, rng.random(allowed.shape), -1.0).argmax(axis=1) for _ in range(count)])


# 2b: multi-objective elitism selection


def crossover(
    schemes: IntArray,
    costs: FloatArray,
    pairs: IntArray,
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
) -> IntArray:
    """Return one child of each pair of parents, shape (c, n), by the operator of the settings.

    Args:
        schemes: the population, shape (p, n).
        costs: its `segment_costs`, shape (p, k, 2).
        pairs: the parents' places in the population, shape (2, c).
        instance: the problem instance.
        settings: which operator, and how it compares.
        rng: draws the targeted objective of each child, or the parent of each task.
    """
    if settings.crossover == "uniform":
        from_first = rng.random((pairs.shape[1], schemes.shape[1])) < 0.5
        children: IntArray = np.where(from_first, schemes[pairs[0]], schemes[pairs[1]])
        return children

    energy_weights = rng.random((pairs.shape[1],))
    normalised = settings.segments == "normalised"
    return elitism_selection(schemes, costs, pairs, energy_weights, instance.solo, normalised)


@njit(cache=True)
def elitism_selection(
    schemes: IntArray, costs: FloatArray, pairs: IntArray, energy_weights: FloatArray, solo: SoloCosts, normalised: bool
) -> IntArray:
    """Multi-objective elitism selection (Section III-B 2b), a crossover: a child inherits each GPU's better subset.

    Each child has its own targeted objective, a random weight between energy and JCT. It decides when one parent's
    subset is better in energy and the other's in JCT. A task that both inherited subsets contain (a conflict) goes
    with the better subset. A task that neither contains (an omission) goes to the better of its two parents' GPUs.

    Args:
        schemes: the population, shape (p, n).
        costs: energy and sum of JCTs of each GPU's subset, `segment_costs`, shape (p, k, 2).
        pairs: the parents of c children, shape (2, c).
        energy_weights: the weight of energy in each child's targeted objective, shape (c,).
        solo: times and energies by type of GPU.
        normalised: divide a subset's costs by the least that its tasks need on any GPU, so that a small subset is not
            better for being small.

    Returns:
        One child of each pair, shape (c, n).
    """
    n = schemes.shape[1]
    k = len(solo.kind_of)
    children = np.empty((pairs.shape[1], n), dtype=np.int64)
    first_costs = np.empty((k, 2))
    second_costs = np.empty((k, 2))
    first_share = np.empty(k)

    for child in range(pairs.shape[1]):
        first = schemes[pairs[0, child]]
        second = schemes[pairs[1, child]]
        weight = energy_weights[child]
        for gpu in range(k):
            for goal in range(2):
                first_costs[gpu, goal] = costs[pairs[0, child], gpu, goal]
                second_costs[gpu, goal] = costs[pairs[1, child], gpu, goal]
        if normalised:
            normalise_subsets(first, first_costs, solo)
            normalise_subsets(second, second_costs, solo)

        # The first parent's part in both parents' weighted costs of each GPU, the second's is the rest: the subset with
        # the smaller part is the better one. Ties go to the first parent.
        for gpu in range(k):
            energy_share = share(first_costs[gpu, 0], second_costs[gpu, 0])
            jct_share = share(first_costs[gpu, 1], second_costs[gpu, 1])
            first_share[gpu] = weight * energy_share + (1 - weight) * jct_share

        for task in range(n):
            at_first = first_share[first[task]]
            at_second = 1 - first_share[second[task]]
            first_inherited = at_first <= 0.5
            second_inherited = at_second < 0.5

            if first_inherited != second_inherited:
                take_first = first_inherited
            elif first_inherited:  # a conflict
                take_first = at_first <= at_second
            else:  # an omission
                take_first = is_better_gpu(task, first[task], second[task], weight, solo)
            children[child, task] = first[task] if take_first else second[task]
    return children


@njit(cache=True)
def normalise_subsets(scheme: IntArray, costs: FloatArray, solo: SoloCosts) -> None:
    """Divide the energy and JCTs of each GPU's subset, shape (k, 2), by the least that its tasks need on any GPU.

    A GPU without tasks gets the mean level of its scheme, so that it is neither good nor bad.
    """
    least = np.zeros((len(costs), 2))
    for task in range(len(scheme)):
        gpu = scheme[task]
        least[gpu, 0] += solo.best_j[task]
        least[gpu, 1] += solo.best_s[task]

    for goal in range(2):
        total = 0.0
        total_least = 0.0
        for gpu in range(len(costs)):
            total += costs[gpu, goal]
            total_least += least[gpu, goal]
        for gpu in range(len(costs)):
            if least[gpu, goal] > 0.0:
                costs[gpu, goal] /= least[gpu, goal]
            else:
                costs[gpu, goal] = total / total_least


@njit(cache=True)
def share(value: float, other: float) -> float:
    """Return the part of a value in the sum of both; half if both are 0."""
    if value + other > 0:
        return value / (value + other)
    return 0.5


@njit(cache=True)
def is_better_gpu(task: int, gpu: int, other: int, weight: float, solo: SoloCosts) -> bool:
    """Return whether a task alone costs no more on one GPU than on another, each over its least on any GPU."""
    kind = solo.kind_of[gpu]
    other_kind = solo.kind_of[other]
    more_energy = (solo.energy_j[task, kind] - solo.energy_j[task, other_kind]) / solo.best_j[task]
    more_time = (solo.time_s[task, kind] - solo.time_s[task, other_kind]) / solo.best_s[task]
    excess: float = weight * more_energy + (1 - weight) * more_time
    return excess <= 0


# 2c: priority mutation with task recovery


def mutate(children: IntArray, instance: Instance, settings: Settings, rng: np.random.Generator) -> IntArray:
    """Return two offspring of each of c children, shape (2c, n), by the operator of the settings.

    Priority mutation makes one for energy and one for JCT. The first c rows are those for energy, the others those for
    JCT, both in the children's order.
    """
    if settings.mutation == "reset":
        twice = np.concatenate((children, children))
        return random_reset(twice, instance, settings.mutation_rate, rng)

    moved = rng.random(children.shape) < settings.mutation_rate
    load_aware = settings.targets == "load-aware"
    overload = float(settings.overload) if settings.recovery else np.inf
    return priority_mutation(children, moved, instance.solo, instance.usage, load_aware, overload)


def random_reset(schemes: IntArray, instance: Instance, rate: float, rng: np.random.Generator) -> IntArray:
    """Move each task with chance `rate` to a GPU drawn uniformly from those that it fits, shape (p, n)."""
    fitting, count = instance.options
    drawn = (rng.random(schemes.shape) * count).astype(np.int64)
    moved = rng.random(schemes.shape) < rate
    return np.where(moved, fitting[np.arange(instance.n), drawn], schemes)


SptQueues = tuple[IntArray, IntArray, FloatArray]
"""What `spt_queues` returns."""


@njit(cache=True)
def priority_mutation(
    schemes: IntArray, moved: BoolArray, solo: SoloCosts, usage: FloatArray, load_aware: bool, overload: float
) -> IntArray:
    """Priority mutation (Section III-B 2c): one offspring of each scheme for energy, and one for JCT.

    Task migration moves the drawn tasks (the paper: each task) to the GPU of least energy, or of least degradation.
    Task recovery follows: a GPU whose busy time then exceeds `overload` times the mean over all GPUs sends tasks back
    in exchange for each that arrived; each arrival is treated by itself.

    Args:
        schemes: shape (p, n).
        moved: which tasks migrate, shape (p, n).
        solo: times and energies by type of GPU.
        usage: resource usage of the tasks, `Instance.usage`, shape (kinds, n, 3).
        load_aware: choose targets by the queues of the GPUs; otherwise by the task alone.
        overload: when recovery begins; infinite for none.

    Returns:
        The offspring for energy, then those for JCT, shape (2p, n).
    """
    p, n = schemes.shape
    k = len(solo.kind_of)
    offspring = np.empty((2 * p, n), dtype=np.int64)
    targets = np.empty((2, n), dtype=np.int64)
    busy_s = np.empty(k)

    for row in range(p):
        scheme = schemes[row]
        queues = spt_queues(scheme, solo)
        migration_targets(scheme, moved[row], queues, solo, load_aware, targets)

        for goal in range(2):
            after = offspring[goal * p + row]
            for gpu in range(k):
                busy_s[gpu] = 0.0
            for task in range(n):
                gpu = targets[goal, task] if moved[row, task] else scheme[task]
                after[task] = gpu
                busy_s[gpu] += solo.time_s[task, solo.kind_of[gpu]]

            total_s = 0.0
            for gpu in range(k):
                total_s += busy_s[gpu]
            limit_s = overload * (total_s / k)
            for task in range(n):
                gpu = targets[goal, task]
                if moved[row, task] and gpu != scheme[task] and busy_s[gpu] > limit_s:
                    send_back(scheme, moved[row], task, gpu, queues, solo, usage, after)
    return offspring


@njit(cache=True)
def migration_targets(
    scheme: IntArray, moved: BoolArray, queues: SptQueues, solo: SoloCosts, load_aware: bool, targets: IntArray
) -> None:
    """Fill in the target GPU of each task that moves, for energy and for JCT, shape (2, n).

    For energy it is the GPU of least energy, and of equal ones the one of least degradation; for JCT that of least
    degradation. Degradation is what the task adds to the sum of JCTs: its own JCT there, and the delay of the tasks
    behind it. Without `load_aware` it is the time of the task alone. `queues` are the scheme's, by `spt_queues`.
    """
    k = len(solo.kind_of)
    queue, begin, done_s = queues
    least_s = np.empty(2)

    for task in range(len(scheme)):
        if not moved[task]:
            continue

        least_energy_j = solo.best_j[task] * (1 + 1e-9)
        least_s[0] = np.inf
        least_s[1] = np.inf
        for gpu in range(k):
            kind = solo.kind_of[gpu]
            own_s = solo.time_s[task, kind]
            if own_s == np.inf:
                continue

            added_s = own_s
            if load_aware:
                # Its place in the queue of this GPU, by bisection. A task that is there already does not delay itself.
                place = begin[gpu]
                end = begin[gpu + 1]
                while place < end:
                    middle = (place + end) // 2
                    if solo.spt_rank[kind, queue[middle]] < solo.spt_rank[kind, task]:
                        place = middle + 1
                    else:
                        end = middle
                wait_s = done_s[place] - done_s[begin[gpu]] + solo.begin_s[gpu]
                behind = begin[gpu + 1] - place
                if scheme[task] == gpu:
                    behind -= 1
                added_s = wait_s + own_s * (1 + behind)

            if solo.energy_j[task, kind] <= least_energy_j and added_s < least_s[0]:
                least_s[0] = added_s
                targets[0, task] = gpu
            if added_s < least_s[1]:
                least_s[1] = added_s
                targets[1, task] = gpu


@njit(cache=True)
def spt_queues(scheme: IntArray, solo: SoloCosts) -> SptQueues:
    """Return the queues of a scheme's GPUs, one behind the other.

    Returns:
        The tasks by GPU, in SPT order within a GPU, shape (n,); the place at which each GPU's queue begins, and the
        end, shape (k + 1,); and the sum of the times of the tasks before each place, s, shape (n + 1,).
    """
    n = len(scheme)
    k = len(solo.kind_of)
    begin = np.zeros(k + 1, dtype=np.int64)
    for task in range(n):
        begin[scheme[task] + 1] += 1
    for gpu in range(k):
        begin[gpu + 1] += begin[gpu]

    queue = np.empty(n, dtype=np.int64)
    following = np.empty(k, dtype=np.int64)
    for gpu in range(k):
        following[gpu] = begin[gpu]
    for kind in range(len(solo.spt_order)):
        for task in solo.spt_order[kind]:
            gpu = scheme[task]
            if solo.kind_of[gpu] == kind:
                queue[following[gpu]] = task
                following[gpu] += 1

    done_s = np.zeros(n + 1)
    for place in range(n):
        task = queue[place]
        done_s[place + 1] = done_s[place] + solo.time_s[task, solo.kind_of[scheme[task]]]
    return queue, begin, done_s


@njit(cache=True)
def send_back(
    scheme: IntArray,
    moved: BoolArray,
    arrival: int,
    gpu: int,
    queues: SptQueues,
    solo: SoloCosts,
    usage: FloatArray,
    after: IntArray,
) -> None:
    """Task recovery (Section III-B 2c): an overloaded GPU sends tasks to the GPU that an arriving task came from.

    Of the tasks that were on the GPU and do not move themselves, those with the most similar resource usage leave (the
    least sum of absolute differences, then the least index), until they free as much time as the arriving task takes.
    """
    source = scheme[arrival]
    source_kind = solo.kind_of[source]
    kind = solo.kind_of[gpu]
    usage_there = usage[kind]
    queue, begin, _ = queues
    members = queue[begin[gpu] : begin[gpu + 1]]

    difference = np.full(len(members), np.inf)
    for place in range(len(members)):
        task = members[place]
        if not moved[task] and solo.time_s[task, source_kind] < np.inf:
            total = 0.0
            for resource in range(usage.shape[2]):
                total += abs(usage_there[arrival, resource] - usage_there[task, resource])
            difference[place] = total

    freed_s = 0.0
    while len(members) > 0 and freed_s < solo.time_s[arrival, kind]:
        nearest = 0
        for place in range(1, len(members)):
            is_equal = difference[place] == difference[nearest]
            if difference[place] < difference[nearest] or (is_equal and members[place] < members[nearest]):
                nearest = place
        if difference[nearest] == np.inf:
            break
        after[members[nearest]] = source
        freed_s += solo.time_s[members[nearest], kind]
        difference[nearest] = np.inf
