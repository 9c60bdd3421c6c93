"""The page of a front: one offline HTML file in which plans can be selected and inspected."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd
import vl_convert

from heshare.paper.explore.front_charts import CHOICES, front_chart, timeline_chart
from heshare.paper.explore.timeline_boxes import plan_clocks, plan_tasks, predicted_timelines, run_boxes
from heshare.prediction.checked import checked
from heshare.prediction.load import load_predictor
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.scheduling.front import Front
from heshare.scheduling.pareto import thin
from heshare.shared import display, files
from heshare.shared.disk_cache import cached, key_of
from heshare.shared.errors import require
from heshare.shared.progress import tqdm_bar

MOST_PLANS = 60
"""Plans on a page; of a larger front an even selection with the three named plans."""
FRAME_PX = 850
"""Height of the page in a notebook, pixels."""


@dataclass(frozen=True, repr=False)
class FrontPage:
    """A page of a front: `html` is the whole file; Jupyter shows it in an iframe."""

    html: str
    title: str

    def __repr__(self) -> str:
        return f"FrontPage({display.short(self.title, 120)}, {len(self.html) / 1e6:.1f} MB)"

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {FRAME_PX}px; border: 0"
        return f'<iframe title="{escape(self.title)}" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def explore(
    front: Front,
    path: str | Path | None = None,
    *,
    predictor: Predictor | None = None,
    runs: Mapping[str, Run] | None = None,
    series: str = "HeShare",
    piecewise: bool = True,
    home: str = "",
) -> FrontPage:
    """Return a page to explore the plans of a front, which Jupyter shows and a browser opens without network or kernel.

    A plan that is pointed at or clicked shows its predicted timeline, its energy and average JCT, and the tasks for
    which it differs from Trade-off.

    Args:
        front: the plans.
        path: an HTML file to write the page to; the same front gives the same bytes.
        predictor: that of the search, which predicts the timelines; `load_predictor()` unless given.
        runs: runs of policies on the same tasks and GPUs by title, whose timelines can be chosen below; the others
            are compared with the first one.
        series: the search, a name of the registry of styles, such as `HeShare+`.
        piecewise: whether tasks of the plans speed up when others of their batch end, as in
            `heshare.scheduling.settings.Settings`.
        home: target of a link at the top of the page, such as `index.html`; empty for no link.

    Raises:
        InputError: no front, the path is a folder, or a run has other tasks or GPUs.

    Example:
        >>> import heshare as hs
        >>> hs.explore(hs.plan(4, "1xT4"))
        FrontPage(5 plans of 4 tasks on 1xT4, by HeShare, 0.9 MB)
    """
    action = "Pass a front, such as that of hs.plan(...)."
    require("front", display.found(front), isinstance(front, Front), "a Front", action)
    if path is not None:
        require("path", path, not Path(path).is_dir(), "an HTML file", "Name a file, such as front.html.")
        files.require_writable(Path(path).absolute().parent, "path")

    with tqdm_bar(None, desc="explore", bar_format="{desc}"):
        answers = load_predictor() if predictor is None else checked(predictor)
        shown = _shown(front)
        chosen = int(np.flatnonzero(front.to_frame()["choice"].str.contains("Trade-off"))[0])
        timelines = predicted_timelines([front[plan] for plan in shown], answers, piecewise=piecewise)
        predicted = pd.concat(timelines, keys=shown, names=["plan"]).reset_index("plan").reset_index(drop=True)

        data = _front_data(front, predicted, series=series, chosen=chosen)
        if runs:
            data |= _run_data(front, runs)
        title = f"{len(front)} plans of {len(front[0].tasks)} tasks on {front[0].cluster}, by {series}"
        html = _html(title, data, part=_part(len(shown), len(front)), titles=list(runs or {}), home=home)

    page = FrontPage(html, title)
    if path is not None:
        files.write_text(path, page.html)
    return page


def _shown(front: Front) -> list[int]:
    named = np.flatnonzero(front.to_frame()["choice"] != "")
    shown: list[int] = np.union1d(thin(front.objectives, MOST_PLANS - len(CHOICES)), named).tolist()
    return shown


def _front_data(front: Front, predicted: pd.DataFrame, *, series: str, chosen: int) -> dict[str, Any]:
    """Return the charts of a front and of its plans' timelines, and a sentence about each plan."""
    frame, cluster = front.to_frame(), front[0].cluster
    tasks = plan_tasks(front[0], predicted, chosen)
    shown = predicted["plan"].unique().tolist()
    points = frame.loc[shown].assign(plan=shown, energy_mj=frame["energy_j"].round(0) / 1e6)
    about = {plan: _about(front, frame["choice"].tolist(), tasks, plan, chosen) for plan in shown}
    clocks = plan_clocks(cluster, predicted)

    return {
        "about": about,
        "front": front_chart(points.drop(columns="energy_j").round({"jct_s": 1}), series=series, chosen=chosen),
        "timeline": timeline_chart(cluster, tasks, clocks, chosen=chosen, time="as predicted"),
    }


