"""PWR's home setting: a datacentre filled task by task; what its GPUs are estimated to draw at each level.

Tasks arrive, take their share and never leave, until demand has passed the GPUs that there are (Lettich et al., CCGrid
2025). Known from the record: how many GPUs of which type with which idle and full power, how many nodes and processors,
and which share of tasks wants what. How big shares are and how many processors a task wants is not: see `Demand`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from heshare.arrays import FloatArray, IntArray
from heshare.experiments.statistics import median_interval
from heshare.experiments.study_runs import Repetition, paired_change, repeat
from heshare.systems.pwr.fragmentation import WHOLE, Cpu, Nodes, Request, choices, power_w, scores, weighed

# Published: type of GPU, how many in all, idle and full power (W). GPUs a node are assumed: with these, 1,192 nodes
# come out of 1,213. G2 and G3 are names of the trace; the published code counts them as A10 and A100.
DATACENTRE: Mapping[str, tuple[int, int, float, float]] = MappingProxyType(
    {
        "G2": (4392, 8, 30.0, 150.0),
        "T4": (842, 2, 10.0, 70.0),
        "G3": (312, 8, 50.0, 400.0),
        "P100": (265, 2, 25.0, 250.0),
        "V100": (399, 8, 30.0, 300.0),
        "A10": (2, 2, 30.0, 150.0),
    }
)
PLACERS = ("pwr", "fgd", "best fit", "packing", "random")


@dataclass(frozen=True, slots=True)
class TaskMix:
    """Which tasks arrive.

    Attributes:
        whole: share of tasks that want one whole GPU (published).
        shared: share of tasks that want a part of a GPU (published).
        processors: share of tasks that want processors alone (published); the rest want 2, 4 or 8 GPUs.
        milli: the parts that are wanted, each as likely as the others (assumed), milli.
        vcpus: virtual CPUs for each GPU, or for a part of one (assumed).
        vcpus_alone: virtual CPUs of a task of processors alone (assumed).
    """

    whole: float = 0.480
    shared: float = 0.378
    processors: float = 0.133
    milli: tuple[int, ...] = (100, 200, 300, 400, 500, 600, 700, 800, 900)
    vcpus: float = 6.0
    vcpus_alone: float = 8.0

    def classes(self) -> tuple[list[Request], FloatArray]:
        """The classes of tasks and how popular they are, shape (classes,), summing to one."""
        many = (2, 4, 8)
        requests = [Request(1, WHOLE, self.vcpus), Request(0, 0, self.vcpus_alone)]
        requests += [Request(1, milli, self.vcpus) for milli in self.milli]
        requests += [Request(gpus, WHOLE, self.vcpus * gpus) for gpus in many]
        rest = 1 - self.whole - self.shared - self.processors
        shares = [self.whole, self.processors]
        shares += [self.shared / len(self.milli)] * len(self.milli) + [rest / len(many)] * len(many)
        return requests, np.array(shares) / sum(shares)


def datacentre(scale: float, vcpus: float = 88.0) -> Nodes:
    """The published datacentre at a part of its size, empty; nodes have 107,018 / 1,213 = 88 virtual CPUs each."""
    rows = [
        (size, idle, full)
        for total, size, idle, full in DATACENTRE.values()
        for _ in range(round(total / size * scale))
    ]
    widest = max(size for size, _, _ in rows)
    there = np.array([[place < size for place in range(widest)] for size, _, _ in rows])
    capacity = np.where(there, WHOLE, 0)
    count = np.full(len(rows), vcpus)
    idle_w, full_w = (np.where(there, np.array(column)[:, None], 0.0) for column in list(zip(*rows, strict=True))[1:])
    return Nodes(capacity.copy(), capacity, idle_w, full_w, count, count.copy())


class Filling:
    """A datacentre being filled by one placer.

    Scores depend on a node's own state alone, so that after each placement only one node is scored again.

    Args:
        nodes: the empty datacentre.
        demand: which tasks arrive.
        placer: one of `PLACERS`; `pwr` has the weight `alpha`, with FGD for the rest.
        alpha: the weight of PWR's score.
        cpu: the power of processors.
    """

    def __init__(self, nodes: Nodes, demand: TaskMix, placer: str, alpha: float, cpu: Cpu) -> None:
        self.requests, self.popularity = demand.classes()
        self._placer, self._alpha, self._cpu = placer, alpha, cpu
        self.nodes = nodes
        shape = (len(self.requests), len(nodes.free))
        self._able = np.zeros(shape, dtype=bool)
        self._watts, self._fragments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self._gpu = np.zeros(shape, dtype=np.int64)
        self._score(np.arange(shape[1]))
        self.power_w = power_w(nodes, cpu)

    def place(self, kind: int, rng: np.random.Generator) -> bool:
        """Place one task of a class; whether there was room."""
        able = np.flatnonzero(self._able[kind])
        if not len(able):
            return False
        total = self._total(kind, able, rng)
        node = int(rng.choice(able[total >= total.max() - 1e-9]))
        self._take(kind, node)
        return True

    def _total(self, kind: int, able: IntArray, rng: np.random.Generator) -> FloatArray:
        free, all_of = self.nodes.free[able], self.nodes.capacity[able]
        if self._placer == "random":
            return np.zeros(len(able))
        if self._placer == "best fit":
            return np.asarray(-free.sum(axis=1), dtype=float)
        if self._placer == "packing":
            part = ((free > 0) & (free < all_of)).any(axis=1)
            shares = part & (self.requests[kind].milli < WHOLE)
            return np.asarray(2.0 * shares + (free.sum(axis=1) < all_of.sum(axis=1)), dtype=float)
        return weighed(self._watts[kind, able], self._fragments[kind, able], self._alpha)

    def _take(self, kind: int, node: int) -> None:
        one = np.array([node])
        request, state = self.requests[kind], self._only(one)
        _, gpu, after = choices(state, request)
        row = int(np.flatnonzero(gpu == self._gpu[kind, node])[0])
        self.nodes.free[node] = after.free[row]
        self.nodes.vcpus[node] = after.vcpus[row]
        self.power_w[node] = power_w(self._only(one), self._cpu)[0]
        self._score(one)

    def _only(self, at: IntArray) -> Nodes:
        return self.nodes.take(at, self.nodes.free[at], 0.0)

    def _score(self, at: IntArray) -> None:
        found = scores(self._only(at), self.requests, self.requests, list(self.popularity), self._cpu)
        for kind, each in enumerate(found):
            where = at[each.node]
            self._able[kind, at] = False
            self._able[kind, where] = True
            self._watts[kind, where], self._fragments[kind, where] = each.saved_w, each.tidy
            self._gpu[kind, where] = each.frugal if self._alpha == 1 else each.neat


def fill(
    placer: str,
    *,
    rng: np.random.Generator,
    alpha: float = 0.1,
    scale: float = 0.05,
    until: float = 1.2,
    demand: TaskMix | None = None,
    levels: Sequence[float] = tuple(np.round(np.arange(0.05, 1.201, 0.05), 2)),
) -> pd.DataFrame:
    """Fill the datacentre until the demand for GPUs has passed `until` times what there is.

    Args:
        placer: one of `PLACERS`.
        rng: draws tasks and ties; the same state of it gives every placer the same tasks.
        alpha: the weight of PWR's score with the placer `pwr`.
        scale: the size of the datacentre, 1 for the published one.
        until: demand at which it ends, as a multiple of all GPUs.
        demand: which tasks arrive.
        levels: demand at which a row is written, as a multiple of all GPUs.

    Returns:
        One row a level: demand, power_w, granted (allocated of requested GPUs, GRAR).
    """
    demand = demand or TaskMix()
    draw, ties = rng.spawn(2)
    filling = Filling(datacentre(scale), demand, placer, alpha if placer == "pwr" else 0.0, Cpu())
    all_milli = filling.nodes.capacity.sum()
    wanted = granted = 0
    rows = []
    waiting = list(levels)
    while waiting:
        kind = int(draw.choice(len(filling.requests), p=filling.popularity))
        milli = filling.requests[kind].gpus * filling.requests[kind].milli
        wanted += milli
        granted += milli * filling.place(kind, ties)
        while waiting and wanted >= waiting[0] * all_milli:
            share = granted / wanted
            rows.append((waiting.pop(0), float(filling.power_w.sum()), share))
        if wanted >= until * all_milli:
            break
    return pd.DataFrame(rows, columns=["demand", "power_w", "granted"])


def fill_all(
    placers: Mapping[str, tuple[str, float]], *, seed: int, seeds: int, scale: float, demand: TaskMix | None = None
) -> pd.DataFrame:
    """Fill the same datacentre with the same tasks by several placers, `seeds` times.

    Args:
        placers: the placer and its weight, by the name in figures.
        seed: of all draws.
        seeds: how many repetitions.
        scale: the size of the datacentre, 1 for the published one.
        demand: which tasks arrive.

    Returns:
        As `fill`, with the columns repetition and title before.
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        for title, (placer, alpha) in placers.items():
            filled = fill(placer, rng=repetition.rng(), alpha=alpha, scale=scale, demand=demand)
            for level, drawn_w, granted in filled.itertuples(index=False):
                yield {"title": title, "demand": level, "power_w": drawn_w, "granted": granted}

    return repeat(run_one, seed=seed, seeds=seeds)


