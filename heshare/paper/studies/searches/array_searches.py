"""NSGA-II, SPEA2 and batched MOEA/D of pymoo on whole arrays: the same schemes to the last bit, in less time.

pymoo keeps every scheme as an object, and reads and writes its values one by one, which is most of the time of such a
search. Here a population is a few arrays. Random numbers are drawn in pymoo's order from the same generator; ranks,
crowding distances, normalisation and neighbours come from pymoo's own functions. The tests compare both. How long a
search takes is measured on pymoo itself (`make bench`).
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from heshare.paper.studies.searches.pymoo_searches import Rate, SearchCheckpoint, SearchRecord, gene_rate
from heshare.scheduling.objectives import Instance
from heshare.scheduling.operators import initialise, random_reset
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.compiling import compiled
from heshare.shared.errors import require

NAMES = ("nsga2", "spea2", "moead-batched")
_CROSSOVER, _NEIGHBOURHOOD, _NEIGHBOURS, _MATINGS = 0.9, 0.9, 20, 100
"""pymoo's defaults: chance of crossover, of parents from the neighbourhood, its size, and the most matings in a row."""


def search_checkpoints(
    name: str,
    instance: Instance,
    settings: Settings,
    rng: np.random.Generator,
    checkpoints: Sequence[int],
    *,
    rate: Rate = 0.1,
) -> list[SearchCheckpoint]:
    """Return what `pymoo_searches.search_checkpoints` returns for the same arguments; `name` is one of `NAMES`.

    Raises:
        InputError: there is no such search.
    """
    require("rival", name, name in NAMES, "one of " + ", ".join(NAMES), "Choose one of them.")
    record = SearchRecord(instance)
    start = initialise(instance, settings, rng)
    draws = np.random.default_rng(int(rng.integers(2**31)))
    make = {"nsga2": _Nsga2, "spea2": _Spea2, "moead-batched": _Moead}[name]
    population = make(record, gene_rate(rate, instance), draws, settings.population)
    record.begin()
    population.begin(start)
    while record.evaluations < max(checkpoints) and population.advance():
        pass
    return record.at_checkpoints(checkpoints, settings)


class _Population:
    """Schemes (p, n) and their scaled objectives (p, 2).

    Args:
        record: evaluates schemes.
        rate: chance that a gene mutates.
        draws: the random numbers of the search.
        size: schemes of a population.
    """

    def __init__(self, record: SearchRecord, rate: float, draws: np.random.Generator, size: int) -> None:
        self._record, self._rate, self._draws, self._size = record, rate, draws, size
        self._schemes = np.empty((0, record.instance.n), dtype=np.int64)
        self._objectives = np.empty((0, 2))

    def begin(self, start: IntArray) -> None:
        """Evaluate the initial schemes."""
        raise NotImplementedError

    def advance(self) -> bool:
        """Make one generation; return False if no new scheme was found."""
        raise NotImplementedError

    def _children(self, parents: IntArray) -> IntArray:
        """Return two children of each pair of parents, shape (2 p, n): the first of all pairs, then the second.

        `parents` are pairs of schemes, shape (p, 2, n).
        """
        pairs = np.swapaxes(parents, 0, 1)
        crossed = self._draws.random(len(parents)) < _CROSSOVER
        if crossed.any():
            swapped = (self._draws.random(parents[:, 0].shape) < 0.5) & crossed[:, None]
            pairs = np.where(swapped, pairs[::-1], pairs)
        children = random_reset(pairs.reshape(-1, parents.shape[2]), self._record.instance, self._rate, self._draws)
        self._draws.random(len(children))  # pymoo draws whether a child mutates at all, which every child does
        return children


