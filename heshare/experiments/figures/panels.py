"""The paper's figures that have several panels, composed of the plots; pure like them."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from heshare.experiments.figures import plots
from heshare.experiments.figures.style import series_style
from heshare.running.result import Run
from heshare.world.catalogue import model

_EDGE = "#333333"


def clock_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> list[Artist]:
    """Fig. 3: time against the clock asked for, a panel for each inference batch size, a line for each GPU."""
    drawn: list[Artist] = []
    for ax, (size, part) in zip(axes, frame.groupby("batch_size", sort=False), strict=True):
        for gpu, rows in part.groupby("gpu", sort=False):
            drawn += _clock_line(ax, rows, str(gpu))
        plots.log_axis(ax)
        ax.set(xlabel="SM clock (MHz)", xlim=(0, None))
        ax.set_title(f"bs {size}", fontsize=7, pad=2)
    axes[0].set_ylabel("Time (ms)")
    handles = [
        Line2D(
            [],
            [],
            color=series_style(gpu).colour,
            ls=series_style(gpu).line,
            marker=series_style(gpu).marker,
            label=gpu,
        )
        for gpu in frame["gpu"].unique()
    ]
    figure = axes[0].get_figure()
    if figure is not None:
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return drawn


def _clock_line(ax: Axes, rows: pd.DataFrame, gpu: str) -> list[Line2D]:
    """One GPU's line; open markers where the power limit holds the card below the clock asked for."""
    how = series_style(gpu)
    x, y = rows["requested_mhz"].to_numpy(float), 1e3 * rows["time_s"].to_numpy(float)
    drawn = ax.plot(x, y, color=how.colour, linestyle=how.line)
    free = ~rows["throttled"].to_numpy(bool)
    for kept, face in ((free, how.colour), (~free, "white")):
        at = np.flatnonzero(kept)[::3]
        drawn += ax.plot(x[at], y[at], color=how.colour, marker=how.marker, linestyle="", markerfacecolor=face)
    return drawn


def pair_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> list[Artist]:
    """Fig. 4: mean time of each pair alone and together, a panel for each GPU, all on one scale."""
    drawn: list[Artist] = []
    every = list(frame["pair"].unique())
    for ax, (gpu, part) in zip(axes, frame.groupby("gpu", sort=False), strict=True):
        # A pair that this GPU has not stays a gap: the panels share the axis.
        part = part.set_index("pair").reindex(every).rename_axis("pair").reset_index()
        both = part.melt(id_vars="pair", value_vars=["alone_s", "together_s"], var_name="how", value_name="time_s")
        both["how"] = both["how"].map({"alone_s": "alone", "together_s": "together"})
        both["time_ms"] = 1e3 * both["time_s"]
        for bar in plots.bars(ax, both, group="pair", series="how", value="time_ms"):
            drawn += bar
        plots.log_axis(ax)
        ax.set_ylabel("Time (ms)")
        ax.set_title(f"{gpu}: {part['degradation_pct'].mean():+.0f} % on average", fontsize=7, loc="left", pad=2)
    plots.slanted(axes[-1], 30)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.1)
    return drawn


def comparison_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> list[Artist]:
    """Fig. 6: average JCT and energy (active account) of each policy, medians with intervals."""
    shown = (("avg_jct_s", 1e3, "Average JCT (1000 s)"), ("energy_active_j", 1e6, "Energy (MJ)"))
    drawn: list[Artist] = []
    for ax, (metric, unit, label) in zip(axes, shown, strict=True):
        part = frame[frame["metric"] == metric]
        sizes = part[["median", "low", "high"]].to_numpy(float) / unit
        for at, (title, (middle, low, high)) in enumerate(zip(part["title"], sizes, strict=True)):
            how = series_style(str(title), at)
            spread = np.maximum([[middle - low], [high - middle]], 0.0)
            bar = ax.bar(at, middle, 0.72, yerr=spread, color=how.colour, hatch=how.hatch)
            for patch in bar:
                patch.set_edgecolor(_EDGE)
            drawn += bar
        ax.set_xticks(range(len(part)), list(part["title"]))
        plots.slanted(ax, 40)
        ax.set_ylabel(label)
    return drawn


def error_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> list[Artist]:
    """Table V as bars: absolute and relative error of each technique, a panel for each way to hold rows out."""
    both = frame[frame["quantity"] == "both"]
    drawn: list[Artist] = []
    for ax, (kind, part) in zip(axes, both.groupby("split", sort=False), strict=True):
        for bar in plots.bars(
            ax, part, group="technique", series="error", value="mean_pct", low="low_pct", high="high_pct"
        ):
            drawn += bar
        plots.log_axis(ax)
        plots.slanted(ax)
        ax.set_title("by GPU" if kind == "gpu" else f"by {kind!s}", fontsize=7)
    axes[0].set_ylabel("Error (%)")
    axes[0].legend(loc="upper left")
    return drawn


