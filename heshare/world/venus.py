"""Helios' cluster Venus (Hu et al., SC'21): a trace like the published one, for those without the file.

`generate` draws jobs that meet the published figures in `data/helios_venus.csv`: durations (those of jobs on one GPU
apart), numbers of GPUs, hours, weekdays and months, and the gaps between arrivals. What is not published is assumed:
beyond "one GPU or several", a job's duration does not depend on its number of GPUs, nor on when it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heshare import files
from heshare.errors import InputError
from heshare.world.table import Header, RowError, read_rows
from heshare.world.trace import Job, Trace

FloatArray = NDArray[np.float64]

START = datetime(2020, 4, 1, tzinfo=UTC)
"""The first day of the published half-year."""
CALM, TAIL = 0.9, 12.0
"""Powers that shape the gaps: all of them before hours and weekdays stretch them, which adds to their spread; and the
way from the last published quantile to the longest gap. Found so that quantiles and the coefficient of variation of
all gaps are near the published ones."""
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Published:
    """What is published of Venus.

    Attributes:
        single: values without a key: jobs, duration_mean (s), gap_mean (s), gap_cv, cluster_gpus.
        tables: values by key, ascending: quantiles (in %) of duration, duration_one_gpu and gap, s; counts by gpus and
            month; weights by hour and weekday (0 is Monday).
    """

    single: Mapping[str, float]
    tables: Mapping[str, Mapping[float, float]]

    def quantiles(self, what: str, shares: FloatArray, *, tail: float = 1.0) -> FloatArray:
        """Values at shares from 0 to 1, between the published quantiles on a logarithmic scale.

        Beyond the last quantile but one, the way to the last one is raised to the power `tail`.
        """
        at, values = np.array(list(self.tables[what])), np.log1p(list(self.tables[what].values()))
        found = np.interp(100 * shares, at, values)
        last = 100 * shares > at[-2]
        way = (100 * shares[last] - at[-2]) / (at[-1] - at[-2])
        found[last] = values[-2] + (values[-1] - values[-2]) * way**tail
        return np.asarray(np.expm1(found), dtype=np.float64)


@cache
def published() -> Published:
    """The figures of `data/helios_venus.csv`."""
    single: dict[str, float] = {}
    tables: dict[str, dict[float, float]] = {}
    for row in read_rows(files.data("helios_venus.csv")):
        if isinstance(row, RowError):
            raise row
        if isinstance(row, Header):
            row.need(("metric", "key", "value", "unit"))
        elif row.cells["key"]:
            tables.setdefault(row.text("metric"), {})[row.number_of("key")] = row.number_of("value")
        else:
            single[row.text("metric")] = row.number_of("value")
    return Published(single, tables)


def generate(jobs: int | None = None, *, rng: np.random.Generator) -> Trace:
    """A trace that meets the published figures of Venus.

    Values are drawn one from each of `jobs` equal parts of their distribution, so that a long trace meets every
    quantile closely, and heavy tails do not differ from seed to seed.

    Args:
        jobs: how many, from the first of April on at the published rate; by default as many as the half-year has.
        rng: the source of randomness.

    Raises:
        InputError: not at least one job.
    """
    n = int(published().single["jobs"]) if jobs is None else jobs
    if n < 1:
        raise InputError(column="jobs", found=str(n), expected="at least one job", action="Ask for more.")
    gpus = _gpus(n, rng)
    durations_s, submits_s = _durations_s(gpus, rng), _submits_s(n, rng)
    return Trace(
        Path("generated"),
        tuple(map(Job, range(n), submits_s.tolist(), durations_s.tolist(), gpus.tolist())),
        {},
        origin="generated to meet the published figures of Helios Venus",
    )


def _parts(n: int, rng: np.random.Generator) -> FloatArray:
    """One share from each of n equal parts of [0, 1), in random order."""
    shares: FloatArray = (rng.permutation(n) + rng.random(n)) / n
    return shares


def _gpus(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    table = published().tables["gpus"]
    upto = np.cumsum(list(table.values()))
    sizes = np.array(list(table), dtype=np.int64)
    drawn: NDArray[np.int64] = sizes[np.searchsorted(upto, _parts(n, rng) * upto[-1], side="right")]
    return drawn


def _durations_s(gpus: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
    """Durations of all jobs; those of jobs on one GPU are picked from them to meet their own quantiles."""
    n, one = len(gpus), np.flatnonzero(gpus == 1)
    every = np.maximum(np.round(published().quantiles("duration", np.sort(_parts(n, rng)))), 1.0)
    wanted = published().quantiles("duration_one_gpu", np.sort(_parts(len(one), rng)))
    # The nearest that is not taken yet: places rise by at least one, and leave as many as are still to come.
    count = np.arange(len(one))
    places = np.maximum.accumulate(np.searchsorted(every, wanted) - count) + count
    places = np.minimum(places, n - len(one) + count)
    durations_s = np.empty(n)
    durations_s[rng.permutation(one)] = every[places]
    durations_s[rng.permutation(np.flatnonzero(gpus != 1))] = np.delete(every, places)
    return durations_s


def _submits_s(n: int, rng: np.random.Generator) -> FloatArray:
    """When n jobs are submitted, whole s: bursts from the published gaps, busy hours from the published weights."""
    gaps = published().quantiles("gap", _parts(n - 1, rng), tail=TAIL) ** CALM
    gaps *= published().single["gap_mean"] * len(gaps) / max(gaps.sum(), 1.0)
    busy = np.concatenate([[0.0], np.cumsum(gaps)])
    passed_s = np.concatenate([[0.0], np.cumsum(_rates(float(busy[-1]))) * _HOUR_S])
    submits_s: FloatArray = np.floor(np.interp(busy, passed_s, np.arange(len(passed_s)) * _HOUR_S))
    return submits_s


def _rates(busy_s: float) -> FloatArray:
    """The rate of arrivals in each hour, 1 on average, for as many hours as bring `busy_s` seconds of the mean rate."""
    tables = published().tables
    months = tables["month"]
    days = {int(month): _days(int(month)) for month in months}
    a_day = sum(months.values()) / sum(days.values())
    hours = np.array(list(tables["hour"].values())) * 24
    rates: list[FloatArray] = []
    reached_s, day = 0.0, 0
    while reached_s <= busy_s:
        date = START + timedelta(days=day % sum(days.values()))
        of_day = tables["weekday"][(START.weekday() + day) % 7] * 7 * months[date.month] / days[date.month] / a_day
        rates.append(hours * of_day)
        reached_s += 24 * _HOUR_S * of_day
        day += 1
    return np.concatenate(rates)


def _days(month: int) -> int:
    first = START.replace(month=month)
    return (START.replace(month=month + 1) - first).days