class _Genetic(_Population):
    """A search whose parents win tournaments and whose survivors are chosen from parents and children."""

    def begin(self, start: IntArray) -> None:
        schemes = start[_distinct(start, set())]
        self._survive(schemes, self._record.evaluate(schemes), len(schemes))

    def advance(self) -> bool:
        new = self._new_schemes()
        if len(new):
            objectives = np.concatenate((self._objectives, self._record.evaluate(new)))
            self._survive(np.concatenate((self._schemes, new)), objectives, self._size)
        return len(new) > 0

    def _new_schemes(self) -> IntArray:
        """Return children that are neither in the population nor equal to each other."""
        seen = {scheme.tobytes() for scheme in self._schemes}
        found: list[IntArray] = []
        count = 0
        for _ in range(_MATINGS):
            matings = ceil((self._size - count) / 2)
            drawn = 4 * matings
            rounds = ceil(drawn / len(self._schemes))
            order = np.concatenate([self._draws.permutation(len(self._schemes)) for _ in range(rounds)])
            winners = self._winners(order[:drawn].reshape(-1, 2))
            children = self._children(self._schemes[winners.reshape(matings, 2)])
            children = children[_distinct(children, seen)][: self._size - count]
            found.append(children)
            count += len(children)
            if count >= self._size:
                break
            seen |= {scheme.tobytes() for scheme in children}
        return np.concatenate(found)

    def _decided(self, pairs: IntArray, lead: FloatArray) -> IntArray:
        """Return the winner of each pair: the first where the lead is above zero; a tie is decided at random."""
        first = lead > 0
        ties = np.flatnonzero(lead == 0)
        first[ties] = self._draws.integers(0, 2, size=len(ties)) == 0
        return np.where(first, pairs[:, 0], pairs[:, 1])

    def _winners(self, pairs: IntArray) -> IntArray:
        raise NotImplementedError

    def _survive(self, schemes: IntArray, objectives: FloatArray, count: int) -> None:
        raise NotImplementedError


class _Nsga2(_Genetic):
    """NSGA-II: survivors by rank, then by crowding distance."""

    def __init__(self, *arguments: Any) -> None:
        from pymoo.operators.survival.rank_and_crowding.metrics import get_crowding_function
        from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting
        from pymoo.util.randomized_argsort import randomized_argsort

        super().__init__(*arguments)
        self._sorting, self._distances = NonDominatedSorting(), get_crowding_function("cd")
        self._argsort = randomized_argsort
        self._crowding = np.empty(0)

    def _winners(self, pairs: IntArray) -> IntArray:
        first, second = self._objectives[pairs[:, 0]], self._objectives[pairs[:, 1]]
        better, worse = (first < second).any(axis=1), (first > second).any(axis=1)
        crowding = self._crowding[pairs]
        with np.errstate(invalid="ignore"):  # two ends of a front are both infinitely far from others
            lead = np.sign(np.nan_to_num(crowding[:, 0] - crowding[:, 1], nan=0.0))
        return self._decided(pairs, np.where(better == worse, lead, np.where(better, 1.0, -1.0)))

    def _survive(self, schemes: IntArray, objectives: FloatArray, count: int) -> None:
        kept: list[IntArray] = []
        crowding: list[FloatArray] = []
        free = count
        for front in self._sorting.do(objectives, n_stop_if_ranked=count):
            surplus = max(0, len(front) - free)
            distances = self._distances.do(objectives[front], n_remove=surplus)
            chosen = np.arange(len(front))
            if surplus:
                order = self._argsort(distances, order="descending", method="numpy", random_state=self._draws)
                chosen = order[:-surplus]
            kept.append(front[chosen])
            crowding.append(distances[chosen])
            free -= len(chosen)
        survivors = np.concatenate(kept)
        self._schemes, self._objectives = schemes[survivors], objectives[survivors]
        self._crowding = np.concatenate(crowding)


class _Spea2(_Genetic):
    """SPEA2: survivors by the strength of those that dominate them and by distances, which are normalised."""

    def __init__(self, *arguments: Any) -> None:
        from pymoo.algorithms.moo.nsga3 import HyperplaneNormalization

        super().__init__(*arguments)
        self._scale = HyperplaneNormalization(2)
        self._fitness = np.empty(0)

    def _winners(self, pairs: IntArray) -> IntArray:
        fitness = self._fitness[pairs]
        return self._decided(pairs, np.sign(fitness[:, 1] - fitness[:, 0]))

    def _survive(self, schemes: IntArray, objectives: FloatArray, count: int) -> None:
        energy, jct = objectives.T
        better = (energy[:, None] < energy) | (jct[:, None] < jct)
        dominates = better & ~better.T
        raw = dominates.sum(axis=1) @ dominates
        self._scale.update(objectives)
        scaled = (objectives - self._scale.ideal_point) / (self._scale.nadir_point - self._scale.ideal_point)
        distances = _distances(scaled, scaled)
        np.fill_diagonal(distances, np.inf)
        nearest = min(int(np.sqrt(len(schemes))), len(schemes) - 1)
        fitness = raw + 1 / (np.partition(distances, nearest, axis=1)[:, nearest] + 2)
        survivors, others = np.flatnonzero(raw == 0), np.flatnonzero(raw)
        by_fitness = others[fitness[others].argsort()]
        ends = survivors[_distances(self._scale.extreme_points, objectives[survivors]).argmin(axis=1)]
        fitness[ends] = -1.0
        if len(survivors) < count:
            survivors = np.concatenate((survivors, by_fitness[: count - len(survivors)]))
        elif len(survivors) > count:
            survivors = survivors[_spread(distances[np.ix_(survivors, survivors)], count)]
        self._schemes, self._objectives = schemes[survivors], objectives[survivors]
        self._fitness = fitness[survivors]