def error_dots(ax: Axes, errors: pd.DataFrame) -> list[Artist]:
    """Each left-out test's mean and 90th percentile of |error|, with the targets where there are any.

    Args:
        ax: where to draw.
        errors: columns test, n, mape_pct, p90_pct, target_mape_pct, target_p90_pct, as from `calibration_report`.
    """
    at = np.arange(len(errors))
    drawn: list[Artist] = []
    for column, target, name, how in (
        ("mape_pct", "target_mape_pct", "mean", series_style("T4")),
        ("p90_pct", "target_p90_pct", "90th percentile", series_style("H100")),
    ):
        drawn += ax.plot(errors[target], at, "|", color=how.colour, markersize=9, markeredgewidth=1.4)
        drawn += ax.plot(
            errors[column], at, how.marker, color=how.colour, markersize=4, label=name, markeredgecolor=_EDGE
        )
    names = [f"{test} ({n})" for test, n in zip(errors["test"], errors["n"], strict=True)]
    ax.set_yticks(at, ["\n".join(textwrap.wrap(name, 34)) for name in names], fontsize=5)
    ax.set(ylim=(len(errors) - 0.5, -0.5), xscale="log", xlabel="Error (%); a bar marks the target")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(axis="x")
    ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, borderaxespad=0.2)
    return drawn


def measured_over_modelled(ax: Axes, points: pd.DataFrame) -> list[Artist]:
    """Modelled over measured times of left-out points, s, by what was left out."""
    what = {"MPS": "MPS %", "batch": "inference batch size", "clock": "clock", "pairs": "pairs", "process": "pairs"}
    what["workload"] = "workload"
    kinds = [next((short for key, short in what.items() if key in test), "other") for test in points["test"]]
    drawn = plots.against(ax, points.assign(kind=kinds), actual="measured", predicted="modelled", series="kind")
    ax.set(xlabel="Measured (s)", ylabel="Modelled (s)")
    ax.legend(loc="upper left", title="Left out", markerscale=1.6)
    return drawn


def form_dots(axes: Sequence[Axes], errors: pd.DataFrame) -> list[Artist]:
    """Mean error of each form on settings left out of the fit, a panel for time and one for power.

    Args:
        axes: where to draw, two.
        errors: columns gpu, form, quantity, fitted_pct and shipped_pct, as from `profiles.halves.errors`.
    """
    names = list(dict.fromkeys(errors["form"]))
    sizes = np.log10(errors[["fitted_pct", "shipped_pct"]].to_numpy(float))
    ends = (10 ** np.floor(sizes.min()), 10 ** np.ceil(sizes.max()))
    drawn: list[Artist] = []
    for ax, (quantity, part) in zip(axes, errors.groupby("quantity", sort=False), strict=True):
        gpus = list(dict.fromkeys(part["gpu"]))
        for place, gpu in enumerate(gpus):
            rows, how = part[part["gpu"] == gpu], series_style(gpu)
            at = [names.index(name) + 0.6 * ((place + 0.5) / len(gpus) - 0.5) for name in rows["form"]]
            for column, face, what in (
                ("fitted_pct", how.colour, "half fitted"),
                ("shipped_pct", "white", "as shipped"),
            ):
                drawn += ax.plot(rows[column], at, **_points(gpu, face), label=f"{gpu}, {what}")
        ax.set_yticks(range(len(names)), names)
        ax.set(ylim=(len(names) - 0.5, -0.5), xscale="log", xlim=ends, xlabel=f"Error of {quantity} (%)")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.grid(axis="x")
    figure = axes[0].get_figure()
    if figure is not None:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return drawn


def _points(gpu: str, face: str) -> dict[str, Any]:
    """How one GPU's points are drawn, filled with `face`."""
    how = series_style(gpu)
    return {"marker": how.marker, "markerfacecolor": face, "color": how.colour, "linestyle": ""}


def activity_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> list[Artist]:
    """Power against SM activity, a panel for each GPU; alone filled, together open; the line is idle power."""
    drawn: list[Artist] = []
    for ax, (gpu, part) in zip(axes, frame.groupby("gpu", sort=False), strict=True):
        how = series_style(str(gpu))
        for alone, face in ((True, how.colour), (False, "white")):
            rows = part[(part["together"] == 1) == alone]
            style = {**_points(str(gpu), face), "markersize": 2.5, "markeredgewidth": 0.4}
            name = "alone" if alone else "together"
            drawn += ax.plot(rows["activity_pct"], rows["power_w"], **style, label=name)
        drawn.append(ax.axhline(float(part["idle_w"].mean()), color="#999999", linewidth=0.8, label="idle"))
        told = " and ".join(sorted(set(part["told_by"])))
        ax.set(xlabel=f"SM activity (%),\nby the {told}", xlim=(0, 105))
        ax.set_title(str(gpu), fontsize=7)
    axes[0].set_ylim(0, 1.05 * float(frame["power_w"].max()))
    axes[0].set_ylabel("Board power (W)")
    axes[0].legend(loc="upper left")
    return drawn


def stretches(done: Run) -> pd.DataFrame:
    """A run's intervals as `plots.timeline` wants them; `kind` is the load class of the task's workload."""
    frame: Any = done.intervals
    names = [done.tasks[task].workload.model for task in frame["task"]]
    return pd.DataFrame(
        {
            "task": frame["task"],
            "gpu": frame["label"],
            "start_s": frame["start_s"],
            "end_s": frame["end_s"],
            "mps_pct": frame["mps_pct"],
            "workload": names,
            "kind": [model(name).load for name in names],
        }
    )
