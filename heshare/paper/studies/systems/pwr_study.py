"""The study of PWR in the setting of its own paper: the estimated power of a datacentre that is filled task by task.

Tasks arrive, take their share and never leave, until demand has passed the GPUs that there are (Lettich et al., CCGrid
2025). Published: number, idle power and full power of the GPUs of each type, numbers of nodes and processors, and the
share of tasks with each kind of request. Not published, so assumed: sizes of shares, and virtual CPUs of a task.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import paired_change, repeat, with_median
from heshare.lab.systems.pwr.fragmentation import WHOLE, Nodes, Request, choices, power_w, scores, weighed
from heshare.paper.claims.sources import claim_of_row
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import BAND
from heshare.paper.texts import render
from heshare.shared.arrays import FloatArray, IntArray

DATACENTRE: Mapping[str, tuple[int, int, float, float]] = {
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
PAPER_PCT = paper_claims()["X1", ""].ends
"""Range of the change in power in PWR's abstract, before GPUs run out, %."""
PLACERS = ("pwr", "fgd", "random")
LEVELS = np.round(np.arange(0.05, 1.201, 0.05), 2)
"""Levels of demand, as multiples of all GPUs; the datacentre is filled up to the last one."""


def task_classes() -> tuple[list[Request], FloatArray]:
    """Return the classes of tasks and how popular they are, shape (classes,), summing to one."""
    requests = [Request(1, WHOLE, TASK_VCPUS), Request(0, 0, NO_GPU_VCPUS)]
    requests += [Request(1, milli, TASK_VCPUS) for milli in PARTS_MILLI]
    requests += [Request(gpus, WHOLE, TASK_VCPUS * gpus) for gpus in SEVERAL]
    rest = 1 - ONE_GPU - PART_OF_GPU - NO_GPU
    shares = [ONE_GPU, NO_GPU]
    shares += [PART_OF_GPU / len(PARTS_MILLI)] * len(PARTS_MILLI) + [rest / len(SEVERAL)] * len(SEVERAL)
    return requests, np.array(shares) / sum(shares)


def datacentre(scale: float) -> Nodes:
    rows = [
        (size, idle_w, full_w)
        for total, size, idle_w, full_w in DATACENTRE.values()
        for _ in range(round(total / size * scale))
    ]
    sizes, idle_w, full_w = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    has_gpu = np.arange(sizes.max()) < sizes
    capacity = np.where(has_gpu, WHOLE, 0)
    vcpus = np.full(len(rows), NODE_VCPUS)
    return Nodes(
        capacity.copy(),
        capacity,
        np.where(has_gpu, idle_w, 0.0),
        np.where(has_gpu, full_w, 0.0),
        vcpus,
        vcpus.copy(),
    )


class Filling:
    """A datacentre that one placer fills.

    Scores depend on a node's own state alone, so that after each placement only one node is scored again. `placer`
    is one of `PLACERS`; `pwr` has the weight `alpha`, with FGD for the rest.
    """

    def __init__(self, nodes: Nodes, placer: str, alpha: float) -> None:
        self.requests, self.popularity = task_classes()
        self._placer, self._alpha = placer, alpha
        self.nodes = nodes
        shape = (len(self.requests), len(nodes.free))
        self._able = np.zeros(shape, dtype=bool)
        self._saved_w, self._fragmentation, self._gpu = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self._score(np.arange(shape[1]))
        self.power_w = power_w(nodes)

    def place(self, kind: int, rng: np.random.Generator) -> bool:
        """Place one task of a class in the datacentre, and return whether there was room."""
        able = np.flatnonzero(self._able[kind])
        if not len(able):
            return False
        total = self._total(kind, able)
        self._take(kind, int(rng.choice(able[total >= total.max() - 1e-9])))
        return True

    def _total(self, kind: int, able: IntArray) -> FloatArray:
        if self._placer == "random":
            return np.zeros(len(able))
        return weighed(self._saved_w[kind, able], self._fragmentation[kind, able], self._alpha)

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
            parts = _scores_of_node(*(tuple(each) if isinstance(each, list) else each for each in state))
            self._able[:, node], self._saved_w[:, node], self._fragmentation[:, node] = parts[:3]
            self._gpu[:, node] = parts[3 if self._alpha == 1 else 4]