def saved(fills: pd.DataFrame, against: str, rng: np.random.Generator) -> pd.DataFrame:
    """Estimated power of each placer against another at each level of demand, paired by repetition.

    Args:
        fills: as from `fill_all`.
        against: the title of the other.
        rng: of the bootstrap.

    Returns:
        One row a placer and level: title, demand, change_pct, low, high, n, granted (median), provenance.
    """
    rows = []
    for title in dict.fromkeys(fills["title"]):
        for demand, part in fills.groupby("demand"):
            change = paired_change(part, title, against, "power_w", rng).columns("change_pct")
            granted = part[part["title"] == title]["granted"].median()
            rows.append({"title": title, "demand": demand, **change, "granted": granted})
    return pd.DataFrame(rows).assign(provenance="emulated")


def evaluate_power(
    fills: pd.DataFrame, ours: str, against: str, rng: np.random.Generator, below: float = 0.9
) -> dict[str, Any]:
    """Arguments of the claim on PWR: the mean change in power over demand up to `below`, while GPUs are free."""
    free = fills[fills["demand"] <= below]
    wide = free.pivot_table(index=["repetition", "demand"], columns="title", values="power_w")
    change = 100.0 * (wide[ours] / wide[against] - 1.0)
    found = median_interval(change.groupby(level="repetition").mean(), rng)
    last = fills["demand"].max()
    end = saved(fills[fills["demand"] == last], against, rng).set_index("title").loc[ours]
    return found.claim_arguments(
        f"{ours}; the mean over demand up to {below:g} of all GPUs. At {last:g}, where GPUs have run out, "
        f"{end['change_pct']:+.1f} % [{end['low']:+.1f}, {end['high']:+.1f}]."
    )
