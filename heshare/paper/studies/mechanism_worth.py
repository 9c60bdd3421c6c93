"""Worth of each mechanism of Trade-off: what its removal costs, as the plans promise it and as the runs deliver it."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.sweeps.statistics import change_pct
from heshare.paper.figures.plots import interval_lengths
from heshare.paper.figures.series_styles import GUIDE, series_style
from heshare.paper.studies.variants import ENERGY, JCT
from heshare.policies.cached_planner import CachedPlanner, Searches
from heshare.policies.heshare import HeShare
from heshare.policies.policy import Policy
from heshare.prediction.predictor import Predictor
from heshare.scheduling.configuration import configure
from heshare.scheduling.objectives import Instance, make_instance
from heshare.scheduling.pareto import Front
from heshare.scheduling.settings import Settings
from heshare.shared.arrays import IntArray
from heshare.world.cluster import Cluster
from heshare.world.task import Task

WHOLE = "Trade-off"
ORDER, PLACEMENT = "order", "placement"
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "sharing": {"batching": "single"},
    "MPS percentages": {"mps_goal": "none"},
    "clocks": {"clock_scope": "none"},
    PLACEMENT: {},
    ORDER: {},
}
"""Trade-off's mechanisms: the settings without each. Without placement a task's GPU is drawn; without order (SPT) tasks
start as they are numbered, in both stages."""
REMOVED = tuple(WITHOUT)
PROMISED = {ENERGY: "promised_j", JCT: "promised_s"}
BASES = {
    "promised": "planned on predictions, as predicted",
    "delivered": "planned on predictions, run",
    "delivered, never wrong": "planned on the truth, run",
}
"""Series of the worth, with the names of their styles."""


class _AsNumbered(Instance):
    """An instance whose GPUs run their tasks in the order of their numbers, which is random in a drawn set."""

    @cached_property
    def order_of_kind(self) -> IntArray:
        return np.tile(np.arange(self.n), (len(self.kinds), 1))

    @cached_property
    def order(self) -> IntArray:
        return np.tile(np.arange(self.n), (self.k, 1))


class _WithoutOrder(CachedPlanner):
    def _plan_front(
        self, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
    ) -> Front:
        calls_before, made = predictor.calls, make_instance(tasks, cluster, predictor)
        instance = _AsNumbered(**{each.name: getattr(made, each.name) for each in fields(Instance)})
        plans, objectives = configure(self._search(instance, rng), instance, predictor, self.settings)
        return Front(plans, objectives, predictor.calls - calls_before)


def without(part: str) -> str:
    """Return the title of Trade-off without a mechanism."""
    return f"{WHOLE} without {part}"


def plans(settings: Settings, parts: Sequence[str] = REMOVED) -> dict[str, HeShare]:
    """Return HeShare's plans and Trade-off without each of some mechanisms, by title; they share their searches."""
    searches: Searches = {}
    whole = CachedPlanner(settings)
    made = {WHOLE: HeShare("trade-off", planner=whole)}
    made |= {"En-opt": HeShare("en-opt", planner=whole), "JCT-opt": HeShare("jct-opt", planner=whole)}
    for part in parts:
        kind = _WithoutOrder if part == ORDER else CachedPlanner
        placement = "random" if part == PLACEMENT else "heshare"
        planner = kind(replace(settings, **WITHOUT[part]), placement=placement)
        made[without(part)] = HeShare("trade-off", planner=planner)
    for title, policy in made.items():
        # A search's key says nothing of the order of tasks.
        policy.planner.searches = {} if title == without(ORDER) else searches
    return made


def promised(
    policy: Policy, tasks: Sequence[Task], cluster: Cluster, predictor: Predictor, rng: np.random.Generator
) -> dict[str, float]:
    """Return the energy, J, and average JCT, s, that the plan of a policy states; NaN for one that does not plan.

    `rng` has the state that the policy's run began with, so that the plan is the one that ran.
    """
    if not isinstance(policy, HeShare):
        return dict.fromkeys(PROMISED.values(), np.nan)
    plan = policy.planner.front(tasks, cluster, predictor, rng)[0].choose(policy.choice)
    return {"promised_j": plan.energy_j, "promised_s": plan.jct_s}


def worth(found: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return what each mechanism is worth, and by how much the runs of plans exceed what they promise, %.

    `found` has the rows of `assumptions.runs` of inference batch sizes, for which all mechanisms were removed with both
    predictors.

    Returns:
        One row each: batch_sizes, mechanism, metric, basis, value, low, high, n, provenance. Above zero is what the
        mechanism saves: by how much more Trade-off takes without it. The mechanism of a promise is empty.
    """
    rows = []
    for sizes, at_sizes in found.groupby("batch_sizes", sort=False):
        for metric, stated in PROMISED.items():
            for basis in BASES:
                column = stated if basis == "promised" else metric
                here = at_sizes[at_sizes["is_true"] == basis.endswith("never wrong")]
                wide = here.pivot_table(index="repetition", columns="title", values=column)
                for part in REMOVED:
                    size = change_pct(wide[without(part)], wide[WHOLE], rng).columns("value")
                    rows.append({"batch_sizes": sizes, "mechanism": part, "metric": metric, "basis": basis, **size})
            for is_true, here in at_sizes.groupby("is_true"):
                whole = here[here["title"] == WHOLE]
                size = change_pct(whole[metric], whole[stated], rng).columns("value")
                basis = "run over promised" + (", never wrong" if is_true else "")
                rows.append({"batch_sizes": sizes, "mechanism": "", "metric": metric, "basis": basis, **size})
    return pd.DataFrame(rows).assign(provenance="emulated")


def draw(axes: Any, table: pd.DataFrame) -> None:
    """Draw the worth over inference batch sizes: a row of panels a metric, a column a mechanism."""
    for row, (metric, words) in zip(axes, ((ENERGY, "Energy (%)"), (JCT, "Average JCT (%)")), strict=True):
        for ax, part in zip(row, REMOVED, strict=True):
            _panel(ax, table[(table["mechanism"] == part) & (table["metric"] == metric)])
        row[0].set_ylabel(words)
    for ax, part in zip(axes[0], REMOVED, strict=True):
        ax.set_title(part, fontsize=7.5)
    handles, _ = axes[0][0].get_legend_handles_labels()
    axes[0][0].figure.legend(handles, list(BASES), loc="outside upper center", ncols=len(BASES))


def _panel(ax: Axes, part: pd.DataFrame) -> None:
    sizes = list(part["batch_sizes"].unique())
    ax.axhline(0.0, color=GUIDE, linewidth=0.8)
    for index, (basis, name) in enumerate(BASES.items()):
        rows = part[part["basis"] == basis]
        at, how = np.arange(len(rows)) + 0.12 * (index - 1), series_style(name).line_arguments(markersize=3)
        ax.errorbar(
            at, rows["value"], yerr=interval_lengths(rows, "value", "low", "high"), elinewidth=0.6, label=basis, **how
        )
    ax.set_xticks(range(len(sizes)), [str(each).replace(" ", "·") for each in sizes])


def of_sharing(table: pd.DataFrame, sizes: str) -> dict[str, list[float]]:
    """Return what sharing saves in energy and JCT, %, at some inference batch sizes: a list for each basis."""
    rows = table[(table["mechanism"] == REMOVED[0]) & (table["batch_sizes"] == sizes)]
    names = dict(zip(BASES, ("promised", "delivered", "known"), strict=True))
    return {name: rows[rows["basis"] == basis]["value"].tolist() for basis, name in names.items()}
