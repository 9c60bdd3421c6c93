"""What the choice of MPS percentages is worth on the device model: pairs at p and 100 - p % against 50 and 50 %.

This is the setting of Han et al., Energy-efficient GPU SM allocation, ACM SIGMETRICS Performance Evaluation Review
53(2), 2025, DOI 10.1145/3764944.3764952. Its abstract says that chosen shares are 35 % better than equal ones on
average, over training, inference and other programs; it names neither the GPU nor the measure, so that two are used.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from heshare.devices.constants import Constants, Timing, default
from heshare.devices.device_model import co_run
from heshare.paper.figures.series_styles import EDGE, GUIDE, series_style
from heshare.paper.studies.sensitivity_worlds import Change, scaled_contention, scaled_power
from heshare.scheduling.pareto import Front
from heshare.shared.arrays import FloatArray
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

PAPER_PCT = 35.0
"""Gain over equal shares in the abstract of Han et al., %."""
MEASURES: Mapping[str, str] = {
    "throughput": "throughput per W, endless tasks",
    "energy": "energy, one task four times as long",
    "jct": "sum of completion times, the same tasks",
}
"""The measures of a share: the sum of two tasks' speeds (over alone) per W of board power; the energy until both of two
tasks have ended, and the sum of their completion times. A task keeps its share when the other has ended, as under MPS.
"""
LENGTHS = (1.0, 4.0)
"""Times alone of the two tasks in `energy` and `jct`, s; each of a pair is the longer one once."""
STEPS = tuple(range(10, 100, 10))
"""Percentages of the first task of a pair that are tried."""
AS_CALIBRATED = "as calibrated"
INSENSITIVE = "SMs matter to one of the two only"


def _timings(change: Callable[[Timing], Timing]) -> Change:
    return lambda known: replace(known, timing={key: change(each) for key, each in known.timing.items()})


def _insensitive(known: Constants) -> Constants:
    """Return constants in which every other network of the catalogue waits for memory while the SMs would work."""
    chosen = set(list(catalogue.paper_models())[1::2])

    def changed(timing: Timing) -> Timing:
        waits_s = timing.memory_s + timing.work_per_sample_s
        return replace(
            timing,
            latency_s=timing.latency_s + timing.work_s + timing.fill_s,
            memory_s=waits_s,
            work_s=0.0,
            work_per_sample_s=0.0,
            fill_s=0.0,
        )

    return replace(
        known, timing={key: changed(each) if key[2] in chosen else each for key, each in known.timing.items()}
    )


@dataclass(frozen=True, slots=True)
class Term:
    """One change of the device model.

    Attributes:
        change: of the constants.
        mixed: whether a pair has one network of even and one of odd place in the catalogue.
    """

    change: Change = lambda known: known
    mixed: bool = False


TERMS: Mapping[str, Term] = {
    AS_CALIBRATED: Term(),
    "contention x5": Term(scaled_contention(5.0)),
    "latency is work": Term(
        _timings(lambda timing: replace(timing, latency_s=0.0, work_s=timing.work_s + timing.latency_s))
    ),
    "no idle power": Term(scaled_power("idle_w", 0.0)),
    INSENSITIVE: Term(_insensitive, mixed=True),
}
"""One change each: of contention, of the part of a time that a share does not change, of power. The last is a what-if:
one task of each pair needs few SMs."""


def gains(gpus: Sequence[str], batch_size: int, terms: Sequence[str] = tuple(TERMS)) -> pd.DataFrame:
    """Return what the best p and 100 - p % is worth over 50 and 50 %, for pairs of different networks of Table IV."""
    rows = []
    for name, term in product(gpus, terms):
        found = pd.DataFrame(_pairs(catalogue.gpu(name), batch_size, TERMS[term]))
        for measure in MEASURES:
            chosen, full = found[f"{measure}_chosen_pct"], found[f"{measure}_full_pct"]
            sizes = {"gain_pct": chosen.mean(), "least_pct": chosen.min(), "most_pct": chosen.max()}
            row = {"gpu": name, "term": term, "measure": measure, **sizes, "full_pct": full.mean(), "n": len(found)}
            rows.append({**row, "paper_pct": PAPER_PCT, "provenance": "emulated"})
    return pd.DataFrame(rows)


def _pairs(gpu: Gpu, batch_size: int, term: Term) -> Iterator[dict[str, float]]:
    device = _Shares(gpu, batch_size, term.change(default()))
    order = {model: place % 2 for place, model in enumerate(catalogue.paper_models())}
    for pair in combinations(order, 2):
        alike = term.mixed and order[pair[0]] == order[pair[1]]
        if alike or sum(catalogue.memory_mib(Workload(model, batch_size)) for model in pair) > gpu.memory_mib:
            continue
        equal, full = (device.measures(pair, (pct, pct)) for pct in (50, 100))
        best = np.max([equal, *(device.measures(pair, (pct, 100 - pct)) for pct in STEPS)], axis=0)
        chosen_pct, full_pct = (100.0 * (found / equal - 1.0).mean(axis=1) for found in (best, full))
        yield {f"{measure}_chosen_pct": float(size) for measure, size in zip(MEASURES, chosen_pct, strict=True)} | {
            f"{measure}_full_pct": float(size) for measure, size in zip(MEASURES, full_pct, strict=True)
        }


class _Shares:
    def __init__(self, gpu: Gpu, batch_size: int, known: Constants) -> None:
        self._gpu, self._batch_size, self._known = gpu, batch_size, known
        self._single: dict[tuple[str, int], tuple[float, float]] = {}

    def _resident(self, model: str, pct: int) -> Resident:
        return Resident(Workload(model, self._batch_size), pct)

    def _alone(self, model: str, pct: int) -> tuple[float, float]:
        """Return (seconds per iteration, W) of one task."""
        if (model, pct) not in self._single:
            found = co_run(self._gpu, (self._resident(model, pct),), constants=self._known)
            self._single[model, pct] = found.tasks[0].time_s, found.power_w
        return self._single[model, pct]

    def measures(self, models: tuple[str, str], pcts: tuple[int, int]) -> FloatArray:
        """Return `MEASURES` of a pair at two percentages, with either task as the longer one, shape (3, 2).

        More is better: energy and completion times are inverted.
        """
        both = tuple(self._resident(model, pct) for model, pct in zip(models, pcts, strict=True))
        found = co_run(self._gpu, both, constants=self._known)
        full_s = np.array([self._alone(model, 100)[0] for model in models])
        speeds = full_s / np.array([task.time_s for task in found.tasks])
        values = []
        for lengths_s in (LENGTHS, LENGTHS[::-1]):
            ends_s = np.array(lengths_s) / speeds
            first = int(np.argmin(ends_s))
            last = 1 - first
            time_s, power_w = self._alone(models[last], pcts[last])
            rest_s = (1.0 - ends_s[first] / ends_s[last]) * lengths_s[last] * time_s / full_s[last]
            energy_j = ends_s[first] * found.power_w + rest_s * power_w
            values.append([speeds.sum() / found.power_w, 1.0 / energy_j, 1.0 / (2.0 * ends_s[first] + rest_s)])
        return np.array(values).T


def summary(table: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the gain on each GPU as calibrated, by the words of a measure."""
    here = table[table["term"] == AS_CALIBRATED].set_index("gpu")
    return {words: here[here["measure"] == measure]["gain_pct"] for measure, words in list(MEASURES.items())[:2]}


