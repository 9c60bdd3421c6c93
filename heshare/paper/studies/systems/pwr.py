"""PWR in the setting of its paper: the estimated power of a data centre that is filled task by task.

Tasks arrive, take their share and never leave, until demand exceeds the number of GPUs (Lettich et al., CCGrid
2025). Published: number, idle power and full power of the GPUs of each type, numbers of nodes and processors, and the
share of tasks with each kind of request. Not published, so assumed: sizes of shares, and virtual CPUs of a task.
"""

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pandas as pd

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import repeat
from heshare.lab.systems.pwr.fragmentation import WHOLE, Nodes, Request, choices, power_w, scores, weighed
from heshare.shared.arrays import FloatArray, IntArray

GPUS: Mapping[str, tuple[int, int, float, float]] = {
    "G2": (4392, 8, 30.0, 150.0),
    "T4": (842, 2, 10.0, 70.0),
    "G3": (312, 8, 50.0, 400.0),
    "P100": (265, 2, 25.0, 250.0),
    "V100": (399, 8, 30.0, 300.0),
    "A10": (2, 2, 30.0, 150.0),
}
"""Number of GPUs of each type, GPUs of a node, idle and full power of a GPU, W (published).

GPUs of a node are assumed; they give 1,192 of the 1,213 published nodes. G2 and G3 are names of the trace; the
published code counts them as A10 and A100.
"""
NODE_VCPUS = 88.0
"""Virtual CPUs of a node: 107,018 / 1,213 (published)."""
ONE_GPU, PART_OF_GPU, NO_GPU = 0.480, 0.378, 0.133
"""Shares of tasks that request one GPU, a part of one, and processors alone (published); the rest, several GPUs."""
PARTS_MILLI, SEVERAL = tuple(range(100, 1000, 100)), (2, 4, 8)
"""Requested parts of a GPU, milli (assumed), and numbers of GPUs, each as likely as the others."""
TASK_VCPUS, NO_GPU_VCPUS = 6.0, 8.0
"""Virtual CPUs for each GPU or part of one, and of a task of processors alone (assumed)."""
LEVELS = np.round(np.arange(0.05, 1.201, 0.05), 2)
"""Levels of demand, as multiples of all GPUs; the data centre is filled up to the last one."""


@cache
def task_classes() -> tuple[list[Request], FloatArray]:
    """Return the classes of tasks and their popularity, shape (classes,), summing to one."""
    requests = [Request(1, WHOLE, TASK_VCPUS), Request(0, 0, NO_GPU_VCPUS)]
    requests += [Request(1, milli, TASK_VCPUS) for milli in PARTS_MILLI]
    requests += [Request(gpus, WHOLE, TASK_VCPUS * gpus) for gpus in SEVERAL]

    several = 1 - ONE_GPU - PART_OF_GPU - NO_GPU
    shares = [ONE_GPU, NO_GPU]
    shares += [PART_OF_GPU / len(PARTS_MILLI)] * len(PARTS_MILLI)
    shares += [several / len(SEVERAL)] * len(SEVERAL)
    return requests, np.array(shares) / sum(shares)


def data_centre(scale: float) -> Nodes:
    """Return the empty nodes of the data centre; `scale` is over the published size."""
    rows = [
        (size, idle_w, full_w)
        for total, size, idle_w, full_w in GPUS.values()
        for _ in range(round(total / size * scale))
    ]
    sizes, idle_w, full_w = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    has_gpu = np.arange(sizes.max()) < sizes
    capacity = np.where(has_gpu, WHOLE, 0)
    vcpus = np.full(len(rows), NODE_VCPUS)
    idle_w = np.where(has_gpu, idle_w, 0.0)
    full_w = np.where(has_gpu, full_w, 0.0)
    return Nodes(capacity.copy(), capacity, idle_w, full_w, vcpus, vcpus.copy())


