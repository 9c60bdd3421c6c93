"""The page of a front: one HTML file without network or kernel, in which a plan is chosen and looked at."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import vl_convert

from heshare.lab.plus.optimum.lower_bound import BOUND_TASKS, Bound, bound_along
from heshare.lab.plus.search_settings import DEFAULT_CHOICES
from heshare.paper.explore.front_charts import BOUND, CHOICES, CLOCK_FROM, TASKS_UNTIL, front_chart, timeline_chart
from heshare.paper.explore.predicted_timeline import differing_tasks, predicted_timelines
from heshare.paper.figures.series_styles import EDGE, GRID, TEXT
from heshare.paper.figures.timelines import LOAD_CLASSES
from heshare.prediction.predictor import Predictor
from heshare.scheduling.pareto import Front, thin
from heshare.shared import display, files
from heshare.shared.caches.array_store import key_of, load_arrays, save_arrays
from heshare.shared.errors import require
from heshare.world.catalogue import load_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heshare.shared.arrays import FloatArray, IntArray

MOST_PLANS = 100
"""Plans on a page; of a larger front an even selection with the three named plans."""
BOUND_TOLERANCE = 0.01
"""How far the column generation may stop from the linear program's value; the bound is as much lower, and proven."""
BOUND_POINTS = 60
_STORED = "vega"
FRAME_PX = 1050
"""Height of the page in a notebook, pixels."""
_TASK_FIELDS = ("gpu", "batch", "mps_pct", "sm_mhz", "lane", "lanes", "begin_s", "end_s", "differs")


@dataclass(frozen=True, repr=False)
class FrontPage:
    """A page of a front: `html` is the whole file; Jupyter shows it in a frame of its own.

    Attributes:
        html: the page.
        title: what it shows.
    """

    html: str
    title: str

    def __repr__(self) -> str:
        return f"FrontPage({display.short(self.title, 120)}, {len(self.html) / 1e6:.1f} MB)"

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {FRAME_PX}px; border: 0"
        return f'<iframe title="{escape(self.title)}" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def front_page(
    front: Front,
    predictor: Predictor,
    path: str | Path | None = None,
    *,
    series: str = "HeShare",
    piecewise: bool = True,
    bound: bool | None = None,
) -> FrontPage:
    """Return the page of a front, and write it to a file if a path is given.

    Args:
        front: the plans.
        predictor: predicted them.
        path: the file.
        series: `HeShare` or `HeShare+`.
        piecewise: whether tasks speed up when others of their batch end.
        bound: whether to draw the proven bound; unless given, for up to `BOUND_TASKS` tasks.

    Raises:
        InputError: the path is a folder.
    """
    if path is not None:
        require("path", path, not Path(path).is_dir(), "an HTML file", "Name a file, such as front.html.")
    asked = len(front[0].tasks) <= BOUND_TASKS if bound is None else bound
    low = bound_along(front, predictor, tolerance=BOUND_TOLERANCE) if asked else None
    frame, shown = front.to_frame(), _shown(front)
    title = f"{len(front)} plans of {len(front[0].tasks)} tasks on {front[0].cluster}, by {series}"
    plans = [*(front[index] for index in shown), front.trade_off]
    data = _data(front, shown, predicted_timelines(plans, predictor, piecewise=piecewise), low)
    points = pd.DataFrame({"plan": shown, "energy_mj": _mj(frame)[shown], "jct_s": _jct_s(frame)[shown]})
    points["choice"] = frame["choice"].to_numpy()[shown]
    chosen = data["choices"]["Trade-off"]
    data["front"] = front_chart(points, _envelope(low, front.objectives), series=series, chosen=chosen)
    data["timeline"] = timeline_chart(front[0].cluster, _kinds(data), data["last_s"])
    page = FrontPage(_html(title, data, len(shown), len(front), low is not None), title)
    if path is not None:
        files.write_text(path, page.html)
    return page


def _shown(front: Front) -> IntArray:
    """Return the indices of the plans on the page, ascending."""
    named = front.to_frame().query("choice != ''").index.to_numpy()
    return np.union1d(thin(front.objectives, MOST_PLANS - len(CHOICES)), named)


def _envelope(bound: Bound | None, objectives: FloatArray) -> pd.DataFrame:
    """Return the bound's curve over the front's energies: `energy_mj`, `jct_s`."""
    if bound is None:
        return pd.DataFrame({"energy_mj": [], "jct_s": []})
    energy_j = np.linspace(objectives[:, 0].min(), objectives[:, 0].max(), BOUND_POINTS)
    curve = pd.DataFrame({"energy_mj": energy_j / 1e6, "jct_s": bound.envelope_s(energy_j)})
    return curve.query("0 < jct_s < inf").round(6)


