"""Panels on prices: a day's price, and the money saved by waiting against the JCT that waiting costs."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.limits.prices.energy_signal import DAY_S, EnergySignal
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import EFFECT, FAINT, GUIDE, series_style
from heshare.paper.studies.limits.price_study import AT_ONCE, CHEAPEST, SAVING


def price_steps(ax: Axes, price: EnergySignal, start_hours: list[float]) -> None:
    """Draw a day's price in steps, with the hours at which the runs begin."""
    hours = [time_s / 3_600.0 for time_s in (*price.time_s, DAY_S)]
    ax.step(hours, [*price.value, price.value[-1]], where="post", color=EFFECT, linewidth=1.2)
    for number, hour in enumerate(start_hours):
        label = "a run begins" if number == 0 else None
        ax.axvline(hour, color=FAINT, linestyle=":", linewidth=0.8, zorder=0, label=label)
    ax.set(xlabel="Hour of the day", ylabel="Price of a kWh")
    ax.set_xlim(0, 24)
    ax.set_xticks(range(0, 25, 6))
    ax.set_ylim(bottom=min(0.0, *price.value))
    ax.legend(loc="upper left")


def saving_lines(ax: Axes, found: pd.DataFrame) -> None:
    """Draw money saved over the JCT added: a line with 95 % intervals for each policy, the baseline dashed in grey."""
    first = str(found["title"].iloc[0])
    for name, part in found.groupby("title", sort=False):
        shown = part[part["rule"].isin([AT_ONCE, SAVING])].sort_values("added_jct_h")
        how = series_style(str(name)).line_arguments()
        lengths = plots.interval_lengths(shown, "saved_pct", "low", "high")
        ax.errorbar(shown["added_jct_h"], shown["saved_pct"], yerr=lengths, elinewidth=0.7, label=str(name), **how)
    base = found[(found["title"] == first) & found["rule"].isin([AT_ONCE, CHEAPEST])].sort_values("added_jct_h")
    label = f"{first}, cheapest hour"
    ax.plot(base["added_jct_h"], base["saved_pct"], "--", color=GUIDE, marker=".", label=label, zorder=1)
    ax.axhline(0.0, color=FAINT, linewidth=0.7, zorder=0)
    ax.set(xlabel="Average JCT added (h)", ylabel="Money saved (% of the cost at once)")
    ax.legend(loc="lower right")
