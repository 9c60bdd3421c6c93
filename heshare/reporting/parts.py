"""What each part of HeShare is worth when its plans are run: Trade-off with one part taken away, against Trade-off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from heshare.policies import registry
from heshare.policies.heshare import ABLATIONS
from heshare.reporting import forms
from heshare.reporting.style import look

WHOLE = "heshare:trade-off"
POLICIES = tuple(f"{WHOLE}/{name}" for name in ABLATIONS)
"""Trade-off with one part taken away each, by their names in the registry."""


def changes(runs: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Energy (both accounts) and average JCT of each ablation against the whole, seed by seed.

    Args:
        runs: one row a repetition and policy, with `WHOLE` and `POLICIES`.
        rng: of the bootstrap.

    Returns:
        One row each: part, metric, change_pct, low_pct, high_pct (95 % bootstrap interval), n, provenance. Above zero
        the part that is missing was worth that much.
    """
    rows = []
    for metric in forms.METRICS:
        for policy, (meaning, _) in zip(POLICIES, ABLATIONS.values(), strict=True):
            found = forms.between(runs, registry.title(policy), registry.title(WHOLE), metric, rng)
            rows.append((meaning, metric, found.value, found.low, found.high, found.n, "emulated"))
    return pd.DataFrame(rows, columns=["part", "metric", "change_pct", "low_pct", "high_pct", "n", "provenance"])


def panels(axes: Sequence[Axes], table: pd.DataFrame) -> list[Artist]:
    """Change of energy (active account) and of average JCT, a row for each ablation; `table` as from `changes`."""
    drawn: list[Artist] = []
    shown = ((forms.ENERGY, "Energy (%)"), (forms.JCT, "Average JCT (%)"))
    for index, (ax, (metric, label)) in enumerate(zip(axes, shown, strict=True)):
        part, how = table[table["metric"] == metric], look("", index)
        value, place = part["change_pct"].to_numpy(float), np.arange(len(part))[::-1]
        spread = np.maximum([value - part["low_pct"], part["high_pct"] - value], 0.0)
        drawn += ax.errorbar(
            value, place, xerr=spread, linestyle="", marker=how.marker, color=how.colour
        ).get_children()
        ax.axvline(0.0, color="#999999", linewidth=0.8)
        ax.set_yticks(place, list(part["part"]))
        # Linear up to 10 %: one part is worth ten times as much as any other.
        ax.set_xscale("symlog", linthresh=10.0)
        ticks = [-10, 0, 10, 100]
        ax.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set(xlabel=label, ylim=(-0.5, len(part) - 0.5), xlim=(-15, 300))
        ax.grid(axis="both")
    return drawn
