"""Repetitions of a study as one tidy frame.

A tidy frame has one row for each repetition and system (or plan, or case): the column `repetition`, a column that
names the system, and a column for each measure.
"""

from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from heshare.lab.sweeps.random_streams import Repetition

REPETITION = "repetition"


def repeat(run_one: Callable[[Repetition], Iterable[Mapping[str, object]]], *, seed: int, seeds: int) -> pd.DataFrame:
    """Return the rows of `seeds` repetitions as one frame whose first column is `repetition`.

    `run_one` runs one repetition and returns its rows, one for each system.
    """
    repetitions = [Repetition(number, seed) for number in range(seeds)]
    return pd.DataFrame([{REPETITION: each.number, **row} for each in repetitions for row in run_one(each)])
