"""Vega-Lite charts of a front and of timelines, in the colours of the figures.

Lines, texts and edges have the colours of the page (`INK` and the others are variables of its style sheet), so that
they follow its light and its dark form. The terms are those of https://vega.github.io/vega-lite/docs/.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from heshare.paper.figures.series_styles import CLOCK, LOAD_CLASSES, category_style, series_style
from heshare.world.cluster import Cluster

INK, SOFT, LINE, GROUND = "var(--ink)", "var(--soft)", "var(--line)", "var(--ground)"
CHOICES = ("Trade-off", "En-opt", "JCT-opt")
SHAPES = {"o": "circle", "s": "square", "v": "triangle-down", "X": "cross", "D": "diamond"}
"""Vega's names of matplotlib's markers."""
FRONT_PX, ROW_PX = 330, (26, 54)
"""Height of the front's chart, and of a GPU's row in a timeline (least and most), pixels."""
LETTER_PX = 6
"""Width of a letter, pixels."""
Spec = dict[str, Any]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_FEW: Spec = {"tickCount": 6, "labelOverlap": True}
"""An axis with about six ticks."""
_OF_CHOSEN: Spec = {"filter": "datum.plan == chosen"}
_BLACK = "#000000"


def front_chart(points: pd.DataFrame, *, series: str, chosen: int) -> Spec:
    """Return the chart of a front: a point for each plan, the three named plans, a ring around the chosen one.

    Its parameter `chosen` is the index of the plan that was clicked, or of the one nearest to the pointer.

    `points` has the columns plan (index), energy_mj, jct_s, and choice, as from `Front.to_frame`; `chosen` is the index
    chosen at first.
    """
    near = {"zero": False, "nice": True}
    encoding = {
        "x": {"field": "energy_mj", "type": "quantitative", "title": "Energy (MJ)", "scale": near, "axis": _FEW},
        "y": {"field": "jct_s", "type": "quantitative", "title": "Average JCT (s)", "scale": near, "axis": _FEW},
    }

    line = {"type": "line", "interpolate": "step-after", "color": SOFT, "strokeWidth": 1}
    dots = {"type": "point", "filled": True, "size": 45, "color": _colour(series), "opacity": 0.75}
    ring = {"type": "point", "filled": False, "size": 330, "color": INK, "strokeWidth": 2}
    text = {"type": "text", "align": "left", "dx": 9, "dy": -9, "color": INK, "fontSize": 12}
    layers: list[Spec] = [
        {"mark": line},
        {"mark": dots, "name": "dots"},
        {"mark": ring, "transform": [_OF_CHOSEN]},
        *[_named_plan(name, series) for name in CHOICES],
        {"mark": text, "transform": [{"filter": "datum.choice != ''"}], "encoding": {"text": {"field": "choice"}}},
    ]

    nearest: Spec = {"type": "point", "fields": ["plan"], "nearest": True}
    pointed = {**nearest, "on": "pointerover", "clear": False}
    kept = {**nearest, "on": "click", "clear": "dblclick"}
    params = [
        {"name": "pointed", "select": pointed, "value": [{"plan": chosen}], "views": ["dots"]},
        {"name": "kept", "select": kept, "views": ["dots"]},
        {"name": "chosen", "expr": "length(kept.plan || []) ? kept.plan[0] : pointed.plan[0]"},
    ]

    what = f"Pareto front of {len(points)} plans: average JCT against energy."
    chart = {"encoding": encoding, "layer": layers, "params": params, "data": {"name": "points"}}
    return _spec(chart, {"points": points}, FRONT_PX, what)


def timeline_chart(
    cluster: Cluster,
    tasks: pd.DataFrame,
    clocks: pd.DataFrame,
    *,
    chosen: int,
    time: str,
    end_s: float | None = None,
) -> Spec:
    """Return the chart of timelines: a row for each GPU, with its tasks and below them its clock.

    It shows the plan of its parameter `chosen`.

    Args:
        cluster: the GPUs, whose rows count downwards from 0.
        tasks: boxes, as from `timeline_boxes.plan_tasks`.
        clocks: strips, as from `timeline_boxes.plan_clocks`.
        chosen: the plan that is shown at first.
        time: what the time axis is, such as `as predicted`.
        end_s: where a dashed line is drawn, s; None: no line.
    """
    last_s = 1.01 * max(float(tasks["end_s"].max()), end_s or 0.0)
    rows = [row + 0.5 for row in range(len(cluster))]
    labels = "['" + "','".join(cluster.labels) + "'][floor(datum.value)]"
    gpus = {"values": rows, "labelExpr": labels, "grid": False, "ticks": False}
    seconds = {"domain": [0, last_s], "nice": False}
    downwards = {"domain": [0, len(cluster)], "reverse": True, "nice": False}
    x = {"field": "begin_s", "type": "quantitative", "title": f"Time (s), {time}", "scale": seconds, "axis": _FEW}
    y = {"field": "top", "type": "quantitative", "title": None, "scale": downwards, "axis": gpus}
    place = {"x": x, "x2": {"field": "end_s"}, "y": y, "y2": {"field": "bottom"}}

    strip = {"type": "rect", "color": CLOCK, "opacity": 0.3}
    between = [{"top": row} for row in range(1, len(cluster))]
    layers: list[Spec] = [
        _task_boxes(tasks, place),
        {"data": {"name": "clocks"}, "transform": [_OF_CHOSEN], "mark": strip, "encoding": place},
        {"data": {"values": between}, "mark": {"type": "rule", "color": LINE}, "encoding": {"y": y}},
        _text("tasks", last_s, size=10, colour=_number_colour(_kinds(tasks))),
        _text("clocks", last_s, size=9, colour={"value": INK}),
    ]
    if end_s is not None:
        rule = {"type": "rule", "color": INK, "strokeWidth": 1.5, "strokeDash": [6, 4]}
        layers.append({"data": {"values": [{"begin_s": end_s}]}, "mark": rule, "encoding": {"x": x}})

    row_px = min(max(480 // len(cluster), ROW_PX[0]), ROW_PX[1])
    what = f"Timeline, {time}: for each GPU its tasks over time, and its SM clock."
    chart = {"layer": layers, "params": [{"name": "chosen", "value": chosen}]}
    return _spec(chart, {"tasks": tasks, "clocks": clocks}, row_px * len(cluster), what)


def _named_plan(name: str, series: str) -> Spec:
    title = name if series == "HeShare" else f"{series} {name}"
    shape = SHAPES[series_style(title).marker]
    mark = {"type": "point", "filled": True, "size": 110, "opacity": 1, "stroke": INK, "strokeWidth": 0.7}
    chosen = {"filter": f"indexof(datum.choice, '{name}') >= 0"}
    return {"mark": {**mark, "color": _colour(title), "shape": shape}, "transform": [chosen]}


def _colour(title: str) -> str:
    colour = series_style(title).colour
    return INK if colour == _BLACK else colour


def _kinds(tasks: pd.DataFrame) -> list[str]:
    return [kind for kind in LOAD_CLASSES if kind in set(tasks["kind"])]


def _kind_colour(kind: str) -> str:
    return category_style(LOAD_CLASSES.index(kind)).colour


def _task_boxes(tasks: pd.DataFrame, place: Spec) -> Spec:
    """Return the layer of the tasks: coloured by load, with an edge where they differ."""
    kinds = _kinds(tasks)
    scale = {"domain": kinds, "range": [_kind_colour(kind) for kind in kinds]}
    described = ("task", "workload", "kind", "mps_pct", "sm_mhz", "begin_s", "end_s")
    encoding = {
        **place,
        "color": {"field": "kind", "scale": scale, "legend": {"title": "Load", "orient": "top"}},
        "stroke": {"condition": {"test": "datum.differs", "value": INK}, "value": GROUND},
        "strokeWidth": {"condition": {"test": "datum.differs", "value": 2}, "value": 0.7},
        "tooltip": [{"field": name} for name in described if name in tasks],
    }
    return {"data": {"name": "tasks"}, "transform": [_OF_CHOSEN], "mark": "rect", "encoding": encoding}


def _number_colour(kinds: Sequence[str]) -> Spec:
    """Return the colour of numbers on boxes: white on dark boxes, black on others."""
    dark = [kind for kind in kinds if _luminance(_kind_colour(kind)) < 0.5]
    return {"condition": {"test": f"indexof({dark}, datum.kind) >= 0", "value": "white"}, "value": "black"}


def _luminance(colour: str) -> float:
    """Return the relative luminance (WCAG 2, without gamma) of a colour `#RRGGBB`."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return 0.21 * red + 0.72 * green + 0.07 * blue


