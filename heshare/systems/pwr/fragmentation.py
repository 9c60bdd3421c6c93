"""Scores of nodes for a task that wants GPUs or a share of one: PWR's estimated power and FGD's fragmentation.

PWR (Lettich et al., CCGrid 2025) and FGD (Weng et al., USENIX ATC 2023), as their published code has them. Shares are
counted in thousandths of a GPU (milli). All functions take many nodes, or many states of nodes, at once: `free` has the
shape (nodes, GPUs of a node); a place without a GPU has a capacity of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heshare.arrays import BoolArray, FloatArray, IntArray

WHOLE = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """What a task asks of a node.

    Attributes:
        gpus: how many GPUs, 0 for a task of CPUs alone.
        milli: of each of them, 1000 for whole ones; less only with one GPU.
        vcpus: virtual CPUs.
    """

    gpus: int = 1
    milli: int = WHOLE
    vcpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Nodes:
    """The state of n nodes with at most g GPUs each.

    Attributes:
        free: milli that are free, shape (n, g); 0 where there is no GPU.
        capacity: 1000 where there is a GPU, else 0, shape (n, g).
        idle_w: power of each GPU with nothing allocated, W, shape (n, g).
        full_w: power of each GPU with any share allocated, W, shape (n, g).
        vcpus: virtual CPUs that are free, shape (n,).
        vcpus_all: virtual CPUs that there are, shape (n,).
    """

    free: IntArray
    capacity: IntArray
    idle_w: FloatArray
    full_w: FloatArray
    vcpus: FloatArray
    vcpus_all: FloatArray

    def take(self, at: IntArray, free: IntArray, vcpus: float) -> Nodes:
        """The states of the nodes `at`, shape (m,), with other free GPUs, shape (m, g), and fewer free CPUs."""
        return Nodes(
            free, self.capacity[at], self.idle_w[at], self.full_w[at], self.vcpus[at] - vcpus, self.vcpus_all[at]
        )


@dataclass(frozen=True, slots=True)
class Cpu:
    """The power of a node's processors: whole packages are idle or full.

    Attributes:
        cores: physical cores of a package, two virtual CPUs each.
        idle_w: a package with no busy core, W.
        full_w: a package with any busy core, W.
    """

    cores: int = 16
    idle_w: float = 15.0
    full_w: float = 120.0


def fits(nodes: Nodes, request: Request) -> BoolArray:
    """Which nodes can take the task now, shape (n,)."""
    enough: BoolArray = nodes.vcpus >= request.vcpus
    if request.gpus == 0:
        return enough
    room = (nodes.free >= request.milli) & (nodes.capacity > 0)
    able: BoolArray = enough & (room.sum(axis=1) >= request.gpus)
    return able


def power_w(nodes: Nodes, cpu: Cpu | None = None) -> FloatArray:
    """PWR's estimate of each node's power, W, shape (n,): a GPU with any share allocated draws all of its power."""
    used = nodes.free < nodes.capacity
    watts: FloatArray = np.where(used, nodes.full_w, nodes.idle_w).sum(axis=1)
    if cpu is None:
        return watts
    busy = np.ceil(nodes.vcpus_all / 2) - np.floor(nodes.vcpus / 2)
    packages = np.ceil(nodes.vcpus_all / 2 / cpu.cores)
    active = np.ceil(busy / cpu.cores)
    processors_w: FloatArray = cpu.full_w * active + cpu.idle_w * (packages - active)
    return watts + processors_w


def choices(nodes: Nodes, request: Request) -> tuple[IntArray, IntArray, Nodes]:
    """Every way of placing a task: the nodes, shape (m,), their GPUs, shape (m,), and their states afterwards.

    A share may go to any GPU with room; whole GPUs are the first free ones, and their first one is named. A task of
    CPUs alone names GPU -1.
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
    """FGD's F: milli that a task drawn from the typical classes is expected not to be able to use, shape (n,)."""
    total = np.zeros(len(nodes.free))
    left = nodes.free.sum(axis=1)
    for each, share in zip(classes, popularity, strict=True):
        useless = np.where(nodes.free < each.milli, nodes.free, 0).sum(axis=1)
        usable = fits(nodes, each) & (each.gpus > 0)
        total += share * np.where(usable, useless, left)
    return total


@dataclass(frozen=True, slots=True)
class Scores:
    """What PWR and FGD say of the nodes that can take a task, each array of shape (m,).

    Attributes:
        node: the nodes.
        saved_w: PWR's score before normalisation: power before less power after, in whole watts, at most 0.
        frugal: the GPU that PWR would use, the first of the best.
        tidy: FGD's score: 100 x sigmoid of the fragmentation saved, in whole GPUs.
        neat: the GPU that FGD would use, the first of the best; where both are weighed, FGD chooses the GPU.
    """

    node: IntArray
    saved_w: IntArray
    frugal: IntArray
    tidy: IntArray
    neat: IntArray


def scores(
    nodes: Nodes,
    requests: Sequence[Request],
    classes: Sequence[Request],
    popularity: Sequence[float],
    cpu: Cpu | None = None,
) -> list[Scores]:
    """Score every node that can take it for each of several tasks, as if each came alone.

    Args:
        nodes: the nodes.
        requests: the tasks.
        classes: FGD's typical classes of tasks.
        popularity: how popular they are, summing to one.
        cpu: the power of processors, None for none.
    """
    ways = [choices(nodes, request) for request in requests]
    at, gpu = (np.concatenate([way[part] for way in ways]) for part in (0, 1))
    after = Nodes(*(np.concatenate([getattr(way[2], name) for way in ways]) for name in Nodes.__slots__))
    saved_w = np.trunc(power_w(nodes, cpu)[at] - power_w(after, cpu)).astype(np.int64)
    saved = fragmentation(nodes, classes, popularity)[at] - fragmentation(after, classes, popularity)
    tidy = np.floor(100 / (1 + np.exp(-saved / WHOLE))).astype(np.int64)
    ends = np.cumsum([len(way[0]) for way in ways])[:-1]
    parts = zip(*(np.split(each, ends) for each in (at, gpu, saved_w, tidy)), strict=True)
    return [_scores(*part) for part in parts]


def normalised(scores: IntArray) -> IntArray:
    """PWR's scores on 0 .. 100, in whole numbers; all alike is 100 for all."""
    low, high = scores.min(), scores.max()
    return np.full_like(scores, 100) if low == high else 100 * (scores - low) // (high - low)


def weighed(saved_w: IntArray, tidy: IntArray, alpha: float) -> FloatArray:
    """PWR's score with weight `alpha` and FGD's with the rest, shape (m,)."""
    total: FloatArray = alpha * normalised(saved_w) + (1 - alpha) * tidy
    return total


def _scores(at: IntArray, gpu: IntArray, saved_w: IntArray, tidy: IntArray) -> Scores:
    node, frugal, power = _best(at, gpu, saved_w)
    _, neat, fragments = _best(at, gpu, tidy)
    return Scores(node, power, frugal, fragments, neat)


def _best(at: IntArray, gpu: IntArray, score: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """For each node the first of its choices with the highest score; choices come ordered by node, then by GPU."""
    order = np.lexsort((np.arange(len(at)), -score, at))
    first = order[np.unique(at[order], return_index=True)[1]]
    return at[first], gpu[first], score[first]