def _run_data(front: Front, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Return the chart of the timelines of runs, and a sentence about each run."""
    cluster, done = front[0].cluster, list(runs.values())
    same = all((each.tasks, each.cluster) == (front[0].tasks, cluster) for each in done)
    require("runs", "other tasks or GPUs", same, "runs of the tasks and GPUs of the front", "Run the same task set.")
    first_title, first = next(iter(runs.items()))
    tasks, clocks = run_boxes(done)

    about = []
    for title, each in runs.items():
        values = f"{each.energy_active_j / 1e6:.3f} MJ, average JCT {each.avg_jct_s:,.0f} s"
        if each is not first:
            energy_pct = 100 * (each.energy_active_j / first.energy_active_j - 1)
            jct_pct = 100 * (each.avg_jct_s / first.avg_jct_s - 1)
            values += f" ({energy_pct:+.1f} % and {jct_pct:+.1f} % against {first_title})"
        about.append(f"{title}, as run: {values}")

    chart = timeline_chart(cluster, tasks, clocks, chosen=0, time="as run", end_s=first.makespan_s)
    return {"run_about": about, "runs": chart}


def _part(shown: int, plans: int) -> str:
    return "" if shown == plans else f" {shown} of the {plans} plans are shown."


def _about(front: Front, choices: Sequence[str], tasks: pd.DataFrame, plan: int, reference: int) -> str:
    energy_j, jct_s = front.objectives[plan].tolist()
    name = f"front[{plan}]" + f", {choices[plan].replace('/', ' and ')}" * bool(choices[plan])
    if plan == reference:
        return f"{name}: {energy_j / 1e6:.3f} MJ, average JCT {jct_s:,.0f} s"
    tasks_of_plan = tasks[tasks["plan"] == plan]
    energy_pct, jct_pct = (100 * (front.objectives[plan] / front.objectives[reference] - 1)).tolist()
    return (
        f"{name}: {energy_j / 1e6:.3f} MJ ({energy_pct:+.1f} %), average JCT {jct_s:,.0f} s ({jct_pct:+.1f} %) against "
        f"Trade-off, from which {tasks_of_plan['differs'].sum()} of {len(tasks_of_plan)} tasks differ"
    )


@cache
def _vega() -> str:
    """Return the program that draws the charts, Vega-Embed with Vega and Vega-Lite; it is bundled once on a machine."""
    call = "window.vegaEmbed = vegaEmbed;"
    return cached("vega", key_of((), ("vl-convert-python",)), lambda: vl_convert.javascript_bundle(call))


def _html(title: str, data: dict[str, Any], *, part: str = "", titles: Sequence[str] = (), home: str = "") -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    folder = Path(__file__).parent
    compared = ""
    if titles:
        buttons = "".join(
            f'<label><input type="radio" name="run" value="{place}"{" checked" * (place == 0)}> {escape(each)}</label>'
            for place, each in enumerate(titles)
        )
        template = Template((folder / "front_runs.html").read_text("utf-8"))
        compared = template.substitute(buttons=buttons, first=escape(titles[0]))

    return Template((folder / "front_page.html").read_text("utf-8")).substitute(
        title=escape(title),
        part=part,
        home=f'<nav><a href="{escape(home)}">All results</a></nav>' if home else "",
        compared=compared,
        data=text.replace("<", "\\u003c"),  # also no comment, within which a script would not end
        vega=_vega().replace("</script", "<\\/script"),
    )
