"""Measures of Figs. 8 to 11: shares of tasks by GPU, ratios to one system, and growth of a lead."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from heshare.lab.sweeps.paired_changes import seed_means
from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.harness import TITLE
from heshare.running.result import Run

ALL = "all"
"""The group of all settings together."""


def share_on(gpu: str, run: Run) -> float:
    """Return the share of tasks that ran on GPUs of a type, %; NaN where the cluster has none."""
    kinds = [each.name for each in run.cluster.gpus]
    if gpu not in kinds:
        return math.nan

    placed = {interval.task for interval in run.record.intervals if kinds[interval.gpu] == gpu}
    return 100.0 * len(placed) / len(run.tasks)


def ratios(runs: pd.DataFrame, reference: str, metric: str, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return a metric of each system over that of `reference`, paired by repetition, in each group of the columns `by`.

    Where a group has several settings, the value of a repetition is the geometric mean over them.

    Returns:
        One row each: the columns `by`, repetition, title, ratio.
    """
    parts = []
    for key, part in runs.groupby(list(by), sort=False) if by else [((), runs)]:
        means = seed_means(part, metric)
        over = means.div(means[reference], axis=0).melt(value_name="ratio", ignore_index=False)
        names: dict[str, Any] = dict(zip(by, key, strict=True))
        parts.append(over.reset_index().assign(**names))
    return pd.concat(parts, ignore_index=True)


def with_paper(medians: pd.DataFrame, group: str, paper: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Return medians of ratios with the column `paper`: its ratio, by the column `group` and title, or NaN."""
    keys = zip(medians[group], medians[TITLE], strict=True)
    return medians.assign(paper=[paper.get(key, math.nan) for key in keys])


def implied(id: str, part: str, plan: float = 1.0) -> float:
    """Return the ratio of a system by the paper's reduction, if HeShare's plan has the ratio `plan`."""
    return plan / (1.0 + paper_claims()[id, part].value / 100.0)


def growth(more: pd.DataFrame, less: pd.DataFrame, ours: str, theirs: str, metric: str) -> ConfidenceInterval:
    """Return by how many percent a metric of `ours` over that of `theirs` differs between two sets of runs.

    Pairs are of one repetition. Below zero the lead of `ours` is larger in `more`.
    """
    pair = [ours, theirs]
    with_more, with_less = (seed_means(runs[runs[TITLE].isin(pair)], metric) for runs in (more, less))
    return change_pct(with_more[ours] / with_more[theirs], with_less[ours] / with_less[theirs])


def smallest_gain(*sizes: ConfidenceInterval) -> ConfidenceInterval:
    """Return the change that is the smallest reduction."""
    return max(sizes, key=lambda size: size.value)
