"""Generator of job traces like that of the cluster Venus of Helios, for use without the published file.

Helios: Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters, SC'21,
doi:10.1145/3458817.3476223. `generate_trace` draws jobs that meet the published figures in `data/helios_venus.csv`:
durations (separately those of jobs on one GPU), numbers of GPUs, hours, weekdays, months, and the gaps between
arrivals. The rest is assumed: beyond "one GPU or several", a job's duration depends neither on its number of GPUs nor
on its time of arrival.
"""

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heshare.shared import files
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError
from heshare.shared.inputs.csv_table import read_table
from heshare.world.helios_trace import JobTrace, TraceJob

START = datetime(2020, 4, 1, tzinfo=UTC)
"""The first day of the published half-year."""
GAP_POWER, TAIL_POWER = 0.9, 12.0
"""Powers that shape the gaps, chosen so that the quantiles and the coefficient of variation of all gaps are near the
published ones. The first shrinks all gaps before hours and weekdays stretch them, which adds to their spread. The other
one bends the interpolation from the last published quantile to the longest gap."""
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """The published figures of Venus.

    Attributes:
        single: values without a key: jobs, duration_mean (s), gap_mean (s), gap_cv, cluster_gpus.
        tables: values by key, ascending: quantiles (in %) of duration, duration_one_gpu and gap, s; counts by gpus and
            month; weights by hour and weekday (0 is Monday).
    """

    single: Mapping[str, float]
    tables: Mapping[str, Mapping[float, float]]

    def quantiles(self, name: str, shares: FloatArray, *, tail_power: float = 1.0) -> FloatArray:
        """Return values at shares from 0 to 1, interpolated between the published quantiles on a logarithmic scale.

        Args:
            name: one of `tables`.
            shares: shape (n,).
            tail_power: power of the way from the last published quantile but one to the last one.
        """
        published_pct, values = np.array(list(self.tables[name])), np.log1p(list(self.tables[name].values()))
        logs = np.interp(100 * shares, published_pct, values)
        in_tail = 100 * shares > published_pct[-2]
        way = (100 * shares[in_tail] - published_pct[-2]) / (published_pct[-1] - published_pct[-2])
        logs[in_tail] = values[-2] + (values[-1] - values[-2]) * way**tail_power
        return np.asarray(np.expm1(logs), dtype=np.float64)


@cache
def published_figures() -> PublishedFigures:
    """Return the figures of `data/helios_venus.csv`."""
    single: dict[str, float] = {}
    tables: dict[str, dict[float, float]] = {}
    for row in read_table(files.data("helios_venus.csv"), ("metric", "key", "value", "unit")):
        if row.cells["key"]:
            tables.setdefault(row.text("metric"), {})[row.number_of("key")] = row.number_of("value")
        else:
            single[row.text("metric")] = row.number_of("value")
    return PublishedFigures(single, tables)


def generate_trace(jobs: int | None = None, *, rng: np.random.Generator) -> JobTrace:
    """Return a trace that meets the published figures of Venus.

    Every distribution is cut into `jobs` equal parts and one value is drawn from each part. So a long trace meets every
    quantile closely, and heavy tails do not differ from seed to seed.

    Args:
        jobs: number of jobs, from the first of April on at the published rate; by default that of the half-year.
        rng: the source of randomness.

    Raises:
        InputError: less than one job.
    """
    n = int(published_figures().single["jobs"]) if jobs is None else jobs
    if n < 1:
        raise InputError(str(n), "at least one job", "Request more jobs.", column="jobs")
    gpus = _gpus(n, rng)
    durations_s, submits_s = _durations_s(gpus, rng), _submits_s(n, rng)
    return JobTrace(
        Path("generated"),
        tuple(map(TraceJob, range(n), submits_s.tolist(), durations_s.tolist(), gpus.tolist())),
        {},
        origin="generated to meet the published figures of Helios Venus",
    )


def _stratified(n: int, rng: np.random.Generator) -> FloatArray:
    """Return one share from each of n equal parts of [0, 1), in random order."""
    shares: FloatArray = (rng.permutation(n) + rng.random(n)) / n
    return shares


def _gpus(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the number of GPUs of n jobs."""
    table = published_figures().tables["gpus"]
    cumulative = np.cumsum(list(table.values()))
    sizes = np.array(list(table), dtype=np.int64)
    drawn: NDArray[np.int64] = sizes[np.searchsorted(cumulative, _stratified(n, rng) * cumulative[-1], side="right")]
    return drawn


def _durations_s(gpus: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
    """Return durations of all jobs, s; those of jobs on one GPU are picked from them to meet their own quantiles."""
    n, on_one_gpu = len(gpus), np.flatnonzero(gpus == 1)
    sorted_s = np.maximum(np.round(published_figures().quantiles("duration", np.sort(_stratified(n, rng)))), 1.0)
    targets_s = published_figures().quantiles("duration_one_gpu", np.sort(_stratified(len(on_one_gpu), rng)))
    # Pick for each target the nearest duration that is not taken yet. Both are sorted, so the places must rise by at
    # least one each, and must leave as many durations as there are targets still to come.
    count = np.arange(len(on_one_gpu))
    places = np.maximum.accumulate(np.searchsorted(sorted_s, targets_s) - count) + count
    places = np.minimum(places, n - len(on_one_gpu) + count)
    durations_s = np.empty(n)
    durations_s[rng.permutation(on_one_gpu)] = sorted_s[places]
    durations_s[rng.permutation(np.flatnonzero(gpus != 1))] = np.delete(sorted_s, places)
    return durations_s


def _submits_s(n: int, rng: np.random.Generator) -> FloatArray:
    """Return the submission times of n jobs, whole s: bursts by the published gaps, rates by the published weights."""
    gaps = published_figures().quantiles("gap", _stratified(n - 1, rng), tail_power=TAIL_POWER) ** GAP_POWER
    gaps *= published_figures().single["gap_mean"] * len(gaps) / max(gaps.sum(), 1.0)
    # Gaps are seconds at the mean rate; an hour of a higher rate holds more of them.
    at_mean_rate_s = np.concatenate([[0.0], np.cumsum(gaps)])
    hours_s = np.concatenate([[0.0], np.cumsum(_rates(float(at_mean_rate_s[-1]))) * _HOUR_S])
    submits_s: FloatArray = np.floor(np.interp(at_mean_rate_s, hours_s, np.arange(len(hours_s)) * _HOUR_S))
    return submits_s


def _rates(span_s: float) -> FloatArray:
    """Return the rate of arrivals in each hour, 1 on average, for as many hours as hold `span_s` at the mean rate."""
    tables = published_figures().tables
    months = tables["month"]
    days = {int(month): monthrange(START.year, int(month))[1] for month in months}
    jobs_a_day = sum(months.values()) / sum(days.values())
    hours = np.array(list(tables["hour"].values())) * 24
    rates: list[FloatArray] = []
    reached_s, day = 0.0, 0
    while reached_s <= span_s:
        date = START + timedelta(days=day % sum(days.values()))
        day_rate = (
            tables["weekday"][(START.weekday() + day) % 7] * 7 * months[date.month] / days[date.month] / jobs_a_day
        )
        rates.append(hours * day_rate)
        reached_s += 24 * _HOUR_S * day_rate
        day += 1
    return np.concatenate(rates)
