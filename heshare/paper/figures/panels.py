"""Figures with several panels, composed of the plots."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import BAND, EDGE, FAINT, TEXT, category_style, series_style

LOADS: Mapping[str, str] = {"low": "light", "medium": "medium", "high": "heavy"}
"""Words for the load classes of workloads."""
_SMALL: dict[str, Any] = {"fontsize": 6, "va": "center"}


def solo_panel(ax: Axes, drawn: pd.DataFrame, ratios: pd.DataFrame, *, value: str, heading: str) -> None:
    """Draw Fig. 1 or 2: a row for each workload with a mark for each GPU, bands of load classes, ratios at the right.

    Args:
        ax: the axes.
        drawn: as from `motivation.solo`, in the order of the rows; marks are open where `anchored` is false.
        ratios: one row a workload, one column an inference batch size; none where no GPUs are compared.
        value: the column that is drawn, such as `time_s`, whose interval is in `time_low_s` and `time_high_s`.
        heading: the label of the ratios.
    """
    low = f"{value[:-2]}_low{value[-2:]}"
    high = f"{value[:-2]}_high{value[-2:]}"
    marked = drawn.assign(derived=~drawn["anchored"].astype(bool))
    plots.dots(ax, marked, group="title", series="gpu", value=value, low=low, high=high, hollow="derived", spread=0.76)

    rows = drawn.drop_duplicates("title").reset_index(drop=True)
    for place, (load, part) in enumerate(rows.groupby("load", sort=False)):
        top = part.index[0] - 0.5
        if place % 2 == 0:
            ax.axhspan(top, part.index[-1] + 0.5, color=BAND, linewidth=0, zorder=0)
        ax.text(0.985, top + 0.4, LOADS[str(load)], transform=ax.get_yaxis_transform(), ha="right", **_SMALL)

    _columns_at_the_right(ax, ratios.reindex(rows["workload"]), heading)
    ax.tick_params(axis="y", length=0)
    handles = ax.get_legend_handles_labels()[0]
    _legend(ax, *handles, *_fills("from a measurement", "from features"))


def _columns_at_the_right(ax: Axes, values: pd.DataFrame, heading: str) -> None:
    # A column for each inference batch size (bs), its numbers on the rows of the axes.
    at_right = {"transform": ax.get_yaxis_transform(), "ha": "center", **_SMALL}
    if values.empty:
        return
    first = 1.1
    step = 0.15
    for place, size in enumerate(values.columns):
        x = first + step * place
        ax.text(x, -0.9, f"bs {size}" if place == 0 else f"{size}", **at_right)
        for row, each in enumerate(values[size]):
            ax.text(x, row, f"{each:.1f}", **at_right)
    ax.text(first + step * (len(values.columns) - 1) / 2, -1.5, heading, **at_right)


def _fills(filled: str, hollow: str) -> list[Line2D]:
    style: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 3.5, "color": EDGE}
    faces = ((EDGE, filled), ("white", hollow))
    return [Line2D([], [], markerfacecolor=face, label=label, **style) for face, label in faces]


def _legend(ax: Axes, *handles: Artist) -> None:
    columns = len(handles) if len(handles) <= 5 else 3
    ax.figure.legend(
        handles=list(handles), loc="outside upper center", handletextpad=0.2, columnspacing=0.9, ncols=columns
    )


def clock_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> None:
    """Draw Fig. 3: time against the requested clock, a panel for each inference batch size, a labelled line a GPU.

    `frame` is as from `motivation.clocks`. Markers are open where the power limit keeps the GPU below the clock.
    """
    gpus = list(frame["gpu"].unique())
    styles = {gpu: series_style(gpu) for gpu in gpus}
    milliseconds = frame.assign(time_ms=1e3 * frame["time_s"])

    for ax, (size, part) in zip(axes, milliseconds.groupby("batch_size", sort=False), strict=True):
        sns.lineplot(
            part,
            x="requested_mhz",
            y="time_ms",
            hue="gpu",
            palette={gpu: style.colour for gpu, style in styles.items()},
            errorbar=None,
            legend=False,
            ax=ax,
        )
        for gpu, rows in part.groupby("gpu", sort=False):
            _clock_marks(ax, rows, str(gpu))
        plots.log_axis(ax)
        ax.set(xlabel="Requested SM clock (MHz)", ylabel="Time (ms)", xlim=(0, 1.3 * frame["requested_mhz"].max()))
        ax.set_title(f"Inference batch size {size}", fontsize=7, pad=2)
    _legend(axes[0], *_fills("at the requested clock", "below it, by the power limit"))


def _clock_marks(ax: Axes, rows: pd.DataFrame, gpu: str) -> None:
    style = series_style(gpu)
    throttled = rows["throttled"].astype(bool)
    for part, face in ((rows[~throttled], style.colour), (rows[throttled], "white")):
        shown = part.iloc[::3]
        how = style.line_arguments(linestyle="", markerfacecolor=face)
        ax.plot(shown["requested_mhz"], shown["time_ms"], **how)
    last = rows.iloc[-1]
    ax.annotate(gpu, (last["requested_mhz"], last["time_ms"]), (4, 0), textcoords="offset points", **_SMALL)


def pair_panels(axes: Sequence[Axes], frame: pd.DataFrame, origins: Mapping[str, str]) -> None:
    """Draw Fig. 4: time of each pair alone and together (geometric means), and the slowdown; a panel for each GPU.

    `frame` is as from `motivation.pairs`; `origins` is the source of the times by GPU.
    """
    kinds = {"alone_s": "alone", "together_s": "together"}
    palette = {"alone": FAINT, "together": category_style(1).colour}
    pairs = list(frame["pair"].unique())
    long = frame.melt(["gpu", "pair"], list(kinds), "kind", "time_ms")
    long = long.assign(kind=long["kind"].map(kinds), time_ms=1e3 * long["time_ms"])

    for ax, (gpu, part) in zip(axes, frame.groupby("gpu", sort=False), strict=True):
        bars = long[long["gpu"] == gpu]
        sns.barplot(
            bars, y="pair", x="time_ms", hue="kind", order=pairs, palette=palette, saturation=1.0, errorbar=None,
            legend=False, ax=ax,
        )  # fmt: skip
        longest = bars.groupby("pair")["time_ms"].max()
        for pair, slower in zip(part["pair"], part["degradation_pct"], strict=True):
            ax.annotate(
                f"{slower:+.0f} %", (longest[pair], pairs.index(pair)), (3, 0), textcoords="offset points", **_SMALL
            )

        ax.set(xlabel="Time (ms)", ylabel="", xlim=(0, 1.4 * longest.max()))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
        ax.grid(visible=False, axis="y")
        ax.set_title(f"{gpu}: {part['degradation_pct'].mean():+.0f} %", fontsize=7, loc="left", pad=17)
        ax.text(
            0, 1.01, origins[str(gpu)], transform=ax.transAxes, fontsize=6, color=TEXT, va="bottom", linespacing=1.1
        )

    squares: dict[str, Any] = {"linestyle": "", "marker": "s", "markersize": 5}
    handles = [Line2D([], [], color=palette[kind], label=kind, **squares) for kind in kinds.values()]
    axes[0].figure.legend(handles=handles, loc="outside upper center", ncols=2)