class Filling:
    """A data centre that one placer fills.

    Scores depend on a node's own state alone, so that after each placement only one node is scored again.

    Args:
        nodes: the nodes; they are changed in place.
        weight: of PWR's score, 0 to 1, with FGD's for the rest.
    """

    def __init__(self, nodes: Nodes, weight: float) -> None:
        self.requests, _ = task_classes()
        self.nodes = nodes
        self.power_w = power_w(nodes)
        self._weight = weight

        shape = (len(self.requests), len(nodes.free))
        self._able = np.zeros(shape, dtype=bool)
        self._saved_w = np.zeros(shape, dtype=np.int64)
        self._fragmentation = np.zeros(shape, dtype=np.int64)
        self._gpu = np.zeros(shape, dtype=np.int64)
        self._score(np.arange(shape[1]))

    def place(self, kind: int, rng: np.random.Generator) -> bool:
        """Place one task of a class, ties drawn at random, and return whether a node had enough resources."""
        able = np.flatnonzero(self._able[kind])
        if not len(able):
            return False
        total = weighed(self._saved_w[kind, able], self._fragmentation[kind, able], self._weight)
        self._take(kind, int(rng.choice(able[total >= total.max() - 1e-9])))
        return True

    def _take(self, kind: int, node: int) -> None:
        one = np.array([node])
        _, gpu, after = choices(self._states(one), self.requests[kind])
        row = int(np.flatnonzero(gpu == self._gpu[kind, node])[0])
        self.nodes.free[node] = after.free[row]
        self.nodes.vcpus[node] = after.vcpus[row]
        self.power_w[node] = power_w(self._states(one))[0]
        self._score(one)

    def _states(self, at: IntArray) -> Nodes:
        return self.nodes.take(at, self.nodes.free[at], 0.0)

    def _score(self, at: IntArray) -> None:
        columns = [getattr(self.nodes, name)[at].tolist() for name in Nodes.__slots__]
        for node, *state in zip(at.tolist(), *columns, strict=True):
            able, saved_w, fragmentation, power_gpu, fragmentation_gpu = _scores_of_node(
                *(tuple(each) if isinstance(each, list) else each for each in state)
            )
            self._able[:, node] = able
            self._saved_w[:, node] = saved_w
            self._fragmentation[:, node] = fragmentation
            self._gpu[:, node] = power_gpu if self._weight == 1 else fragmentation_gpu


@lru_cache(maxsize=100_000)
def _scores_of_node(*state: Any) -> tuple[Any, ...]:
    """Return the `scores` of a node in a state, the fields of `Nodes`, for each class of tasks.

    Returns:
        Arrays of shape (classes,): whether it fits, PWR's score, FGD's, PWR's choice of a GPU and FGD's.
    """
    requests, popularity = task_classes()
    found = scores(Nodes(*(np.array([each]) for each in state)), requests, requests, list(popularity))
    names = ("saved_w", "fragmentation", "power_gpu", "fragmentation_gpu")
    rows = [
        [len(each.node) > 0, *(getattr(each, name)[0] if len(each.node) else 0 for name in names)] for each in found
    ]
    return tuple(np.array(rows).T)


def runs(placers: Mapping[str, float], *, scale: float, seed: int, seeds: int) -> pd.DataFrame:
    """Fill the data centre with the same tasks by several placers.

    Args:
        placers: the weight of PWR's score (`Filling`) by title.
        scale: size of the data centre, over the published one.
        seed: of all repetitions.
        seeds: number of repetitions.

    Returns:
        One row a repetition, placer and level of demand: repetition, title, demand, power_w, granted_pct (allocated of
        requested GPUs).
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        for title, weight in placers.items():
            filling = Filling(data_centre(scale), weight)
            for row in _fill(filling, repetition.rng()):
                yield {"title": title, **row}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def _fill(filling: Filling, rng: np.random.Generator) -> Iterator[dict[str, float]]:
    draws, ties = rng.spawn(2)
    requests, popularity = task_classes()
    all_milli = filling.nodes.capacity.sum()
    requested = granted = 0

    for level in LEVELS.tolist():
        while requested < level * all_milli:
            kind = int(draws.choice(len(requests), p=popularity))
            milli = requests[kind].gpus * requests[kind].milli
            requested += milli
            granted += milli * filling.place(kind, ties)
        power = float(filling.power_w.sum())
        yield {"demand": level, "power_w": power, "granted_pct": 100.0 * granted / requested}
