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
from heshare.paper.figures import plots
from heshare.paper.figures.series_styles import CAP, FAINT, POWER, series_style
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


def power_over_time(policy: str, share: float, *, cluster: str, tasks: int, seed: int) -> pd.DataFrame:
    """Return the power of the first repetition's run without a limit and under one, as steps."""
    streams, gpus, made = Repetition(0, seed), Cluster.parse(cluster), make(policy)
    runs = partial(_run, streams.task_set(tasks), gpus, _predictor(), streams)
    free = runs(made, None)
    limit_w = share * peak_w(free)
    limited = runs(made, PowerBudget.constant(limit_w))
    cases = [("no limit", np.nan, free), (f"{100 * share:.0f} % of the peak", limit_w, limited)]
    frames = []
    for case, most_w, done in cases:
        times_s, power_w = power_steps(done.record.segments)
        frames.append(pd.DataFrame({"case": case, "limit_w": most_w, "time_s": times_s, "power_w": power_w}))
    return pd.concat(frames, ignore_index=True)


def limit_costs(runs: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    found = []
    for name, part in runs.groupby("title", sort=False):
        wide = {metric: part.pivot_table(index=REPETITION, columns="share", values=metric) for metric in MEASURES}
        for share in sorted(set(part["share"]) - {UNLIMITED}, reverse=True):
            for metric, table in wide.items():
                change = change_pct(table[share], table[UNLIMITED], rng)
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


def cost_lines(ax: Axes, costs: pd.DataFrame) -> None:
    drawn = costs[costs["metric"] == "avg_jct_s"]
    titles = list(drawn["title"].unique())
    for place, (name, part) in enumerate(drawn.groupby("title", sort=False)):
        # Side by side, so that the intervals at one limit can be told apart.
        x = 100.0 * part["share"].to_numpy(float) + 1.2 * (place - (len(titles) - 1) / 2)
        lengths = plots.interval_lengths(part, "change_pct", "low", "high")
        how = series_style(str(name)).line_arguments()
        ax.errorbar(x, part["change_pct"], yerr=lengths, elinewidth=0.7, label=str(name), **how)
    ax.axhline(0.0, color=FAINT, linewidth=0.7, zorder=0)
    ax.set_xticks(sorted(100.0 * drawn["share"].unique()))
    ax.invert_xaxis()
    ax.set(xlabel="Power limit (% of the unlimited peak)", ylabel="Average JCT against no limit (%)")
    ax.legend(loc="upper left")


def power_lines(ax: Axes, steps: pd.DataFrame) -> None:
    """Draw the power of all GPUs over time, in grey without a limit, and the limit as a dashed line."""
    for case, part in steps.groupby("case", sort=False):
        limit_w = float(part["limit_w"].iloc[0])
        free = np.isnan(limit_w)
        hours, power_w = part["time_s"].to_numpy(float) / 3600.0, part["power_w"].to_numpy(float)
        ax.step(hours, power_w, where="post", color=FAINT if free else POWER, linewidth=0.9, label=str(case))
        if not free:
            ax.axhline(limit_w, color=CAP, linestyle="--", linewidth=0.7, label=f"limit, {limit_w:.0f} W")
    ax.set(xlabel="Time (h)", ylabel="Power of all GPUs (W)")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper right")
