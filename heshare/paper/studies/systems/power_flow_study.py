"""The study of PowerFlow in the setting of its own paper: its curve of average JCT over energy for elastic trainings.

The trace, cluster and load of PowerFlow's evaluation are not in the record. Here the trace meets the published figures
of Helios Venus, and every job may run on 1, 2, 4 or 8 GPUs. Energy is that of GPUs while they run something, which is
what PowerFlow's budget limits; the energy with idle GPUs is given too.

`run_systems` runs the systems, `at_equal_energy` compares them, and `sensitivity` changes one thing at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval, median_interval
from heshare.lab.sweeps.study_runs import least_within, repeat
from heshare.lab.systems.power_flow.policy import PowerFlow
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.cluster_nodes import average_active, node_energy_j
from heshare.lab.systems.shared.exclusive import Exclusive
from heshare.lab.systems.shared.trace_jobs import venus_trainings
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures import plots
from heshare.paper.figures.direct_labels import PointLabel, label_points
from heshare.paper.figures.rows import interval_rows, value_line
from heshare.paper.figures.series_styles import series_style
from heshare.paper.texts import render
from heshare.policies.policy import Policy
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run, jct_summary
from heshare.running.run import run
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task

WIDTHS = (1, 2, 4, 8)
START_S = 10.0
"""Time that a start, or a change of GPUs, takes, s; assumed."""
FIFO, SJF, SRTF, POWER_FLOW = "FIFO", "SJF", "SRTF", "PowerFlow"
SLOWER = "SRTF, lower clocks"
PAPER_LEAST, PAPER_MOST = paper_claims()["W1", ""].ends
"""The range of gains in average JCT in PowerFlow's abstract."""
COMPARATORS: Mapping[str, Callable[[], Policy]] = {
    FIFO: Exclusive,
    SJF: partial(Exclusive, order="shortest"),
    SRTF: partial(PowerFlow, clocks=1, elastic=False),
}
"""Comparators at the top clock, on as many GPUs as jobs request."""
VARIANTS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "unchanged": ({}, {}),
    "without lower clocks": ({}, {"clocks": 1}),
    "without other numbers of GPUs": ({}, {"elastic": False}),
    "load 2": ({"load": 2.0}, {}),
    "MISO's trainings on A100": ({"gpu": "A100", "record": "miso"}, {}),
    "EaCO's trainings on V100-SXM2": ({"gpu": "V100-SXM2", "record": "eaco"}, {}),
}
"""The change of the trace and the change of PowerFlow in each variant of `sensitivity`, by title."""

_words = partial(render, "15_powerflow")


@dataclass(frozen=True, slots=True)
class StudySetting:
    """Setting of PowerFlow's study: a trace of elastic trainings and its cluster.

    Attributes:
        jobs: jobs to draw; those of other durations, or for more than a node, are left out.
        gpus: GPUs of the cluster.
        load: the offered load of the cluster; assumed.
        gpu: their type; assumed.
        record: the record of the trainings (`gavel`, `miso`, `eaco`); assumed.
    """

    jobs: int = 120
    gpus: int = 32
    load: float = 1.0
    gpu: str = "V100"
    record: str = "gavel"

    def draw_tasks(self, rng: np.random.Generator) -> tuple[Task, ...]:
        tasks = venus_trainings(self.jobs, rng=rng, gpus=self.gpus, load=self.load, record=self.record)
        # Without epochs, a job that is stopped loses no work.
        return tuple(replace(task, epochs=None, widths=WIDTHS) for task in tasks)


def run_systems(
    setting: StudySetting, systems: Mapping[tuple[str, float], Callable[[], Policy]], *, seed: int, seeds: int
) -> pd.DataFrame:
    """Run the systems on the same tasks.

    `systems` has makers of policies by title and parameter (a budget or a clock; 1 where there is none).
    """
    cluster = Cluster((gpu(setting.gpu),) * setting.gpus)

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        tasks = setting.draw_tasks(repetition.rng())
        for (title, parameter), make in systems.items():
            rng = np.random.default_rng(0)
            result = run(tasks, cluster, make(), predictor=DevicePredictor(), rng=rng, start_cost_s=START_S)
            yield {"title": title, "setting": parameter, **_measures(result)}

    frame = repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")
    first = frame[frame["title"] == FIFO].set_index("repetition")
    for column, account in (("energy", "energy_j"), ("energy_cluster", "energy_cluster_j"), ("jct", "avg_jct_s")):
        frame[column] = frame[account] / frame["repetition"].map(first[account])
    return frame


def _measures(result: Run) -> dict[str, float]:
    segments, k = result.record.segments, len(result.cluster)
    alone_s = np.array([training.alone_s(task) for task in result.tasks])
    return {
        "tasks": len(result.tasks),
        "energy_j": float(node_energy_j(segments, k, result.makespan_s, sleep_w=0.0).sum()),
        "energy_cluster_j": result.energy_cluster_j,
        **jct_summary(result.jct_s),
        "slowdown": float(np.median(result.jct_s / alone_s)),
        "starts": len({(interval.task, interval.start_s) for interval in result.record.intervals}),
        "active_gpus": average_active(segments, result.makespan_s),
    }


