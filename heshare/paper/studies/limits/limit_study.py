"""Study of power limits: what a limit costs in average JCT and energy, at parts of the unlimited run's own peak."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.limits.budget_policy import within_budget
from heshare.lab.limits.power_budget import PowerBudget, largest_excess
from heshare.lab.sweeps import resolve
from heshare.lab.sweeps.random_streams import POLICY, Repetition
from heshare.lab.sweeps.statistics import change_pct
from heshare.lab.sweeps.study_runs import REPETITION, repeat
from heshare.paper.figures.rows import interval_rows
from heshare.paper.figures.series_styles import FAINT
from heshare.policies.policy import Policy
from heshare.policies.registry import make, title
from heshare.prediction.predictor import LazyPredictor, Predictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.running.timeline import power_steps
from heshare.world.cluster import Cluster
from heshare.world.task import Task

MEASURES = ("avg_jct_s", "energy_active_j", "energy_cluster_j")
UNLIMITED = 1.0
"""The share of a run without a limit."""


def peak_w(done: Run) -> float:
    return float(power_steps(done.record.segments)[1].max())


def limited_runs(
    policies: Sequence[str],
    shares: Sequence[float],
    *,
    cluster: str,
    tasks: int,
    seed: int,
    seeds: int,
) -> pd.DataFrame:
    """Run policies without a limit and under limits that are parts of their own peak.

    `shares` are over the highest power of the unlimited run of the same policy and repetition.

    Returns:
        Columns repetition, title, share (1 is no limit), limit_w (NaN without one), peak_w, the `MEASURES`, and
        excess_w, by how much power is above the limit where it is furthest above it (0: it never is).
    """
    gpus = Cluster.parse(cluster)

    def rows(streams: Repetition) -> Iterator[dict[str, object]]:
        drawn, predictor = streams.task_set(tasks), _predictor()
        for name in policies:
            # One policy for all limits: its planner keeps the front, which no limit changes.
            policy, runs = make(name), partial(_run, drawn, gpus, predictor, streams)
            free = runs(policy, None)
            yield {"title": title(name), **_row(free, UNLIMITED, None)}
            for share in shares:
                budget = PowerBudget.constant(share * peak_w(free))
                yield {"title": title(name), **_row(runs(policy, budget), share, budget)}

    return repeat(rows, seed=seed, seeds=seeds)


def limit_costs(runs: pd.DataFrame) -> pd.DataFrame:
    found = []
    for name, part in runs.groupby("title", sort=False):
        wide = {metric: part.pivot_table(index=REPETITION, columns="share", values=metric) for metric in MEASURES}
        for share in sorted(set(part["share"]) - {UNLIMITED}, reverse=True):
            for metric, table in wide.items():
                change = change_pct(table[share], table[UNLIMITED])
                found.append({"title": name, "share": share, "metric": metric, **change.columns("change_pct")})
    return pd.DataFrame(found).assign(provenance="emulated")


def _predictor() -> Predictor:
    return LazyPredictor(resolve.predictor_maker(resolve.KEPT))


def _run(
    tasks: Sequence[Task],
    cluster: Cluster,
    predictor: Predictor,
    streams: Repetition,
    policy: Policy,
    budget: PowerBudget | None,
) -> Run:
    wrapped = within_budget(policy, budget)
    return run(tasks, cluster, wrapped, predictor=predictor, rng=streams.rng(POLICY))


def _row(done: Run, share: float, budget: PowerBudget | None) -> dict[str, object]:
    excess = None if budget is None else largest_excess(done.record.segments, budget)
    summary = done.summary()
    return {
        "share": share,
        "limit_w": np.nan if budget is None else budget.limits_w[0],
        "peak_w": peak_w(done),
        **{name: summary[name] for name in MEASURES},
        "excess_w": 0.0 if excess is None else excess.power_w - excess.limit_w,
    }


def cost_rows(ax: Axes, costs: pd.DataFrame) -> None:
    """Draw what each limit costs in average JCT, a group for each limit and in it a mark for each policy."""
    drawn = costs[costs["metric"] == "avg_jct_s"].sort_values("share", ascending=False, kind="stable")
    drawn = drawn.assign(limit=[f"{100 * share:.0f} %" for share in drawn["share"]])
    interval_rows(ax, drawn, row="limit", value="change_pct", low="low", high="high", series="title")
    ax.axvline(0.0, color=FAINT, linewidth=0.7, zorder=0)
    ax.set(xlabel="Average JCT against no limit (%)", ylabel="Limit, of the unlimited peak")
    ax.legend(loc="upper right")
