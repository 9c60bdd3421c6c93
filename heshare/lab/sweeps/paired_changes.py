"""Changes of one system against another, paired by repetition: the median over repetitions with its interval."""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from heshare.lab.sweeps.grid import AXES
from heshare.lab.sweeps.statistics import change_pct
from heshare.lab.sweeps.study_runs import REPETITION
from heshare.shared import display
from heshare.shared.errors import require, unknown

ENERGY, JCT = "energy_active_j", "avg_jct_s"
_POLICY, _TITLE = "policy", "title"


def changes(
    table: pd.DataFrame,
    ours: str | Iterable[str],
    theirs: str | Iterable[str],
    metrics: str | Iterable[str] = (ENERGY, JCT),
    *,
    by: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return by how many percent a policy differs from another, paired by repetition; -30 is a reduction of 30 %.

    Args:
        table: of `hs.compare` or `heshare.lab.sweeps.sweep`: a row for each policy and repetition of each scenario.
        ours: names or titles of policies.
        theirs: those that each is compared with.
        metrics: columns of the table, with values above zero.
        by: columns by which the changes are separate; by default all that tell scenarios apart. Where a repetition has
            several scenarios in one group, its value is the geometric mean over them.

    Returns:
        One row for each group, pair and metric: the columns `by`, ours, theirs, metric, change_pct, low_pct, high_pct,
        n and level_pct. n counts the repetitions that both have. Low and high are two order statistics, whose
        interval has the level `level_pct` or more: 95 % from 6 repetitions on, 75 % for the range of 3.

    Raises:
        InputError: an unknown policy or column, no repetition that both have, or a metric that is not above zero.

    Example:
        >>> import heshare as hs
        >>> table = hs.compare(4, "1xT4,1xA100", ["srtf", "fifo"], seeds=6)
        >>> found = hs.changes(table, "srtf", "fifo", "avg_jct_s")
        >>> found[["ours", "theirs", "n", "level_pct"]].round(1).to_dict("records")
        [{'ours': 'srtf', 'theirs': 'fifo', 'n': 6, 'level_pct': 96.9}]
    """
    good = isinstance(table, pd.DataFrame) and {REPETITION, _POLICY, _TITLE} <= set(table.columns)
    expected = "a table of hs.compare, with the columns repetition, policy and title"
    require("table", display.found(table), good, expected, "Pass what hs.compare returned.")
    own, others, measures = _listed("ours", ours), _listed("theirs", theirs), _listed("metrics", metrics)
    pairs = [(one, other) for one, other in product(own, others) if one != other]
    require("ours", display.found(ours), bool(pairs), "a policy other than theirs", "Name two policies.")

    named = {*own, *others}
    column = _POLICY if named <= set(table[_POLICY]) else _TITLE
    for name in sorted(named - set(table[column])):
        raise unknown(name, [*table[_TITLE].unique(), *table[_POLICY].unique()], column="policy")

    varied = [axis for axis in AXES if axis in table and len(table[axis].unique()) > 1]
    groups = varied if by is None else _listed("by", by)
    for name in (*measures, *groups):
        if name not in table:
            raise unknown(name, map(str, table.columns), column="table")
    chosen = table[table[column].isin(named)]
    for name in measures:
        positive = is_numeric_dtype(chosen[name]) and bool((chosen[name] > 0).all())
        require("metrics", name, positive, "a column of numbers above zero", "Choose another one.")

    twice = bool(table.duplicated([*varied, REPETITION, column]).any())
    expected, action = "each policy once in a repetition of a scenario", "Pass the table of one comparison."
    require("table", "a run twice", not twice, expected, action)

    parts = [changes_of(_common(table, pair, column), [pair], measures, groups, column) for pair in pairs]
    return pd.concat(parts, ignore_index=True)


def changes_of(
    runs: pd.DataFrame, pairs: Sequence[tuple[str, str]], metrics: Sequence[str], by: Sequence[str], system: str
) -> pd.DataFrame:
    """Return the changes of pairs of systems, which the column `system` names; see `changes`."""
    groups = runs.groupby(list(by), sort=False) if by else [((), runs)]
    rows = []

    for key, part in groups:
        names = dict(zip(by, key, strict=True))
        means = {metric: seed_means(part, metric, system) for metric in metrics}
        for (one, other), metric in product(pairs, metrics):
            size = change_pct(means[metric][one], means[metric][other])
            pair = {"ours": one, "theirs": other, "metric": metric}
            level = {"level_pct": 100 * size.level}
            rows.append({**names, **pair, **size.columns("change_pct", "low_pct", "high_pct"), **level})

    return pd.DataFrame(rows)


def _common(runs: pd.DataFrame, systems: tuple[str, str], system: str) -> pd.DataFrame:
    """Return the runs of two systems in the scenarios and repetitions that both have; an interrupted table lacks some.

    Raises:
        InputError: there is none.
    """
    both = runs[runs[system].isin(systems)]
    axes = [axis for axis in (*AXES, REPETITION) if axis in both]
    counts = both.groupby(axes, dropna=False, sort=False)[system].transform("nunique")
    common = both[counts == 2]
    found = f"no repetition of both {systems[0]} and {systems[1]}"
    require("table", found, not common.empty, "runs of both with the same seed", "Let the comparison finish.")
    return common


def seed_means(runs: pd.DataFrame, metric: str, system: str = _TITLE) -> pd.DataFrame:
    """Return the geometric mean of a metric over scenarios: a row for each repetition, a column for each system."""
    logarithms = runs[[REPETITION, system]].assign(logarithm=np.log(runs[metric].to_numpy(float)))
    means = logarithms.pivot_table(index=REPETITION, columns=system, values="logarithm")
    return means.apply(np.exp)


def _listed(argument: str, names: str | Iterable[str]) -> list[str]:
    listed = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else []
    good = (bool(listed) and all(isinstance(name, str) for name in listed)) or (argument == "by" and not listed)
    require(argument, display.found(names), good, "a name or a list of names", "Correct the argument.")
    return listed
