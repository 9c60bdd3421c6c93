"""The page of a front: one HTML file without network or kernel, in which a plan is chosen and looked at."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd
import vl_convert

from heshare.paper.explore.front_charts import CHOICES, CLOCK_FROM, TASKS_UNTIL, front_chart, timeline_chart
from heshare.paper.figures.timelines import LOAD_CLASSES
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import BatchModel
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import Front, thin
from heshare.scheduling.plan import Plan
from heshare.shared import display, files
from heshare.shared.caches.kept_objects import keep, key_of, load_kept
from heshare.shared.errors import require
from heshare.world.catalogue import load_class

MOST_PLANS = 100
"""Plans on a page; of a larger front an even selection with the three named plans."""
FRAME_PX = 850
"""Height of the page in a notebook, pixels."""
_STORED = "vega"
PLACED_BY = ["gpu", "batch", "mps_pct", "sm_mhz"]
"""What a plan decides of a task."""


@dataclass(frozen=True, repr=False)
class FrontPage:
    """A page of a front: `html` is the whole file; Jupyter shows it in a frame of its own."""

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
) -> FrontPage:
    """Return the page of a front, and write it to a file if a path is given; for the arguments see `explore`."""
    if path is not None:
        require("path", path, not Path(path).is_dir(), "an HTML file", "Name a file, such as front.html.")
        files.require_writable(Path(path).absolute().parent, "path")
    frame, cluster = front.to_frame(), front[0].cluster
    named = frame.index[frame["choice"] != ""].to_numpy()
    shown = np.union1d(thin(front.objectives, MOST_PLANS - len(CHOICES)), named).tolist()
    chosen = int(frame.index[frame["choice"].str.contains("Trade-off")][0])
    found = predicted_timelines([front[plan] for plan in shown], predictor, piecewise=piecewise)
    timelines = dict(zip(shown, found, strict=True))
    points = frame.loc[shown].assign(plan=shown, energy_mj=frame["energy_j"].round(0) / 1e6)
    tasks, clocks = _tasks(front, timelines, chosen), _clocks(front, timelines)
    kinds = [kind for kind in LOAD_CLASSES if kind in set(tasks["kind"])]
    data = {
        "about": {plan: _about(front, frame["choice"].tolist(), tasks, plan, chosen) for plan in shown},
        "front": front_chart(points.drop(columns="energy_j").round({"jct_s": 1}), series=series, chosen=chosen),
        "timeline": timeline_chart(cluster, tasks, clocks, kinds=kinds, chosen=chosen),
    }
    title = f"{len(front)} plans of {len(front[0].tasks)} tasks on {cluster}, by {series}"
    page = FrontPage(_html(title, data, len(shown), len(front)), title)
    if path is not None:
        files.write_text(path, page.html)
    return page


def predicted_timelines(plans: Sequence[Plan], predictor: Predictor, *, piecewise: bool = True) -> list[pd.DataFrame]:
    """Return the timeline of each plan, all of one task set on one cluster, as the scheduler predicts it.

    A GPU's batches follow each other without gaps, and a batch ends with its last task (Eqs. 13 and 15). `piecewise`:
    tasks speed up when others of their batch end.

    Returns:
        For each plan the rows of `Plan.to_frame` with the columns lane (place in the batch, from 0), lanes (tasks in
        the batch), begin_s, end_s and batch_end_s, in s after the start; sm_mhz is the top clock where the plan sets
        none.
    """
    model = BatchModel(make_instance(plans[0].tasks, plans[0].cluster, predictor), predictor)
    return [_timeline(plan, model, piecewise) for plan in plans]


def _timeline(plan: Plan, model: BatchModel, piecewise: bool) -> pd.DataFrame:
    found = [(gpu, batch) for gpu, queue in enumerate(plan.queues) for batch in queue]
    batches = model.batches_of([plan])
    done = model.execute(batches, piecewise=piecewise)
    begin_s, now_s = [], dict.fromkeys(range(len(plan.cluster)), 0.0)
    for (gpu, _), length_s in zip(found, done.end_s.tolist(), strict=True):
        begin_s.append(now_s[gpu])
        now_s[gpu] += length_s
    sizes = [len(batch.tasks) for _, batch in found]
    frame = plan.to_frame()
    frame["sm_mhz"] = np.repeat([batch.sm_mhz or plan.cluster.gpus[gpu].max_mhz for gpu, batch in found], sizes)
    frame["lane"] = np.concatenate([np.arange(size) for size in sizes])
    frame["lanes"] = np.repeat(sizes, sizes)
    frame["begin_s"] = np.repeat(begin_s, sizes)
    frame["end_s"] = frame["begin_s"] + done.time_s[batches.members]
    frame["batch_end_s"] = np.repeat(np.array(begin_s) + done.end_s, sizes)
    return frame


def differing_tasks(timeline: pd.DataFrame, reference: pd.DataFrame) -> set[int]:
    """Return the tasks whose GPU, batch, MPS percentage or clock is another one than in a reference plan."""
    one, other = (frame.set_index("task")[PLACED_BY].sort_index() for frame in (timeline, reference))
    return set(one.index[(one != other).any(axis=1)].tolist())


def _tasks(front: Front, timelines: dict[int, pd.DataFrame], chosen: int) -> pd.DataFrame:
    workloads = {task.id: task.workload for task in front[0].tasks}
    rows = []
    for plan, timeline in timelines.items():
        high = TASKS_UNTIL / timeline["lanes"]
        top = _row_of(front, timeline) + 0.04 + timeline["lane"] * (high - 0.04 / timeline["lanes"])
        pct = timeline["mps_pct"]
        own = timeline[["task", "mps_pct", "sm_mhz", "begin_s", "end_s"]].assign(
            plan=plan,
            workload=timeline["task"].map(workloads).map(str),
            kind=timeline["task"].map({task: load_class(each.model) for task, each in workloads.items()}),
            label=timeline["task"].astype(str) + pct.map(lambda share: "" if share == 100 else f": {share} %"),
            differs=timeline["task"].isin(differing_tasks(timeline, timelines[chosen])),
            top=top,
            bottom=top + high - 0.04 / timeline["lanes"],
        )
        rows.append(own)
    return pd.concat(rows, ignore_index=True).round({"begin_s": 1, "end_s": 1, "top": 3, "bottom": 3})


def _clocks(front: Front, timelines: dict[int, pd.DataFrame]) -> pd.DataFrame:
    top_mhz = np.array([card.max_mhz for card in front[0].cluster.gpus])
    rows = []
    for plan, timeline in timelines.items():
        own = timeline.assign(row=_row_of(front, timeline)).groupby(["row", "batch"]).first().reset_index()
        bottom = own["row"] + 0.98
        share = own["sm_mhz"] / top_mhz[own["row"]]
        about: dict[str, Any] = {"plan": plan, "label": own["sm_mhz"].astype(str), "end_s": own["batch_end_s"]}
        rows.append(own[["begin_s"]].assign(**about, top=bottom - (0.98 - CLOCK_FROM) * share, bottom=bottom))
    return pd.concat(rows, ignore_index=True).round({"begin_s": 1, "end_s": 1, "top": 3, "bottom": 3})


def _row_of(front: Front, timeline: pd.DataFrame) -> "pd.Series[int]":
    labels: Sequence[str] = front[0].cluster.labels
    return timeline["gpu"].map({label: row for row, label in enumerate(labels)}).astype(int)


def _about(front: Front, choices: Sequence[str], tasks: pd.DataFrame, plan: int, reference: int) -> str:
    energy_j, jct_s = front.objectives[plan].tolist()
    name = f"front[{plan}]" + f", {choices[plan].replace('/', ' and ')}" * bool(choices[plan])
    if plan == reference:
        return f"{name}: {energy_j / 1e6:.3f} MJ, average JCT {jct_s:.0f} s"
    own = tasks[tasks["plan"] == plan]
    energy_pct, jct_pct = (100 * (front.objectives[plan] / front.objectives[reference] - 1)).tolist()
    return (
        f"{name}: {energy_j / 1e6:.3f} MJ ({energy_pct:+.1f} %), average JCT {jct_s:.0f} s ({jct_pct:+.1f} %) against "
        f"Trade-off, from which {own['differs'].sum()} of {len(own)} tasks differ"
    )


@cache
def _vega() -> str:
    """Return the program that draws the charts, Vega-Embed with Vega and Vega-Lite; it is bundled once on a machine."""
    call = "window.vegaEmbed = vegaEmbed;"
    key = key_of((), ("vl-convert-python",), call)
    program: str | None = load_kept(_STORED, key)
    if program is None:
        program = vl_convert.javascript_bundle(call)
        keep(_STORED, key, program)
    return program


def _html(title: str, data: dict[str, Any], shown: int, plans: int) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return Template((Path(__file__).parent / "front_page.html").read_text("utf-8")).substitute(
        title=escape(title),
        part="" if shown == plans else f" {shown} of the {plans} plans are shown.",
        data=text.replace("<", "\\u003c"),  # also no comment, within which a script would not end
        vega=_vega().replace("</script", "<\\/script"),
    )
