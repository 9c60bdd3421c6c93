"""Distance of fronts to the best plans: exact fronts of small task sets, a proven lower bound of large ones."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.plus.batch_table import BatchTable
from heshare.lab.plus.exact_front import front_of
from heshare.lab.plus.heshare_plus import DEFAULT_SETTINGS, PlusSearch, SearchSettings
from heshare.lab.plus.lower_bound import Bound, weights_along
from heshare.paper.figures.series_styles import LineArguments, series_style
from heshare.paper.studies.front_indicators import FrontIndicators, random_plan_mean
from heshare.prediction.predictor import Predictor
from heshare.scheduling.front import Front
from heshare.scheduling.objectives import make_instance
from heshare.shared.arrays import FloatArray
from heshare.world.cluster import Cluster
from heshare.world.task import Task

DIRECTIONS = 25
"""Number of weights at which a front is compared with the exact one."""
BOUND = "proven bound"
"""The series of a bound in `front_panel`."""
_PLANS: LineArguments = {"linestyle": "-", "linewidth": 0.6, "marker": "o", "markersize": 1.6, "markeredgewidth": 0}


def improved(table: BatchTable, rng: np.random.Generator, effort: SearchSettings = DEFAULT_SETTINGS) -> FloatArray:
    """Return all points that HeShare+ finds, [energy in J, average JCT in s], shape (m, 2)."""
    search = PlusSearch(table, effort, rng)
    search.run()
    return search.archive.objectives()


def against_exact(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    effort: SearchSettings = DEFAULT_SETTINGS,
) -> dict[str, float]:
    """Return the gap between HeShare+'s front and the exact front of a small task set.

    Returns:
        `tasks`; `hypervolume`, HeShare+'s over the exact front's, up to the mean of random plans; `gap_pct`, the excess
        of its least weighted sum, mean over `DIRECTIONS` weights along the front; `points` and `exact_points`, the
        sizes of both fronts.
    """
    instance = make_instance(tasks, cluster, predictor)
    table = BatchTable(instance, predictor, effort.choices)
    exact = front_of(table).objectives
    found = improved(table, rng, effort)

    indicators = FrontIndicators.of([exact], random_plan_mean(instance, rng))
    weights = weights_along(exact, DIRECTIONS)
    gaps = (found @ weights.T).min(axis=0) / (exact @ weights.T).min(axis=0) - 1
    gaps = np.maximum(gaps, 0.0)  # for equal plans, rounding may give a negative value

    return {
        "tasks": len(tasks),
        "hypervolume": indicators.hypervolume(found),
        "gap_pct": 100 * float(gaps.mean()),
        "exact_points": len(exact),
        "points": len(found),
    }


def bound_points(fronts: Mapping[str, Front], bound: Bound, points: int = 60) -> pd.DataFrame:
    """Return the plans of fronts with their gaps, and the bound over the range of their energy.

    Returns:
        One row a plan or a point of the bound: `series` (title, or `BOUND`), `energy_j`, `jct_s`, and `gap_pct` of a
        plan.
    """
    frames = [
        pd.DataFrame(front.objectives, columns=["energy_j", "jct_s"]).assign(
            series=title, gap_pct=bound.gap_pct(front.objectives)
        )
        for title, front in fronts.items()
    ]
    plans = pd.concat(frames, ignore_index=True)
    energy_j = np.linspace(plans["energy_j"].min(), plans["energy_j"].max(), points)
    envelope = pd.DataFrame({"energy_j": energy_j, "jct_s": bound.envelope_s(energy_j), "series": BOUND})
    # The least energy of the bound may exceed that of the nearest plan by rounding, where the bound is infinite.
    envelope = envelope[np.isfinite(envelope["jct_s"])]
    both: pd.DataFrame = pd.concat([plans, envelope], ignore_index=True)
    return both.reindex(columns=["series", "energy_j", "jct_s", "gap_pct"])


def front_panel(ax: Axes, points: pd.DataFrame) -> None:
    """Draw average JCT against energy: fronts as steps with a mark for each plan, a bound as a dashed line.

    `points` is as from `bound_points`.
    """
    for title, part in points.groupby("series", sort=False):
        style = series_style(str(title)).line_arguments(linewidth=0.9, label=str(title))
        ordered = part.sort_values(["energy_j", "jct_s"])
        if title != BOUND:
            style |= {**_PLANS, "drawstyle": "steps-post"}
        ax.plot(ordered["energy_j"] / 1e6, ordered["jct_s"] / 1e3, **style)

    ax.set(xlabel="Energy (MJ)", ylabel="Average JCT (1000 s)")


def gap_panel(ax: Axes, points: pd.DataFrame) -> None:
    """Draw the gap of each plan to the bound over its energy; `points` is as from `bound_points`."""
    for title, part in points.dropna(subset="gap_pct").groupby("series", sort=False):
        style = series_style(str(title)).line_arguments(**_PLANS)
        ordered = part.sort_values("energy_j")
        ax.plot(ordered["energy_j"] / 1e6, ordered["gap_pct"], label=str(title), **style)

    ax.set(xlabel="Energy (MJ)", ylabel="Gap to the bound (%)", ylim=(0, None))