def _mj(frame: pd.DataFrame) -> FloatArray:
    return frame["energy_j"].to_numpy(float).round(0) / 1e6


def _jct_s(frame: pd.DataFrame) -> FloatArray:
    return frame["jct_s"].to_numpy(float).round(1)


def _kinds(data: dict[str, Any]) -> list[str]:
    found = {kind for _, kind in data["tasks"].values()}
    return [kind for kind in LOAD_CLASSES if kind in found]


def _data(front: Front, shown: IntArray, timelines: Sequence[pd.DataFrame], bound: Bound | None) -> dict[str, Any]:
    """Return what the page's script reads: the tasks, and of each plan its values and its timeline.

    `timelines` are those of the shown plans, and then Trade-off's.
    """
    frame, reference = front.to_frame(), timelines[-1]
    gaps = None if bound is None else bound.gap_pct(front.objectives)
    gpus = {label: index for index, label in enumerate(front[0].cluster.labels)}
    rows = {}
    for index, timeline in zip(shown.tolist(), timelines[:-1], strict=True):
        differing = differing_tasks(timeline, reference)
        placed = timeline.assign(gpu=timeline["gpu"].map(gpus), differs=timeline["task"].isin(differing).astype(int))
        placed = placed.round({"begin_s": 1, "end_s": 1})
        rows[index] = {
            "energy_j": float(round(front.objectives[index, 0])),
            "jct_s": float(round(front.objectives[index, 1], 1)),
            "choice": frame["choice"].iloc[index],
            "gap_pct": None if gaps is None else round(float(gaps[index]), 1),
            "tasks": {task: list(row) for task, *row in placed[["task", *_TASK_FIELDS]].itertuples(index=False)},
            "clocks": _clocks(placed),
        }
    named = {name: int(frame.index[frame["choice"].str.contains(name)][0]) for name in CHOICES}
    about = {task.id: [str(task.workload), load_class(task.workload.model)] for task in front[0].tasks}
    return {
        "fields": list(_TASK_FIELDS),
        "gpus": list(gpus),
        "top_mhz": [card.max_mhz for card in front[0].cluster.gpus],
        "tasks": about,
        "plans": rows,
        "choices": named,
        "last_s": max(float(timeline["end_s"].max()) for timeline in timelines) * 1.01,
        "rows": [TASKS_UNTIL, CLOCK_FROM],
    }


def _clocks(placed: pd.DataFrame) -> list[list[float]]:
    """Return [GPU, begin in s, end in s, clock in MHz] of each batch."""
    batches = placed.groupby(["gpu", "batch"], sort=True)
    found = batches.agg(begin_s=("begin_s", "first"), end_s=("batch_end_s", "first"), sm_mhz=("sm_mhz", "first"))
    return [list(row) for row in found.round(1).reset_index().drop(columns="batch").itertuples(index=False)]


@cache
def _vega() -> str:
    """Return the program that draws the charts, Vega-Embed with Vega and Vega-Lite; it is bundled once on a machine."""
    call = "window.vegaEmbed = vegaEmbed;"
    key = key_of((), ("vl-convert-python",), call)
    stored = load_arrays(_STORED, key)
    if stored is not None:
        return stored["program"].tobytes().decode()
    program = vl_convert.javascript_bundle(call)
    save_arrays(_STORED, key, {"program": np.frombuffer(program.encode(), dtype=np.uint8)})
    return program


def _html(title: str, data: dict[str, Any], shown: int, plans: int, bounded: bool) -> str:
    folder = Path(__file__).parent
    part = "" if shown == plans else f" {shown} of the {plans} plans are shown."
    most = DEFAULT_CHOICES
    proof = (
        f" The dashed line is the {BOUND}: below it lies no plan in batches of up to {most.width} tasks, at "
        f"{most.clocks} clocks of each GPU, with at most {most.mps_variants} choices of MPS percentages for a batch."
    )
    text = json.dumps(data, default=_plain, separators=(",", ":"), ensure_ascii=False)
    return Template((folder / "front_page.html").read_text("utf-8")).substitute(
        title=escape(title),
        part=part,
        proof=proof if bounded else "",
        last=shown - 1,
        edge=EDGE,
        grid=GRID,
        text=TEXT,
        data=text.replace("</", "<\\/"),
        vega=_vega().replace("</script", "<\\/script"),
        script=(folder / "front_page.js").read_text("utf-8"),
    )


def _plain(value: Any) -> Any:
    """Return a number of numpy as one of Python."""
    return value.item()
