"""Repetitions of a study as one tidy frame, and its medians and paired changes with intervals.

A tidy frame has one row for each repetition and system (or plan, or case): the column `repetition`, a column that
names the system (`title`, unless another is given), and a column for each measure. Systems are compared on the same
tasks, so every change is paired by repetition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import ConfidenceInterval, change_pct, median_interval

REPETITION, PROVENANCE = "repetition", "provenance"


def repeat(run_one: Callable[[Repetition], Iterable[Mapping[str, object]]], *, seed: int, seeds: int) -> pd.DataFrame:
    """Return the rows of `seeds` repetitions as one frame whose first column is `repetition`.

    `run_one` runs one repetition and returns its rows, one for each system.
    """
    repetitions = [Repetition(number, seed) for number in range(seeds)]
    return pd.DataFrame([{REPETITION: each.number, **row} for each in repetitions for row in run_one(each)])


def paired_change(frame: pd.DataFrame, ours: str, theirs: str, column: str, *, by: str = "title") -> ConfidenceInterval:
    """Return by how many percent a measure of the system `ours` differs from that of `theirs`, paired by repetition.

    `frame` has one row for each repetition and system, which the column `by` names.

    Raises:
        InputError: a repetition lacks one of the systems, or a value of `theirs` is not above zero.
    """
    wide = frame.pivot_table(index=REPETITION, columns=by, values=column)
    return change_pct(wide[ours], wide[theirs])


def median_intervals(frame: pd.DataFrame, by: Sequence[str], measures: Iterable[str]) -> pd.DataFrame:
    """Return the median of each measure with its 95 % interval, by the columns `by`.

    Columns are those of `by`, then metric, median, low, high, n, provenance.
    """
    names = list(measures)
    rows = [
        {**dict(zip(by, key, strict=True)), "metric": name, **median_interval(part[name]).columns("median")}
        for key, part in frame.groupby(list(by), sort=False)
        for name in names
    ]
    return pd.DataFrame(rows).assign(provenance="emulated")
