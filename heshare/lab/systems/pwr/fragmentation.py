"""Scores of nodes for a task that requests GPUs or a share of one: PWR's estimated power and FGD's fragmentation.

PWR (Lettich et al., CCGrid 2025) and FGD (Weng et al., USENIX ATC 2023), as in their published code. Shares are
counted in thousandths of a GPU (milli). All functions take many nodes, or many states of nodes, at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heshare.shared.arrays import BoolArray, FloatArray, IntArray

WHOLE = 1000
PACKAGE_CORES, PACKAGE_IDLE_W, PACKAGE_FULL_W = 16, 15.0, 120.0
"""Physical cores of a package of processors, and its power with no busy core and with any, W."""


@dataclass(frozen=True, slots=True)
class Request:
    """Resources that a task requests of a node.

    Attributes:
        gpus: number of GPUs, 0 for a task of CPUs alone.
        milli: the share of each of them, 1000 for whole GPUs; less only with one GPU.
        vcpus: virtual CPUs.
    """

    gpus: int = 1
    milli: int = WHOLE
    vcpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Nodes:
    """State of n nodes with at most g GPUs each.

    Attributes:
        free: free milli, shape (n, g); 0 for a missing GPU.
        capacity: 1000 for an existing GPU, else 0, shape (n, g).
        idle_w: power of each GPU with nothing allocated, W, shape (n, g).
        full_w: power of each GPU with any share allocated, W, shape (n, g).
        vcpus: free virtual CPUs, shape (n,).
        vcpus_all: all virtual CPUs, shape (n,); with none, the node's processors draw no power.
    """

    free: IntArray
    capacity: IntArray
    idle_w: FloatArray
    full_w: FloatArray
    vcpus: FloatArray
    vcpus_all: FloatArray

    def take(self, at: IntArray, free: IntArray, vcpus: float) -> "Nodes":
        return Nodes(
            free, self.capacity[at], self.idle_w[at], self.full_w[at], self.vcpus[at] - vcpus, self.vcpus_all[at]
        )


def fits(nodes: Nodes, request: Request) -> BoolArray:
    enough: BoolArray = nodes.vcpus >= request.vcpus
    if request.gpus == 0:
        return enough
    room = (nodes.free >= request.milli) & (nodes.capacity > 0)
    able: BoolArray = enough & (room.sum(axis=1) >= request.gpus)
    return able


def power_w(nodes: Nodes) -> FloatArray:
    """Return PWR's estimate of each node's power, W, shape (n,).

    A GPU with any share allocated draws all of its power. A package of processors is idle or, with any busy core, draws
    all of its power; a core is two virtual CPUs.
    """
    gpus_w: FloatArray = np.where(nodes.free < nodes.capacity, nodes.full_w, nodes.idle_w).sum(axis=1)
    busy = np.ceil(nodes.vcpus_all / 2) - np.floor(nodes.vcpus / 2)
    packages = np.ceil(nodes.vcpus_all / 2 / PACKAGE_CORES)
    active = np.ceil(busy / PACKAGE_CORES)
    packages_w: FloatArray = PACKAGE_FULL_W * active + PACKAGE_IDLE_W * (packages - active)
    return gpus_w + packages_w


def choices(nodes: Nodes, request: Request) -> tuple[IntArray, IntArray, Nodes]:
    """Return every way of placing a task: the nodes, shape (m,), their GPUs, shape (m,), and their states afterwards.

    A share fits any GPU with enough free milli. Whole GPUs are the first free ones, and the first of them is returned.
    The GPU of a task of CPUs alone is -1.
    """
    able = fits(nodes, request)
    if request.gpus == 1 and request.milli < WHOLE:
        at, gpu = np.nonzero(able[:, None] & (nodes.free >= request.milli) & (nodes.capacity > 0))
        free = nodes.free[at].copy()
        free[np.arange(len(at)), gpu] -= request.milli
        return at, gpu, nodes.take(at, free, request.vcpus)
    at = np.flatnonzero(able)
    free = nodes.free[at].copy()
    if request.gpus == 0:
        return at, np.full(len(at), -1), nodes.take(at, free, request.vcpus)
    whole = (free == WHOLE) & (np.cumsum(free == WHOLE, axis=1) <= request.gpus)
    free[whole] = 0
    return at, whole.argmax(axis=1), nodes.take(at, free, request.vcpus)


def fragmentation(nodes: Nodes, classes: Sequence[Request], popularity: Sequence[float]) -> FloatArray:
    """Return FGD's F: the expected milli that a task drawn from the typical classes cannot use, shape (n,)."""
    # All classes at once, shapes (classes, n, g) and (classes, n); they are summed one after the other.
    gpus, milli, vcpus = (np.array([getattr(each, name) for each in classes]) for name in Request.__slots__)
    small = nodes.free < milli[:, None, None]
    useless = np.where(small, nodes.free, 0).sum(axis=2)
    room = (~small & (nodes.capacity > 0)).sum(axis=2)
    usable = (nodes.vcpus >= vcpus[:, None]) & (room >= gpus[:, None]) & (gpus[:, None] > 0)
    total = np.zeros(len(nodes.free))
    for share, lost in zip(popularity, np.where(usable, useless, nodes.free.sum(axis=1)), strict=True):
        total += share * lost
    return total


