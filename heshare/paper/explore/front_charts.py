"""Vega-Lite charts of a front and of a plan's predicted timeline, in the colours of the figures."""

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


def front_chart(points: pd.DataFrame, *, series: str, chosen: int) -> dict[str, Any]:
    """Return the chart of a front: a point for each plan, the three named plans, a ring around the chosen one.

    Its parameter `chosen` is the index of the plan that was clicked, or of the one nearest to the pointer.

    `points` has the columns plan (index), energy_mj, jct_s, and choice, as from `Front.to_frame`; `chosen` is the index
    chosen at first.
    """
    few, near = alt.Axis(tickCount=TICKS, labelOverlap=True), alt.Scale(zero=False, nice=True)
    x = alt.X("energy_mj:Q", title="Energy (MJ)", scale=near, axis=few)
    y = alt.Y("jct_s:Q", title="Average JCT (s)", scale=near, axis=few)
    base = alt.Chart(points).encode(x=x, y=y)
    line = base.mark_line(interpolate="step-after", color=GUIDE, strokeWidth=1)
    pick: dict[str, Any] = {"fields": ["plan"], "nearest": True}
    first = [{"plan": chosen}]
    pointed = alt.selection_point(name="pointed", on="pointerover", clear=False, value=first, **pick)
    kept = alt.selection_point(name="kept", on="click", clear="dblclick", **pick)
    which = alt.param(name="chosen", expr="length(kept.plan || []) ? kept.plan[0] : pointed.plan[0]")
    dots = base.mark_point(filled=True, size=45, color=series_style(series).colour, opacity=0.75)
    ring = base.mark_point(size=330, color=EDGE, strokeWidth=2, filled=False)
    layers = [line, dots.add_params(pointed, kept), ring.transform_filter("datum.plan == chosen").add_params(which)]
    for name in CHOICES:
        how = series_style(name if series == "HeShare" else f"{series} {name}")
        named = base.transform_filter(f"indexof(datum.choice, '{name}') >= 0")
        mark: dict[str, Any] = {"filled": True, "size": 110, "opacity": 1, "stroke": EDGE, "strokeWidth": 0.7}
        layers.append(named.mark_point(**mark, color=how.colour, shape=SHAPES[how.marker]))
    texts = base.transform_filter("datum.choice != ''").mark_text(align="left", dx=9, dy=-9, color=EDGE, fontSize=12)
    layers.append(texts.encode(text="choice:N"))
    return _spec(alt.layer(*layers), FRONT_PX, f"Pareto front of {len(points)} plans: average JCT against energy.")


def timeline_chart(
    cluster: Cluster, tasks: pd.DataFrame, clocks: pd.DataFrame, *, kinds: Sequence[str], chosen: int
) -> dict[str, Any]:
    """Return the chart of predicted timelines: a row for each GPU, with its tasks and below them its clock.

    It shows the plan of its parameter `chosen`. Rows count downwards from 0. `tasks` and `clocks` have the columns
    plan, begin_s, end_s, top, bottom and label, `tasks` also task, workload, kind, mps_pct, sm_mhz and differs; `kinds`
    are the load classes in the task set.
    """
    last_s = 1.01 * float(tasks["end_s"].max())
    colours = [category_style(LOAD_CLASSES.index(kind)).colour for kind in kinds]
    labels = "['" + "','".join(cluster.labels) + "'][floor(datum.value)]"
    axis = alt.Axis(values=[row + 0.5 for row in range(len(cluster))], labelExpr=labels, grid=False, ticks=False)
    ticks = alt.Axis(tickCount=TICKS, labelOverlap=True)
    x = alt.X("begin_s:Q", title="Time (s), as predicted", scale=alt.Scale(domain=[0, last_s], nice=False), axis=ticks)
    y = alt.Y("top:Q", title=None, axis=axis, scale=alt.Scale(domain=[0, len(cluster)], reverse=True, nice=False))
    scale = alt.Scale(domain=list(kinds), range=list(colours))
    place = {"x": x, "x2": "end_s:Q", "y": y, "y2": "bottom:Q"}
    boxes = (
        _data("tasks")
        .add_params(alt.param(name="chosen", value=chosen))
        .mark_rect()
        .encode(
            **place,
            color=alt.Color("kind:N", scale=scale, legend=alt.Legend(title="Load", orient="top")),
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
    strips = _data("clocks").mark_rect(color=CLOCK, opacity=0.25).encode(**place)
    strip_texts = _text("clocks", "label:N", last_s, size=9).encode(color=alt.value(EDGE))
    between = alt.Chart(pd.DataFrame({"top": range(1, len(cluster))}))
    rules = between.mark_rule(color=GRID).encode(y=alt.Y("top:Q", title=None, axis=axis))
    row_px = min(max(480 // len(cluster), ROW_PX[0]), ROW_PX[1])
    what = "Predicted timeline of the chosen plan: for each GPU its tasks over time, and its SM clock."
    spec = _spec(alt.layer(boxes, strips, rules, numbers, strip_texts), row_px * len(cluster), what)
    spec["datasets"] |= {"tasks": tasks.to_dict("records"), "clocks": clocks.to_dict("records")}
    return spec


def _data(name: str) -> alt.Chart:
    found: alt.Chart = alt.Chart(alt.NamedData(name)).transform_filter("datum.plan == chosen")
    return found


def _text(name: str, field: str, last_s: float, *, size: int) -> alt.Chart:
    # In the middle of boxes, where a box is wide enough.
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


def _dark(names: Sequence[str], colours: Sequence[str]) -> list[str]:
    # White text is needed where the relative luminance (WCAG 2, without gamma) is below a half.
    shares = (0.21, 0.72, 0.07)
    lights = [sum(map(mul, to_rgb(each), shares)) for each in colours]
    return [name for name, light in zip(names, lights, strict=True) if light < 0.5]


def _spec(chart: alt.LayerChart | alt.FacetChart, height_px: int, description: str) -> dict[str, Any]:
    size = {"labelFontSize": 12, "titleFontSize": 12}
    whole = chart.properties(width="container", height=height_px, description=description, background="white")
    spec: dict[str, Any] = whole.to_dict()
    ink = {"labelColor": EDGE, "titleColor": EDGE, "gridColor": GRID}
    spec["config"] = {**spec.get("config", {}), "axis": {**size, **ink}, "legend": size}
    return spec
