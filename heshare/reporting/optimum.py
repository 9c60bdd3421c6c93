"""How far fronts are from the optimum, and what the predictor's error costs: studies with one row a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from heshare.policies.release import FollowsPlan
from heshare.prediction.predictor import Predictor
from heshare.prediction.truth import DevicePredictor
from heshare.reporting.style import look
from heshare.running.run import run
from heshare.scheduling.bound import Bound, along
from heshare.scheduling.costs import BatchCosts
from heshare.scheduling.effort import DEFAULT, Effort
from heshare.scheduling.exact import front_of
from heshare.scheduling.improved import Search
from heshare.scheduling.indicators import Yardstick, random_level
from heshare.scheduling.objectives import FloatArray, instance
from heshare.scheduling.pareto import Front
from heshare.world.cluster import Cluster
from heshare.world.task import Task

CROWDED = 60
"""Points from which on a front's markers are small."""
DIRECTIONS = 25
"""Weights at which a front is held against the exact one."""


def improved(costs: BatchCosts, rng: np.random.Generator, effort: Effort = DEFAULT) -> FloatArray:
    """All points that HeShare+ finds, [energy in J, average JCT in s], shape (m, 2)."""
    search = Search(costs, effort, rng)
    search.run()
    return search.archive.objectives()


def against_exact(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    *,
    rng: np.random.Generator,
    effort: Effort = DEFAULT,
) -> tuple[dict[str, float], FloatArray, FloatArray]:
    """HeShare+ on a task set that is small enough for its exact front.

    Returns:
        `hypervolume`, HeShare+'s over the exact front's, up to the level of random plans; `gap_pct`, the mean over
        directions along the front of how much more its best weighted sum costs; `points` of both; and both fronts,
        exact and found, [J, s], shape (m, 2).
    """
    world = instance(tasks, cluster, predictor)
    costs = BatchCosts(world, predictor, effort.freedom)
    exact, found = front_of(costs).objectives, improved(costs, rng, effort)
    yard = Yardstick.of([exact], random_level(world, rng))
    weights = along(exact, DIRECTIONS)
    gaps = (found @ weights.T).min(axis=0) / (exact @ weights.T).min(axis=0) - 1
    row = {
        "tasks": len(tasks),
        "hypervolume": yard.hypervolume(found),
        "gap_pct": 100 * float(gaps.mean()),
        "exact_points": len(exact),
        "points": len(found),
    }
    return row, exact, found


def device_front(front: Front, *, points: int, rng: np.random.Generator) -> pd.DataFrame:
    """Run plans spread over a front on emulated GPUs: what was believed of each, and what happened.

    Returns:
        One row a plan: `believed_j`, `believed_s`, `energy_j` (active account) and `jct_s`.
    """
    some = np.unique(np.linspace(0, len(front) - 1, points).round().astype(int))
    rows = []
    for index in some:
        plan = front.plans[index]
        done = run(plan.tasks, plan.cluster, FollowsPlan(plan), predictor=DevicePredictor(), rng=rng)
        rows.append(
            {
                "believed_j": plan.energy_j,
                "believed_s": plan.jct_s,
                "energy_j": done.energy_active_j,
                "jct_s": done.avg_jct_s,
            }
        )
    return pd.DataFrame(rows)


def front_panel(ax: Axes, frame: pd.DataFrame) -> list[Artist]:
    """Average JCT against energy, columns `energy_j` and `jct_s`, for each `series`: fronts as steps, others as points.

    A series with `bound` in its name is a dashed line.
    """
    drawn: list[Artist] = []
    for index, (name, part) in enumerate(frame.groupby("series", sort=False)):
        how, ordered = look(str(name), index), part.sort_values(["energy_j", "jct_s"])
        style: dict[str, Any] = {"color": how.colour, "label": str(name)}
        x, y = ordered["energy_j"].to_numpy(float) / 1e6, ordered["jct_s"].to_numpy(float) / 1e3
        size = 2.2 if len(x) <= CROWDED else 1.0
        if "bound" in str(name):
            drawn += ax.plot(x, y, lw=0.9, ls="--", **style)
        elif (np.diff(y) <= 0).all():
            drawn += ax.plot(x, y, marker=how.marker, ms=size, lw=0.7, drawstyle="steps-post", **style)
        else:
            drawn += ax.plot(x, y, marker=how.marker, ms=size, ls="", **style)
    ax.set(xlabel="Energy (MJ)", ylabel="Average JCT (1000 s)")
    return drawn


def envelope(bound: Bound, objectives: FloatArray, points: int = 60) -> pd.DataFrame:
    """The bound's envelope over a front's range of energy: `energy_j`, `jct_s`."""
    energy_j = np.linspace(objectives[:, 0].min(), objectives[:, 0].max(), points)
    return pd.DataFrame({"energy_j": energy_j, "jct_s": bound.envelope_s(energy_j)})


def gap_panel(ax: Axes, frame: pd.DataFrame) -> list[Artist]:
    """The gap of each plan, %, against its energy: columns `series`, `energy_j`, `gap_pct`."""
    drawn: list[Artist] = []
    for index, (name, part) in enumerate(frame.groupby("series", sort=False)):
        how, ordered = look(str(name), index), part.sort_values("energy_j")
        x, y = ordered["energy_j"].to_numpy(float) / 1e6, ordered["gap_pct"].to_numpy(float)
        drawn += ax.plot(x, y, color=how.colour, marker=how.marker, ms=1.0, lw=0.7, label=str(name))
    ax.set_yscale("log")
    ax.set(xlabel="Energy (MJ)", ylabel="Gap to the bound (%)")
    return drawn