@dataclass(frozen=True, slots=True)
class Scores:
    """PWR's and FGD's scores of the nodes that can take a task, each array of shape (m,).

    Attributes:
        node: the nodes.
        saved_w: PWR's score before normalisation: power before less power after, in whole watts, at most 0.
        power_gpu: the GPU that PWR chooses, the first of the best.
        fragmentation: FGD's score: 100 x sigmoid of the fragmentation saved, in whole GPUs.
        fragmentation_gpu: the GPU that FGD chooses, the first of the best; it is used where both scores are weighed.
    """

    node: IntArray
    saved_w: IntArray
    power_gpu: IntArray
    fragmentation: IntArray
    fragmentation_gpu: IntArray


def scores(
    nodes: Nodes, requests: Sequence[Request], classes: Sequence[Request], popularity: Sequence[float]
) -> list[Scores]:
    """Score, for each of several tasks as if it was the only one, every node that can take it.

    `classes` are FGD's typical classes of tasks, and `popularity` how popular they are, summing to one.
    """
    ways = [choices(nodes, request) for request in requests]
    at, gpu = (np.concatenate([way[part] for way in ways]) for part in (0, 1))
    after = Nodes(*(np.concatenate([getattr(way[2], name) for way in ways]) for name in Nodes.__slots__))
    saved_w = np.trunc(power_w(nodes)[at] - power_w(after)).astype(np.int64)
    saved = fragmentation(nodes, classes, popularity)[at] - fragmentation(after, classes, popularity)
    fragments = np.floor(100 / (1 + np.exp(-saved / WHOLE))).astype(np.int64)
    # One number for each pair of task and node: choices are ordered by task, by node, then by GPU.
    pair = np.repeat(np.arange(len(ways)) * len(nodes.free), [len(way[0]) for way in ways]) + at
    power, fragment = _first_best(pair, saved_w), _first_best(pair, fragments)
    parts = at[power], saved_w[power], gpu[power], fragments[fragment], gpu[fragment]
    ends = np.searchsorted(pair[power], np.arange(1, len(ways)) * len(nodes.free))
    return [Scores(*own) for own in zip(*(np.split(part, ends) for part in parts), strict=True)]


def _first_best(pair: IntArray, score: IntArray) -> IntArray:
    order = np.lexsort((-score, pair))
    ordered = pair[order]
    first: IntArray = order[np.flatnonzero(np.diff(ordered, prepend=-1))]
    return first


def normalised(scores: IntArray) -> IntArray:
    """Return PWR's scores on a scale of 0 to 100, in whole numbers; equal scores are all 100."""
    low, high = scores.min(), scores.max()
    return np.full_like(scores, 100) if low == high else 100 * (scores - low) // (high - low)


def weighed(saved_w: IntArray, fragmentation: IntArray, alpha: float) -> FloatArray:
    """Return PWR's score with weight `alpha` plus FGD's with the rest, shape (m,)."""
    total: FloatArray = alpha * normalised(saved_w) + (1 - alpha) * fragmentation
    return total