@lru_cache(maxsize=100_000)
def _scores_of_node(*state: Any) -> tuple[Any, ...]:
    """Return the `scores` of a node in a state, the fields of `Nodes`, for each class of tasks.

    Returns:
        Arrays of shape (classes,): whether there is room, PWR's score, FGD's, PWR's choice of a GPU and FGD's.
    """
    requests, popularity = task_classes()
    found = scores(Nodes(*(np.array([each]) for each in state)), requests, requests, list(popularity))
    names = ("saved_w", "fragmentation", "power_gpu", "fragmentation_gpu")
    rows = [
        [len(each.node) > 0, *(getattr(each, name)[0] if len(each.node) else 0 for name in names)] for each in found
    ]
    return tuple(np.array(rows).T)


def fill(placer: str, *, rng: np.random.Generator, alpha: float = 0.1, scale: float = 0.05) -> pd.DataFrame:
    """Fill the datacentre up to the last level of demand.

    The same state of `rng` gives every placer the same tasks; `scale` is over the published size. There is a row for
    each of `LEVELS`: demand, power_w, granted (allocated of requested GPUs, GRAR).
    """
    draw, ties = rng.spawn(2)
    filling = Filling(datacentre(scale), placer, alpha if placer == "pwr" else 0.0)
    all_milli = filling.nodes.capacity.sum()
    requested = granted = 0
    rows = []
    for level in LEVELS.tolist():
        while requested < level * all_milli:
            kind = int(draw.choice(len(filling.requests), p=filling.popularity))
            milli = filling.requests[kind].gpus * filling.requests[kind].milli
            requested += milli
            granted += milli * filling.place(kind, ties)
        rows.append((level, float(filling.power_w.sum()), granted / requested))
    return pd.DataFrame(rows, columns=["demand", "power_w", "granted"])


def fill_all(placers: Mapping[str, tuple[str, float]], *, seed: int, seeds: int, scale: float) -> pd.DataFrame:
    """Fill the same datacentre with the same tasks by several placers, `seeds` times.

    `placers` has each placer and its weight by the name in figures.
    """

    def run_one(repetition: Repetition) -> Iterator[Mapping[Any, object]]:
        for title, (placer, alpha) in placers.items():
            filled = fill(placer, rng=repetition.rng(), alpha=alpha, scale=scale)
            yield from filled.assign(title=title).to_dict("records")

    return repeat(run_one, seed=seed, seeds=seeds)


def saved(fills: pd.DataFrame, against: str) -> pd.DataFrame:
    """Compare the estimated power of each placer with another's at each level of demand, paired by repetition."""
    rows = []
    for title in fills["title"].unique():
        for demand, part in fills.groupby("demand"):
            change = paired_change(part, title, against, "power_w").columns("change_pct")
            granted = part[part["title"] == title]["granted"].median()
            rows.append({"title": title, "demand": demand, **change, "granted": granted})
    return pd.DataFrame(rows).assign(provenance="emulated")


def mean_change(fills: pd.DataFrame, ours: str, against: str, below: float = 0.9) -> pd.DataFrame:
    """Return the mean change in power over demand up to `below`, with free GPUs, by repetition, and its median, %."""
    free = fills[fills["demand"] <= below]
    wide = free.pivot_table(index=["repetition", "demand"], columns="title", values="power_w")
    change = 100.0 * (wide[ours] / wide[against] - 1.0)
    means = change.groupby(level="repetition").mean()
    return with_median(means, ours=ours, against=against, up_to=below).assign(provenance="emulated")


def evaluate_power(change: pd.DataFrame, saved: pd.DataFrame) -> dict[str, Any]:
    ours, up_to = change["ours"].iloc[0], change["up_to"].iloc[0]
    end = saved[saved["title"] == ours].sort_values("demand").iloc[-1]
    return claim_of_row(change, "X1") | {"note": render("18_pwr", "power", ours=ours, up_to=up_to, end=end)}


def apart_pct(saved: pd.DataFrame) -> float:
    """Return how far the changes of PWR's weights are apart at most, percentage points; frame of `saved`."""
    weights: Any = saved[saved["title"].str.startswith("PWR")].pivot_table(
        index="demand", columns="title", values="change_pct"
    )
    return float((weights.max(axis=1) - weights.min(axis=1)).max())


def power_panel(ax: Axes, saved: pd.DataFrame) -> None:
    ax.axhspan(*PAPER_PCT, color=BAND, linewidth=0, zorder=0, label="PWR's paper")
    plots.lines(ax, saved, x="demand", y="change_pct", series="title", every=2)
    ax.set(xlabel="Demand, as a share of all GPUs", ylabel="Power against FGD (%)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3)
