"""Vega-Lite charts of a front and of a plan's predicted timeline, in the colours of the figures."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import Any

import pandas as pd
from matplotlib.colors import to_rgb

from heshare.paper.figures.series_styles import CLOCK, EDGE, GRID, GUIDE, category_style, series_style
from heshare.paper.figures.timelines import LOAD_CLASSES
from heshare.shared.extras import without_uri_grammars
from heshare.world.cluster import Cluster

with without_uri_grammars():
    import altair as alt

BOUND = "proven bound"
CHOICES = ("Trade-off", "En-opt", "JCT-opt")
SHAPES = {"o": "circle", "s": "square", "v": "triangle-down", "X": "cross", "D": "diamond"}
"""Vega's names of matplotlib's markers."""
FRONT_PX, ROW_PX = 330, (26, 54)
"""Height of the front's chart, and of a GPU's row in a timeline (least and most), pixels."""
TASKS_UNTIL, CLOCK_FROM = 0.70, 0.74
"""Parts of a GPU's row, downwards: tasks end here, the strip of the clock begins here."""
TICKS = 6
"""About how many ticks an axis has."""
LETTER_PX = 6
"""Width of a letter, pixels."""


def front_chart(points: pd.DataFrame, bound: pd.DataFrame, *, series: str, chosen: int) -> dict[str, Any]:
    """Return the chart of a front: a point for each plan, the three named plans, the bound, the chosen plan.

    Its parameter `chosen` is the plan's index; its selection `pointed` is the plan nearest to the pointer.

    Args:
        points: columns plan (index), energy_mj, jct_s, and choice, as from `Front.to_frame`.
        bound: columns energy_mj and jct_s of the proven bound; empty without one.
        series: `HeShare` or `HeShare+`.
        chosen: the index chosen at first.
    """
    few, near = alt.Axis(tickCount=TICKS, labelOverlap=True), alt.Scale(zero=False, nice=True)
    x = alt.X("energy_mj:Q", title="Energy (MJ)", scale=near, axis=few)
    y = alt.Y("jct_s:Q", title="Average JCT (s)", scale=near, axis=few)
    colour = series_style(series).colour
    base = alt.Chart(points).encode(x=x, y=y)
    line = base.mark_line(interpolate="step-after", color=GUIDE, strokeWidth=1)
    pointed = alt.selection_point(name="pointed", fields=["plan"], on="pointerover", nearest=True, clear=False)
    dots = base.mark_point(filled=True, size=45, color=colour, opacity=0.75).add_params(pointed)
    parameter = alt.param(name="chosen", value=chosen)
    ring = base.mark_point(size=330, color=EDGE, strokeWidth=2, filled=False)
    layers: list[Any] = [line, dots, ring.transform_filter("datum.plan == chosen").add_params(parameter)]
    for name in CHOICES:
        how = series_style(name if series == "HeShare" else f"{series} {name}")
        named = base.transform_filter(f"indexof(datum.choice, '{name}') >= 0")
        mark: dict[str, Any] = {"filled": True, "size": 110, "opacity": 1, "stroke": EDGE, "strokeWidth": 0.7}
        layers.append(named.mark_point(**mark, color=how.colour, shape=SHAPES[how.marker]))
    texts = base.transform_filter("datum.choice != ''").mark_text(align="left", dx=9, dy=-9, color=EDGE, fontSize=12)
    layers.append(texts.encode(text="choice:N"))
    if len(bound):
        how, low = series_style(BOUND), alt.Chart(bound).encode(x=x, y=y)
        layers.append(low.mark_line(color=how.colour, strokeDash=[6, 4]))
        last = low.transform_filter(f"datum.energy_mj == {bound['energy_mj'].iloc[len(bound) // 2]}")
        layers.append(last.mark_text(align="right", dx=-6, dy=10, color=how.colour, fontSize=12, text=BOUND))
    return _spec(alt.layer(*layers), FRONT_PX, f"Pareto front of {len(points)} plans: average JCT against energy.")


