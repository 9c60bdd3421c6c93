"""Dots of a live comparison: measured values and those of the device models."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.ops.live.live_comparison import DEVICE_MODELS
from heshare.paper.figures.series_styles import category_style


def live_panels(axes: Sequence[Axes], found: pd.DataFrame) -> None:
    """Draw `live_results.comparison`: average JCT and energy of each policy, measured and by each device model."""
    shown = (("average JCT (s)", 1.0, "Average JCT (s)"), ("energy, active account (J)", 1e3, "Energy (kJ)"))
    for ax, (quantity, unit, label) in zip(axes, shown, strict=True):
        part = found[found["quantity"] == quantity]
        for index, name in enumerate(("measured", *DEVICE_MODELS)):
            at = np.arange(len(part)) + 0.2 * (index - 0.5 * len(DEVICE_MODELS))
            ax.plot(part[name] / unit, at, label=name, **category_style(index).line_arguments(linestyle=""))

        ax.set_yticks(range(len(part)), list(part["title"]) if ax is axes[0] else [])
        ax.set(ylim=(len(part) - 0.5, -0.5), xlabel=label)
        ax.grid(axis="x")
    axes[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.1)