def _text(data: str, last_s: float, *, size: int, colour: Spec) -> Spec:
    """Return the layer of the labels of boxes: in the middle of each box that is wide enough."""
    wide = f"(datum.end_s - datum.begin_s) / {last_s} * width > length(datum.label) * {LETTER_PX} + 4"
    middle = [
        {"calculate": "(datum.begin_s + datum.end_s) / 2", "as": "mid_s"},
        {"calculate": "(datum.top + datum.bottom) / 2", "as": "mid"},
    ]
    encoding = {
        "x": {"field": "mid_s", "type": "quantitative", "title": ""},
        "y": {"field": "mid", "type": "quantitative", "title": None},
        "text": {"field": "label"},
        "opacity": {"condition": {"test": wide, "value": 1}, "value": 0},
        "color": colour,
    }
    mark = {"type": "text", "baseline": "middle", "fontSize": size}
    return {"data": {"name": data}, "transform": [_OF_CHOSEN, *middle], "mark": mark, "encoding": encoding}


def _spec(chart: Spec, data: Mapping[str, pd.DataFrame], height_px: int, description: str) -> Spec:
    """Return a whole chart, as wide as its place on the page."""
    text = {"labelFontSize": 12, "titleFontSize": 12, "labelColor": INK, "titleColor": INK}
    axis = {**text, "gridColor": LINE, "domainColor": SOFT, "tickColor": SOFT}
    return {
        "$schema": _SCHEMA,
        "description": description,
        "width": "container",
        "height": height_px,
        "background": "transparent",
        "config": {"axis": axis, "legend": text, "view": {"stroke": LINE}},
        "datasets": {name: frame.to_dict("records") for name, frame in data.items()},
        **chart,
    }