def at_full(fronts: Sequence[Front]) -> tuple[int, int, int]:
    """Return (tasks that share at 100 %, tasks that share, tasks) of the fronts' Trade-off plans."""
    batches = [batch.mps_pct for front in fronts for queue in front.trade_off.queues for batch in queue]
    shared = [pct for each in batches if len(each) > 1 for pct in each]
    return sum(pct == 100 for pct in shared), len(shared), sum(map(len, batches))


def draw(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    """Draw the mean gain of each term and GPU, a panel for each of two measures; open: 100 and 100 %."""
    terms = list(dict.fromkeys(table["term"]))
    gpus = list(dict.fromkeys(table["gpu"]))
    for ax, (measure, words) in zip(axes, list(MEASURES.items())[:2], strict=True):
        for place, gpu in enumerate(gpus):
            rows = table[(table["measure"] == measure) & (table["gpu"] == gpu)].set_index("term").loc[terms]
            at = np.arange(len(terms)) + 0.7 * ((place + 0.5) / len(gpus) - 0.5)
            how = {**series_style(gpu).line_arguments(linestyle=""), "markersize": 3}
            ax.plot(rows["gain_pct"].to_numpy(float), at, **how, label=gpu)
            ax.plot(rows["full_pct"].to_numpy(float), at, **{**how, "markerfacecolor": "white"})
        ax.axvline(PAPER_PCT, color=EDGE, linewidth=0.8, label="Han et al.")
        ax.axvline(0.0, color=GUIDE, linewidth=0.6)
        ax.set_yticks(range(len(terms)), [textwrap.fill(term, 20) for term in terms], fontsize=6)
        ax.set(ylim=(len(terms) - 0.5, -0.5))
        ax.set_xlabel(textwrap.fill(f"Gain (%), {words}", 22))
        ax.grid(axis="both")
    mark: Any = {"color": EDGE, "marker": "o", "linestyle": "", "markersize": 3}
    faces = (("best p and 100 - p %", EDGE), ("100 % for both", "white"))
    meaning = [Line2D([], [], label=label, markerfacecolor=face, **mark) for label, face in faces]
    handles = [*axes[0].get_legend_handles_labels()[0], *meaning]
    axes[0].figure.legend(handles=handles, loc="outside upper center", ncols=3)
