"""Panels on power limits: what they cost in average JCT, and the power of a run with and without one."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import CAP, FAINT, POWER, series_style


def cost_lines(ax: Axes, costs: pd.DataFrame) -> None:
    """Draw the change of the average JCT over the limit: a line with 95 % intervals for each policy."""
    drawn = costs[costs["metric"] == "avg_jct_s"]
    titles = list(drawn["title"].unique())
    for place, (name, part) in enumerate(drawn.groupby("title", sort=False)):
        # Side by side, so that the intervals at one limit can be told apart.
        x = 100.0 * part["share"].to_numpy(float) + 1.2 * (place - (len(titles) - 1) / 2)
        lengths = plots.interval_lengths(part, "change_pct", "low", "high")
        how = series_style(str(name)).line_arguments()
        ax.errorbar(x, part["change_pct"], yerr=lengths, elinewidth=0.7, label=str(name), **how)
    ax.axhline(0.0, color=FAINT, linewidth=0.7, zorder=0)
    ax.set_xticks(sorted(100.0 * drawn["share"].unique()))
    ax.invert_xaxis()
    ax.set(xlabel="Power limit (% of the unlimited peak)", ylabel="Average JCT against no limit (%)")
    ax.legend(loc="upper left")


def power_lines(ax: Axes, steps: pd.DataFrame) -> None:
    """Draw the power of all GPUs over time, in grey without a limit, and the limit as a dashed line."""
    for case, part in steps.groupby("case", sort=False):
        limit_w = float(part["limit_w"].iloc[0])
        free = np.isnan(limit_w)
        hours, power_w = part["time_s"].to_numpy(float) / 3600.0, part["power_w"].to_numpy(float)
        ax.step(hours, power_w, where="post", color=FAINT if free else POWER, linewidth=0.9, label=str(case))
        if not free:
            ax.axhline(limit_w, color=CAP, linestyle="--", linewidth=0.7, label=f"limit, {limit_w:.0f} W")
    ax.set(xlabel="Time (h)", ylabel="Power of all GPUs (W)")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper right")
