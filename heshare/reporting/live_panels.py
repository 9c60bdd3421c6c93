"""Measured beside simulated, drawn."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from heshare.reporting import plots
from heshare.running.live.simulating import MODELS

_SHOWN = (
    ("average JCT (s)", 1.0, "Average JCT (s)"),
    ("energy, active account (J)", 1e3, "Energy (kJ)"),
)


def live_panels(axes: Sequence[Axes], found: pd.DataFrame) -> list[Artist]:
    """Average JCT and energy of each policy: measured, and by each device model.

    Args:
        axes: two.
        found: as from `heshare.reporting.live.comparison`.
    """
    drawn: list[Artist] = []
    for ax, (quantity, unit, label) in zip(axes, _SHOWN, strict=True):
        part = found[found["quantity"] == quantity]
        long = part.melt(id_vars="title", value_vars=["measured", *MODELS], var_name="series", value_name="value")
        long["value"] /= unit
        for bar in plots.bars(ax, long, group="title", series="series", value="value"):
            drawn += bar
        plots.slanted(ax, 30)
        ax.set_ylabel(label)
    axes[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.1)
    return drawn
