"""Optimality gaps of fronts, and the effect of prediction errors on them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.optimum.exact_front import front_of
from heshare.lab.plus.optimum.lower_bound import Bound, weights_along
from heshare.lab.plus.search_settings import DEFAULT_SETTINGS, SearchSettings
from heshare.lab.plus.weighted_search import WeightedSearch
from heshare.paper.figures.series_styles import series_style
from heshare.paper.studies.front_indicators import FrontIndicators, random_plan_mean
from heshare.policies.plan_release import FixedPlanPolicy
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import Predictor
from heshare.running.run import run
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import Front
from heshare.shared.arrays import FloatArray
from heshare.world.cluster import Cluster
from heshare.world.task import Task

CROWDED = 60
"""Number of points above which a front's markers are small."""
DIRECTIONS = 25
"""Number of weights at which a front is compared with the exact one."""


def improved(costs: BatchCosts, rng: np.random.Generator, effort: SearchSettings = DEFAULT_SETTINGS) -> FloatArray:
    """Return all points that HeShare+ finds, [energy in J, average JCT in s], shape (m, 2)."""
    search = WeightedSearch(costs, effort, rng)
    search.run()
    return search.archive.objectives()


def against_exact(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    effort: SearchSettings = DEFAULT_SETTINGS,
) -> tuple[dict[str, float], FloatArray, FloatArray]:
    """Return the gap between HeShare+'s front and the exact front of a small task set.

    Returns:
        A row with `hypervolume` (HeShare+'s over the exact front's, up to the level of random plans), `gap_pct` (the
        excess of its best weighted sum, mean over directions along the front), `points` and `exact_points`; then the
        exact front and HeShare+'s, [J, s], shape (m, 2) each.
    """
    world = make_instance(tasks, cluster, predictor)
    costs = BatchCosts(world, predictor, effort.choices)
    exact, found = front_of(costs).objectives, improved(costs, rng, effort)
    indicators = FrontIndicators.of([exact], random_plan_mean(world, rng))
    weights = weights_along(exact, DIRECTIONS)
    gaps = (found @ weights.T).min(axis=0) / (exact @ weights.T).min(axis=0) - 1
    row = {
        "tasks": len(tasks),
        "hypervolume": indicators.hypervolume(found),
        "gap_pct": 100 * float(gaps.mean()),
        "exact_points": len(exact),
        "points": len(found),
    }
    return row, exact, found


def device_front(front: Front, *, points: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return predicted and actual results of plans spread over a front, run on emulated GPUs."""
    some = np.unique(np.linspace(0, len(front) - 1, points).round().astype(int))
    rows = []
    for index in some:
        plan = front.plans[index]
        done = run(plan.tasks, plan.cluster, FixedPlanPolicy(plan), predictor=DevicePredictor(), rng=rng)
        rows.append((plan.energy_j, plan.jct_s, done.energy_active_j, done.avg_jct_s))
    return pd.DataFrame(rows, columns=["predicted_j", "predicted_s", "energy_j", "jct_s"])


def front_panel(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw average JCT against energy for each `series`: fronts as steps, others as points, bounds as dashed lines.

    `frame` has the columns `series`, `energy_j` and `jct_s`; a bound has `bound` in its name.
    """
    for name, part in frame.groupby("series", sort=False):
        how, ordered = series_style(str(name)), part.sort_values(["energy_j", "jct_s"])
        style: dict[str, Any] = {"color": how.colour, "markerfacecolor": how.face, "label": str(name)}
        x, y = ordered["energy_j"].to_numpy(float) / 1e6, ordered["jct_s"].to_numpy(float) / 1e3
        size = 2.2 if len(x) <= CROWDED else 1.0
        if name == "exact front":
            # A wide line, because the fronts drawn over it hardly differ from it.
            ax.plot(x, y, lw=4.0, drawstyle="steps-post", **style)
        elif "bound" in str(name):
            ax.plot(x, y, lw=0.9, ls="--", **style)
        elif (np.diff(y) <= 0).all():
            ax.plot(x, y, marker=how.marker, ms=size, lw=0.7, drawstyle="steps-post", **style)
        else:
            ax.plot(x, y, marker=how.marker, ms=size, ls="", **style)
    ax.set(xlabel="Energy (MJ)", ylabel="Average JCT (1000 s)")


def envelope(bound: Bound, objectives: FloatArray, points: int = 60) -> pd.DataFrame:
    """Return the bound's envelope over a front's range of energy: `energy_j`, `jct_s`."""
    energy_j = np.linspace(objectives[:, 0].min(), objectives[:, 0].max(), points)
    return pd.DataFrame({"energy_j": energy_j, "jct_s": bound.envelope_s(energy_j)})


def gap_panel(ax: Axes, frame: pd.DataFrame) -> None:
    for name, part in frame.groupby("series", sort=False):
        how, ordered = series_style(str(name)), part.sort_values("energy_j")
        x, y = ordered["energy_j"].to_numpy(float) / 1e6, ordered["gap_pct"].to_numpy(float)
        ax.plot(x, y, color=how.colour, lw=0.7, drawstyle="steps-mid", label=str(name))
    ax.set_ylim(bottom=0.0)
    ax.set(xlabel="Energy (MJ)", ylabel="Gap to the bound (%)")
