"""Figures with several panels, composed of the plots."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import BAND, EDGE, GUIDE, category_style, series_style
from heshare.prediction.table5 import ERRORS


def solo_panel(ax: Axes, drawn: pd.DataFrame, ratios: pd.DataFrame, *, value: str, heading: str) -> None:
    """Draw Fig. 1 or 2: a row for each workload with a mark for each GPU, bands of load classes, ratios at the right.

    `drawn` is as from `motivation.solo`, with a column `unmeasured`, where marks are open; `ratios` has a row for each
    workload and a column for each inference batch size. The interval of `time_s` is in `time_low_s` and `time_high_s`.
    """
    low, high = (f"{value[:-2]}_{end}{value[-2:]}" for end in ("low", "high"))
    plots.dots(ax, drawn, group="title", series="gpu", value=value, low=low, high=high, hollow="unmeasured")
    rows = drawn.drop_duplicates("title")
    for place, (load, part) in enumerate(rows.assign(at=np.arange(len(rows))).groupby("load", sort=False)):
        top, bottom = part["at"].iloc[0] - 0.5, part["at"].iloc[-1] + 0.5
        if place % 2 == 0:
            ax.axhspan(top, bottom, color=BAND, linewidth=0, zorder=0)
        ax.text(0.985, top + 0.5, _LOADS[str(load)], transform=ax.get_yaxis_transform(), ha="right", **_SMALL)
    widest = 1.06 + 0.13 * (len(ratios.columns) - 1)
    for column, size in enumerate(ratios.columns):
        words = [
            f"bs {size}" if column == 0 else f"{size}",
            *(f"{each:.1f}" for each in ratios.loc[rows["workload"], size]),
        ]
        for at, word in enumerate(words, start=-1):
            ax.text(1.1 + 0.14 * column, at, word, transform=ax.get_yaxis_transform(), ha="center", **_SMALL)
    ax.text((1.1 + widest) / 2, -2.1, heading, transform=ax.get_yaxis_transform(), ha="center", **_SMALL)
    _legend(ax, *ax.get_legend_handles_labels()[0], *_fills("from a measurement", "derived"))


_LOADS = {"low": "light", "medium": "medium", "high": "heavy"}
_SMALL: dict[str, Any] = {"fontsize": 6, "va": "center"}


def _fills(filled: str, hollow: str) -> list[Line2D]:
    style: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 3.5, "color": EDGE}
    faces = ((EDGE, filled), ("white", hollow))
    return [Line2D([], [], markerfacecolor=face, label=label, **style) for face, label in faces]


def _legend(ax: Axes, *handles: Artist) -> None:
    how: dict[str, Any] = {
        "handletextpad": 0.2,
        "columnspacing": 0.9,
        "ncols": len(handles) if len(handles) <= 5 else 3,
    }
    ax.figure.legend(handles=list(handles), loc="outside upper center", **how)


def clock_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> None:
    """Draw Fig. 3: time against the requested clock, a panel for each inference batch size, a labelled line a GPU."""
    for ax, (size, part) in zip(axes, frame.groupby("batch_size", sort=False), strict=True):
        for gpu, rows in part.groupby("gpu", sort=False):
            _clock_line(ax, rows, str(gpu))
        plots.log_axis(ax)
        ax.set(xlabel="Requested SM clock (MHz)", xlim=(0, 1.3 * frame["requested_mhz"].max()))
        ax.set_title(f"Inference batch size {size}", fontsize=7, pad=2)
    axes[0].set_ylabel("Time (ms)")
    _legend(axes[0], *_fills("at the requested clock", "below it, by the power limit"))


def _clock_line(ax: Axes, rows: pd.DataFrame, gpu: str) -> None:
    # Open markers where the power limit keeps the GPU below the requested clock.
    how = series_style(gpu)
    x, y = rows["requested_mhz"].to_numpy(float), 1e3 * rows["time_s"].to_numpy(float)
    ax.plot(x, y, color=how.colour, linestyle=how.line)
    free = ~rows["throttled"].to_numpy(bool)
    for kept, face in ((free, how.colour), (~free, "white")):
        at = np.flatnonzero(kept)[::3]
        ax.plot(x[at], y[at], **_points(gpu, face))
    ax.annotate(gpu, (x[-1], y[-1]), (3, 0), textcoords="offset points", **_SMALL)


def pair_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> None:
    """Draw Fig. 4: time of each pair alone and together (geometric means), and the slowdown; a panel for each GPU."""
    every = list(frame["pair"].unique())
    for ax, (gpu, part) in zip(axes, frame.groupby("gpu", sort=False), strict=True):
        at = [every.index(pair) for pair in part["pair"]]
        alone, together = (1e3 * part[name].to_numpy(float) for name in ("alone_s", "together_s"))
        ax.hlines(at, alone, together, color=GUIDE, linewidth=0.7)
        for index, (label, times) in enumerate((("alone", alone), ("together", together))):
            how = category_style(index).line_arguments(linestyle="", markersize=3)
            ax.plot(times, at, label=label, **how)
        for place, end, slower in zip(at, together, part["degradation_pct"], strict=True):
            ax.annotate(f"{slower:+.0f} %", (end, place), (4, 0), textcoords="offset points", **_SMALL)
        ax.set_yticks(range(len(every)), every, fontsize=6)
        ax.set_ylim(len(every) - 0.5, -0.5)
        plots.log_axis(ax, "x")
        ax.set_xlim(0.8 * frame["alone_s"].min() * 1e3, 2.4 * frame["together_s"].max() * 1e3)
        ax.grid(axis="x")
        ax.set_title(f"{gpu}: {part['degradation_pct'].mean():+.0f} % on average", fontsize=7, loc="left", pad=2)
    axes[-1].set_xlabel("Time (ms)")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)


def error_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> None:
    """Draw errors of predictors on log axes, a row for each technique, a panel for each way of splitting off test rows.

    `frame` is as from `prediction_errors`, with a column `paper_pct`, the error of the paper's Table V or NaN. Where
    the column `data` is `published`, marks are open.
    """
    names = list(frame["technique"].unique())
    ends = (0.8 * min(1.25, frame["low_pct"].min()), 1.25 * max(100.0, frame["high_pct"].max()))
    titles = {"row": "Held-out rows", "workload": "New workloads", "gpu": "New GPU"}
    for ax, (split, title) in zip(axes, titles.items(), strict=True):
        for index, error in enumerate(ERRORS):
            rows = frame[(frame["split"] == split) & (frame["error"] == error)]
            at = np.array([names.index(name) for name in rows["technique"]]) + 0.3 * (index - 0.5)
            how, is_open = category_style(index), (rows["data"] == "published").to_numpy(bool)
            ax.hlines(at, rows["low_pct"], rows["high_pct"], color=how.colour, linewidth=0.7)
            for chosen, face in ((~is_open, how.colour), (is_open, "white")):
                style = how.line_arguments(linestyle="", markersize=3, markerfacecolor=face, markeredgewidth=0.7)
                ax.plot(rows["mean_pct"].to_numpy(float)[chosen], at[chosen], **style)
            ax.plot(rows["paper_pct"], at, "|", color="black", markersize=5, markeredgewidth=1.1)
        ax.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlim(ends)
        plots.log_axis(ax, "x")
        ax.grid(axis="x")
        ax.set_title(title, fontsize=6.5, pad=2)
    axes[1].set_xlabel("Error (%)")
    axes[0].figure.legend(handles=_error_handles(), loc="outside upper center", ncols=2)


def _error_handles() -> list[Line2D]:
    filled = [category_style(index).line_arguments(linestyle="", markersize=3) for index in range(len(ERRORS))]
    handles = [Line2D([], [], label=f"{error} error", **how) for error, how in zip(ERRORS, filled, strict=True)]
    empty = {**filled[0], "color": EDGE, "markerfacecolor": "white"}
    tick: dict[str, Any] = {"color": "black", "marker": "|", "linestyle": "", "markersize": 5, "markeredgewidth": 1.1}
    return [*handles, Line2D([], [], label="on published times", **empty), Line2D([], [], label="the paper", **tick)]


def error_shares(ax: Axes, points: pd.DataFrame) -> pd.DataFrame:
    """Draw the share of left-out times whose |error| is at most so large, a line for each kind of what was left out.

    `points` has the columns test and error_pct (signed). Returns the plotted kind, error_pct (absolute) and share_pct.
    """
    what = {"MPS": "MPS %", "batch": "inference batch size", "clock": "clock", "pairs": "pairs", "process": "pairs"}
    what["workload"] = "workload"
    kinds = [next((short for key, short in what.items() if key in test), "other") for test in points["test"]]
    sizes = points["error_pct"].abs()
    parts = []
    for name, own in sizes.groupby(kinds):
        share = 100 * np.arange(1, len(own) + 1) / len(own)
        parts.append(pd.DataFrame({"kind": f"{name} ({len(own)})", "error_pct": np.sort(own), "share_pct": share}))
    found = pd.concat(parts, ignore_index=True)
    for index, (kind, part) in enumerate(found.groupby("kind", sort=False)):
        how = category_style(index)
        ax.step(part["error_pct"], part["share_pct"], where="post", color=how.colour, ls=how.line, label=str(kind))
    ax.set(xlabel="Error of the modelled time, at most (%)", ylabel="Measured times (%)", ylim=(0, 100))
    ax.set_xlim(0.1, max(float(found["error_pct"].max()), 10.0))
    plots.log_axis(ax, "x")
    ax.grid(axis="both")
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), title="Left out of the fit (times)", ncols=2)
    return found


def form_dots(axes: Sequence[Axes], errors: pd.DataFrame) -> None:
    """Draw the mean error of each form on settings left out of the fit, a panel for time and one for power.

    `errors` is as from `heshare.lab.calibration.record_validation.errors_by_form`.
    """
    names = list(dict.fromkeys(errors["form"]))
    sizes = np.log10(errors[["fitted_pct", "shipped_pct"]].to_numpy(float))
    ends = (10 ** np.floor(sizes.min()), 10 ** np.ceil(sizes.max()))
    for ax, (quantity, part) in zip(axes, errors.groupby("quantity", sort=False), strict=True):
        gpus = list(dict.fromkeys(part["gpu"]))
        for place, gpu in enumerate(gpus):
            rows = part[part["gpu"] == gpu]
            at = [names.index(name) + 0.6 * ((place + 0.5) / len(gpus) - 0.5) for name in rows["form"]]
            ax.plot(rows["fitted_pct"], at, **_points(gpu), label=f"{gpu}, half fitted")
            ax.plot(rows["shipped_pct"], at, **_points(gpu, "white"), label=f"{gpu}, as shipped")
        ax.set_yticks(range(len(names)), names)
        ax.set(ylim=(len(names) - 0.5, -0.5), xscale="log", xlim=ends, xlabel=f"Error of {quantity} (%)")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.grid(axis="x")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)


def _points(gpu: str, face: str | None = None) -> dict[str, Any]:
    how = series_style(gpu)
    return how.line_arguments(linestyle="", markerfacecolor=face or how.colour)