class _Moead(_Population):
    """MOEA/D whose children of a generation are evaluated at once."""

    def __init__(self, *arguments: Any) -> None:
        from pymoo.util.ref_dirs import get_reference_directions
        from scipy.spatial.distance import cdist

        super().__init__(*arguments)
        self._weights = get_reference_directions("das-dennis", 2, n_partitions=self._size - 1)
        order = np.argsort(cdist(self._weights, self._weights), axis=1, kind="quicksort")
        self._near = np.ascontiguousarray(order[:, :_NEIGHBOURS])
        self._ideal = np.empty(0)

    def begin(self, start: IntArray) -> None:
        self._schemes, self._objectives = start.copy(), self._record.evaluate(start)
        self._ideal = self._objectives.min(axis=0)

    def advance(self) -> bool:
        places = self._draws.permutation(len(self._schemes))
        parents = np.array([self._parents(place) for place in places])
        # pymoo chooses between the children that are neighbours in the list, not between those of the same parents.
        children = self._children(self._schemes[parents])
        children = children[np.arange(0, len(children), 2) + self._draws.integers(0, 2, size=len(places))]
        objectives = self._record.evaluate(children)
        self._ideal = np.minimum(self._ideal, objectives.min(axis=0))
        source = _replacements(places, objectives, self._objectives, self._near, self._weights, self._ideal)
        replaced = source >= 0
        self._schemes[replaced] = children[source[replaced]]
        return True

    def _parents(self, place: int) -> IntArray:
        if self._draws.random() < _NEIGHBOURHOOD:
            return self._draws.choice(self._near[place], 2, replace=False)
        return self._draws.permutation(len(self._schemes))[:2]


def _distinct(schemes: IntArray, seen: set[bytes]) -> BoolArray:
    """Return which schemes are neither in `seen` nor equal to an earlier one, shape (p,)."""
    known, distinct = set(seen), np.zeros(len(schemes), dtype=bool)
    for place, scheme in enumerate(schemes):
        text = scheme.tobytes()
        distinct[place] = text not in known
        known.add(text)
    return distinct


def _distances(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the distances between points, shape (p, q)."""
    one, other = (first[:, None, axis] - second[:, axis] for axis in (0, 1))
    distances: FloatArray = np.sqrt(one**2 + other**2)
    return distances


def _spread(distances: FloatArray, count: int) -> IntArray:
    """Return which points SPEA2's truncation keeps, shape (count,).

    The point with the shortest distance to another is removed; of several, the one with the shortest second distance,
    and so on. `distances` (p, p) are infinite on the diagonal and are changed.
    """
    kept = np.ones(len(distances), dtype=bool)
    for _ in range(len(distances) - count):
        nearest = distances.min(axis=1)
        nearest[~kept] = np.nan
        tied = np.flatnonzero(nearest == np.nanmin(nearest))
        removed = tied[np.lexsort(np.sort(distances[tied], axis=1).T[::-1])[0]]
        kept[removed] = False
        distances[removed], distances[:, removed] = np.inf, np.inf
    return np.flatnonzero(kept)


@compiled
def _replacements(places: Any, new: Any, objectives: Any, near: Any, weights: Any, ideal: Any) -> Any:
    """Let each child in turn replace the neighbours that it is better than; return the child at each place or -1.

    `objectives` are changed. Better is by the larger of the weighted distances from the ideal (Tchebycheff).
    """
    source = np.full(len(objectives), -1)
    for child in range(len(places)):
        for place in near[places[child]]:
            own = max(
                abs(new[child, 0] - ideal[0]) * weights[place, 0], abs(new[child, 1] - ideal[1]) * weights[place, 1]
            )
            theirs = max(
                abs(objectives[place, 0] - ideal[0]) * weights[place, 0],
                abs(objectives[place, 1] - ideal[1]) * weights[place, 1],
            )
            if own < theirs:
                objectives[place] = new[child]
                source[place] = child
    return source
