"""What PowerFlow's gain at equal energy depends on, how well its models fit, and the claim on it, priced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from heshare.policies.power_flow import PowerFlow
from heshare.prediction.truth import DevicePredictor
from heshare.reporting import plots
from heshare.reporting.power_flow import FIFO, POWER_FLOW, SJF, SLOWER, SRTF, Home, at_equal_energy, runs, systems
from heshare.reporting.statistics import Interval
from heshare.reporting.style import look
from heshare.world import training
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster

VARIANTS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as above": ({}, {}),
    "without lower clocks": ({}, {"clocks": 1}),
    "without other numbers of GPUs": ({}, {"elastic": False}),
    "load 2": ({"load": 2.0}, {}),
    "MISO's trainings on A100": ({"gpu": "A100", "record": "miso"}, {}),
    "EaCO's trainings on V100-SXM2": ({"gpu": "V100-SXM2", "record": "eaco"}, {}),
}
"""What differs in the trace, and in PowerFlow, by title."""


def why(home: Home, budgets: Sequence[float], rng: np.random.Generator, *, seed: int, seeds: int) -> pd.DataFrame:
    """PowerFlow at the energy of FIFO and SRTF, with one thing changed at a time.

    Returns:
        One row a variant and comparator: variant, then the columns of `at_equal_energy`.
    """
    parts = []
    for title, (trace, changed) in VARIANTS.items():
        every = {key: make for key, make in systems(budgets, **changed).items() if key[0] != SJF}
        found = at_equal_energy(runs(replace(home, **trace), every, seed=seed, seeds=seeds), rng)
        found.insert(0, "variant", title)
        parts.append(found)
    return pd.concat(parts, ignore_index=True)


def fits(home: Home) -> pd.DataFrame:
    """How far PowerFlow's fitted models lie from the device, for each training of the record.

    Returns:
        One row a training: workload, sharpness, time_mean_pct, time_max_pct, energy_mean_pct, energy_max_pct (relative
        errors over the clocks that a plan may choose, %), provenance.
    """
    card, believed = gpu(home.gpu), DevicePredictor()
    policy = PowerFlow()
    policy.reset(Cluster((card,)), believed, np.random.default_rng(0))
    models = policy.models
    rows = []
    for workload in training.workloads(home.record):
        time, energy = models.fitted(workload, card)
        clocks = models.clocks_mhz(card)
        solo = [believed.solo([workload], card, mhz) for mhz in clocks]
        speed = np.array(clocks) / card.max_mhz
        time_s = np.array([each.time_s[0, 0] for each in solo])
        energy_j = time_s * [each.power_w[0] for each in solo]
        off = (
            100 * np.abs(time.at(1, speed) / time_s - 1),
            100 * np.abs(energy.at(time.at(1, speed), speed) / energy_j - 1),
        )
        rows.append((str(workload), time.sharpness, off[0].mean(), off[0].max(), off[1].mean(), off[1].max()))
    columns = ["workload", "sharpness", "time_mean_pct", "time_max_pct", "energy_mean_pct", "energy_max_pct"]
    return pd.DataFrame(rows, columns=columns).assign(provenance="emulated")


def priced(equal: pd.DataFrame, reasons: pd.DataFrame) -> dict[str, Any]:
    """Arguments of the claim: the comparator against which PowerFlow gains least, of those at the top clock.

    Args:
        equal: as from `at_equal_energy`.
        reasons: as from `why`.
    """
    running = equal[equal["account"] == "energy_j"]
    at_top = running[running["title"].isin([FIFO, SJF, SRTF])].sort_values("times")
    least: Any = at_top.iloc[0]
    others = ", ".join(f"{row.title} {row.times:.2f}x" for row in at_top.iloc[1:].itertuples())
    slower: Any = running[running["title"] == SLOWER].sort_values("times").iloc[0]
    idle: Any = equal[(equal["account"] != "energy_j") & (equal["title"] == least["title"])].iloc[0]
    parts = reasons[reasons["title"] == SRTF].set_index("variant")["times"]
    value = Interval(float(least["times"]), float(least["low"]), float(least["high"]), int(least["n"]))
    return value.priced(
        f"Against {least['title']}, at no more energy of GPUs that run something (with idle GPUs too, "
        f"{idle['times']:.2f}x); against {others}. Which comparators the paper had is not in the record. Against SRTF "
        f"at {slower['setting']:g} of the top clock, which its abstract does not name, it is {slower['times']:.2f}x. "
        f"Without lower clocks {parts['without lower clocks']:.2f}x, without other numbers of GPUs "
        f"{parts['without other numbers of GPUs']:.2f}x."
    )


def draw(axes: Sequence[Axes], frame: pd.DataFrame, reasons: pd.DataFrame) -> pd.DataFrame:
    """Two panels: average JCT over energy, and the gain at equal energy with one thing changed at a time.

    Args:
        axes: two.
        frame: as from `heshare.reporting.power_flow.runs`.
        reasons: as from `why`.

    Returns:
        The plotted numbers: panel, series, setting, x, value, low, high, provenance.
    """
    curve = frame.groupby(["title", "setting"], sort=False)[["energy", "jct"]].median().reset_index()
    for index, (title, part) in enumerate(curve.groupby("title", sort=False)):
        how = look(str(title), index)
        line = how.line if title in (POWER_FLOW, SLOWER) else ""
        axes[0].plot(part["energy"], part["jct"], color=how.colour, marker=how.marker, ls=line, label=str(title))
    axes[0].set(xlabel="Energy over FIFO's", ylabel="Average JCT over FIFO's")
    axes[0].xaxis.set_major_locator(MaxNLocator(5))
    plots.log_axis(axes[0])
    axes[0].legend(loc="upper right")
    gains = reasons[reasons["title"] == SRTF].iloc[::-1]
    places = np.arange(len(gains))
    off = [gains["times"] - gains["low"], gains["high"] - gains["times"]]
    axes[1].errorbar(gains["times"], places, xerr=np.maximum(off, 0), ls="", marker="o", color="black", elinewidth=0.6)
    axes[1].axvline(1.0, color="#999999", lw=0.7)
    axes[1].set(xlabel="SRTF's JCT over PowerFlow's")
    axes[1].set_yticks(places, list(gains["variant"]))
    curve = curve.rename(columns={"title": "series", "energy": "x", "jct": "value"}).assign(panel="curve")
    gains = gains.rename(columns={"variant": "series", "times": "value"}).assign(panel="gain")
    columns = ["panel", "series", "setting", "x", "value", "low", "high"]
    return pd.concat([curve, gains], ignore_index=True).reindex(columns=columns).assign(provenance="emulated")