def timeline_chart(cluster: Cluster, kinds: Sequence[str], last_s: float) -> dict[str, Any]:
    """Return the chart of a predicted timeline: a row for each GPU, with its tasks and below them its clock.

    Its data are `tasks` (begin_s, end_s, top, bottom, label, task, workload, kind, mps_pct, sm_mhz, differs) and
    `clocks` (begin_s, end_s, top, bottom, label, sm_mhz), which the page fills in. Rows count downwards from 0.

    Args:
        cluster: the GPUs.
        kinds: load classes that are in the task set.
        last_s: the end of the time axis, s.
    """
    colours = [category_style(LOAD_CLASSES.index(kind)).colour for kind in kinds]
    labels = "['" + "','".join(cluster.labels) + "'][floor(datum.value)]"
    axis = alt.Axis(values=[row + 0.5 for row in range(len(cluster))], labelExpr=labels, grid=False, ticks=False)
    ticks = alt.Axis(tickCount=TICKS, labelOverlap=True)
    x = alt.X("begin_s:Q", title="Time (s), as predicted", scale=alt.Scale(domain=[0, last_s], nice=False), axis=ticks)
    y = alt.Y("top:Q", title=None, axis=axis, scale=alt.Scale(domain=[0, len(cluster)], reverse=True, nice=False))
    place = {"x": x, "x2": "end_s:Q", "y": y, "y2": "bottom:Q"}
    boxes = (
        _data("tasks")
        .mark_rect()
        .encode(
            **place,
            color=alt.Color("kind:N", scale=_scale(kinds, colours), legend=alt.Legend(title="Load", orient="top")),
            stroke=alt.when("datum.differs").then(alt.value("black")).otherwise(alt.value("white")),
            strokeWidth=alt.when("datum.differs").then(alt.value(2)).otherwise(alt.value(0.7)),
            tooltip=["task:N", "workload:N", "kind:N", "mps_pct:Q", "sm_mhz:Q", "begin_s:Q", "end_s:Q"],
        )
    )
    numbers = _text("tasks", "label:N", last_s, size=10).encode(
        color=alt.when(f"indexof({_dark(kinds, colours)}, datum.kind) >= 0")
        .then(alt.value("white"))
        .otherwise(alt.value("black"))
    )
    clocks = _data("clocks").mark_rect(color=CLOCK, opacity=0.25).encode(**place, tooltip=["sm_mhz:Q"])
    clock_texts = _text("clocks", "label:N", last_s, size=9).encode(color=alt.value(EDGE))
    between = alt.Chart(pd.DataFrame({"top": range(1, len(cluster))}))
    rules = between.mark_rule(color=GRID).encode(y=alt.Y("top:Q", title=None, axis=axis))
    row_px = min(max(480 // len(cluster), ROW_PX[0]), ROW_PX[1])
    what = "Predicted timeline of the chosen plan: for each GPU its tasks over time, and its SM clock."
    return _spec(alt.layer(boxes, clocks, rules, numbers, clock_texts), row_px * len(cluster), what)


def _data(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name))


def _text(name: str, field: str, last_s: float, *, size: int) -> alt.Chart:
    """Return texts in the middle of boxes, where a box is wide enough."""
    wide = f"(datum.end_s - datum.begin_s) / {last_s} * width > length(datum.label) * {LETTER_PX} + 4"
    middle = {"mid_s": "(datum.begin_s + datum.end_s) / 2", "mid": "(datum.top + datum.bottom) / 2"}
    texts: alt.Chart = _data(name).transform_calculate(**middle).mark_text(fontSize=size, baseline="middle")
    found: alt.Chart = texts.encode(
        x=alt.X("mid_s:Q", title=""),
        y=alt.Y("mid:Q", title=None),
        text=field,
        opacity=alt.when(wide).then(alt.value(1)).otherwise(alt.value(0)),
    )
    return found


def _scale(names: Sequence[str], colours: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(names), range=list(colours))


def _dark(names: Sequence[str], colours: Sequence[str]) -> list[str]:
    """Return the names whose colours need white text: relative luminance (WCAG 2, without gamma) below a half."""
    shares = (0.21, 0.72, 0.07)
    lights = [sum(map(mul, to_rgb(each), shares)) for each in colours]
    return [name for name, light in zip(names, lights, strict=True) if light < 0.5]


def _spec(chart: alt.LayerChart | alt.FacetChart, height_px: int, description: str) -> dict[str, Any]:
    """Return a chart as a specification without data URLs, as wide as its place on the page."""
    size = {"labelFontSize": 12, "titleFontSize": 12}
    whole = chart.properties(width="container", height=height_px, description=description, background="white")
    spec: dict[str, Any] = whole.to_dict()
    ink = {"labelColor": EDGE, "titleColor": EDGE, "gridColor": GRID}
    spec["config"] = {**spec.get("config", {}), "axis": {**size, **ink}, "legend": size}
    return spec