def systems(
    budgets: Sequence[float], ceilings: Sequence[float] = (), **changed: Any
) -> dict[tuple[str, float], Callable[[], Policy]]:
    """Return makers of the comparators, of SRTF at lower clocks (over the top one), and of PowerFlow under budgets.

    The parameters `changed` are those of every PowerFlow.
    """
    makers: dict[tuple[str, float], Callable[[], Policy]] = {(title, 1.0): make for title, make in COMPARATORS.items()}
    for ceiling in ceilings:
        makers[SLOWER, ceiling] = partial(PowerFlow, clocks=1, elastic=False, ceiling=ceiling)
    for budget in budgets:
        makers[POWER_FLOW, budget] = partial(PowerFlow, budget=budget, **changed)
    return makers


def at_equal_energy(frame: pd.DataFrame, account: str = "energy_j") -> pd.DataFrame:
    """Return how many times lower the average JCT under PowerFlow is, at no more energy than a comparator takes.

    Nothing is interpolated. A repetition without such a budget has the value 1; `reached` counts the others. The frame
    is that of `run_systems`, and `account` its column of energy.
    """
    ours = frame[frame["title"] == POWER_FLOW]
    rows = []
    for (title, setting), part in frame[frame["title"] != POWER_FLOW].groupby(["title", "setting"], sort=False):
        ratios = [_times(ours[ours["repetition"] == row["repetition"]], row, account) for _, row in part.iterrows()]
        times = median_interval(np.nan_to_num(ratios, nan=1.0)).columns("times")
        reached, energy = int(np.isfinite(ratios).sum()), part[account.removesuffix("_j")].median()
        row = {"account": account, "title": title, "setting": setting, "energy": energy}
        rows.append({**row, **times, "reached": reached})
    return pd.DataFrame(rows).assign(provenance="emulated")


def _times(ours: pd.DataFrame, theirs: pd.Series, account: str) -> float:
    # Energies are sums of segments in different orders: equal ones may differ in the last digits.
    return float(theirs["avg_jct_s"] / least_within(ours, "avg_jct_s", account, theirs[account] * (1 + 1e-9)))


def sensitivity(setting: StudySetting, budgets: Sequence[float], *, seed: int, seeds: int) -> pd.DataFrame:
    """Compare PowerFlow with FIFO and SRTF at equal energy, with one thing changed at a time (`VARIANTS`)."""
    parts = []
    for title, (trace, changed) in VARIANTS.items():
        makers = {key: make for key, make in systems(budgets, **changed).items() if key[0] != SJF}
        equal = at_equal_energy(run_systems(replace(setting, **trace), makers, seed=seed, seeds=seeds))
        equal.insert(0, "variant", title)
        parts.append(equal)
    return pd.concat(parts, ignore_index=True)


def evaluate_jct(equal: pd.DataFrame, variants: pd.DataFrame) -> dict[str, Any]:
    running = equal[equal["account"] == "energy_j"].sort_values("times")
    least, *others = running[running["title"].isin([FIFO, SJF, SRTF])].to_dict("records")
    slower = running[running["title"] == SLOWER].iloc[0]
    idle = equal[(equal["account"] != "energy_j") & (equal["title"] == least["title"])].iloc[0]
    parts = variants[variants["title"] == SRTF].set_index("variant")["times"]
    value = ConfidenceInterval(least["times"], least["low"], least["high"], least["n"])
    return value.claim_arguments(
        _words("jct", least=least, idle=idle, others=others, slower=slower, parts=parts),
        at={"title": least["title"]},
        testable=False,
        why=_words("jct_in_short", least=least),
    )


def draw_panels(axes: Sequence[Axes], frame: pd.DataFrame, variants: pd.DataFrame) -> pd.DataFrame:
    curve = frame.groupby(["title", "setting"], sort=False)[["energy", "jct"]].median().reset_index()
    names, covered = [], []
    for title, part in curve.groupby("title", sort=False):
        style, points = series_style(str(title)), part[["energy", "jct"]].to_numpy(float)
        line = style.line if title in (POWER_FLOW, SLOWER) else ""
        axes[0].plot(*points.T, **style.line_arguments(linestyle=line))
        x, y = points[points[:, 0].argmax()].tolist()
        names.append(PointLabel(x, y, str(title), style.colour))
        # The lines as points: names should not cover them.
        steps = np.linspace(0, len(points) - 1, 300)
        covered.append(np.column_stack([np.interp(steps, range(len(points)), each) for each in points.T]))
    axes[0].set(xlabel="Energy over FIFO's", ylabel="Average JCT over FIFO's")
    axes[0].xaxis.set_major_locator(MaxNLocator(5))
    axes[0].margins(0.15)
    plots.log_axis(axes[0])
    label_points(axes[0], names, avoid=np.vstack(covered))
    gains = variants[variants["title"] == SRTF]
    interval_rows(axes[1], gains, row="variant", value="times", low="low", high="high", series="title")
    value_line(axes[1], 1.0, line="-")
    value_line(axes[1], PAPER_LEAST, f"the paper: {PAPER_LEAST:g}x or more")
    axes[1].set(xlabel="SRTF's JCT over PowerFlow's")
    curve = curve.rename(columns={"title": "series", "energy": "x", "jct": "value"}).assign(panel="curve")
    gains = gains.rename(columns={"variant": "series", "times": "value"}).assign(panel="gain")
    columns = ["panel", "series", "setting", "x", "value", "low", "high"]
    return pd.concat([curve, gains], ignore_index=True).reindex(columns=columns).assign(provenance="emulated")
