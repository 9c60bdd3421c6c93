"""Jobs of a trace as tasks: selection for a cluster, scaling to a load, workloads; and a generator of such traces.

The generator replaces the published file of the cluster Venus of Helios: Hu et al., Characterization and Prediction of
Deep Learning Workloads in Large-Scale GPU Datacenters, SC'21, doi:10.1145/3458817.3476223. `generate_trace` draws jobs
that meet the published figures in `data/helios_venus.csv`: durations (separately those of jobs on one GPU), numbers of
GPUs, hours, weekdays, months, and the gaps between arrivals. The rest is assumed: beyond "one GPU or several", a job's
duration depends neither on its number of GPUs nor on its time of arrival.
"""

from calendar import monthrange
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heshare.lab.systems.shared import training
from heshare.shared import files
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import MOST_LOAD
from heshare.shared.inputs.csv_table import read_table
from heshare.world.job_trace import JobTrace, TraceJob, read_trace
from heshare.world.task import Task
from heshare.world.workload import Workload

DURATIONS_S = (60.0, 86_400.0)
"""The shortest and longest duration of `venus_trainings`, s; assumed. A small cluster would wait for a job of weeks."""


def usable_jobs(trace: JobTrace, *, most_gpus: int) -> JobTrace:
    """Return the jobs for at most `most_gpus` GPUs, with times from 0 on; the others are left out and counted."""
    kept = [job for job in trace.jobs if job.gpus <= most_gpus]
    if not kept:
        raise InputError("no job for a GPU", "at least one", "Take more jobs, or another trace.", file=trace.file)
    reason = f"more than the {most_gpus} GPUs of the cluster"
    left_out = Counter(trace.left_out) + Counter({reason: len(trace.jobs) - len(kept)})
    first_s = kept[0].submit_s
    jobs = tuple(replace(job, submit_s=job.submit_s - first_s) for job in kept)
    return replace(trace, jobs=jobs, left_out=dict(left_out))


def offered_load(trace: JobTrace, gpus: int, /) -> float:
    """Return the GPU time that the jobs request over that of `gpus` GPUs from the first submission to the last."""
    span_s = trace.jobs[-1].submit_s - trace.jobs[0].submit_s
    requested_s = sum(job.duration_s * job.gpus for job in trace.jobs)
    return requested_s / (gpus * span_s) if span_s > 0 else float("inf")


def scale_to_load(trace: JobTrace, gpus: int, load: float, /) -> JobTrace:
    """Return the trace with all gaps scaled by one factor, so that `offered_load` is `load`.

    The relative burstiness is unchanged; arrivals no longer follow the hours of the day.
    """
    offered = offered_load(trace, gpus)
    good, found = 0 < load <= MOST_LOAD and offered < float("inf"), f"a load of {load:g} for {len(trace.jobs)} jobs"
    expected = f"a load above 0, at most {MOST_LOAD:g}, and jobs at more than one moment"
    action = "Correct the load, or take more jobs."
    require("load", found, good, expected, action)
    first_s = trace.jobs[0].submit_s
    jobs = tuple(replace(job, submit_s=first_s + (job.submit_s - first_s) * offered / load) for job in trace.jobs)
    return replace(trace, jobs=jobs)


def tasks_of_trace(trace: JobTrace, *, rng: np.random.Generator, pool: Sequence[Workload]) -> tuple[Task, ...]:
    """Return each job as a training whose time alone, on the type of GPU of its record, is the job's duration.

    Its workload is drawn from those of the pool of which the job can complete at least one epoch. A job that is too
    short for any of them gets the workload with the shortest epoch. The epochs of a task are those of its workload.
    """
    steps_of = map(training.step, pool)
    epoch_s = np.array([own.step_s * own.epoch_samples / own.workload.batch_size for own in steps_of])
    order = np.argsort(epoch_s, kind="stable")
    fitting = np.searchsorted(epoch_s[order], [job.duration_s for job in trace.jobs], side="right")
    # Two numbers for each job, of which the second draws its workload: so that the tasks of a seed are stable.
    places = rng.random((len(trace.jobs), 2))[:, 1]
    tasks = []
    for index, (job, place) in enumerate(zip(trace.jobs, places, strict=True)):
        workload = pool[order[int(place * max(fitting[index], 1))]]
        steps = job.duration_s / training.step(workload).step_s
        epochs = training.epoch_count(workload, steps, job.gpus)
        tasks.append(Task(index, workload, steps, job.submit_s, gpus=job.gpus, epochs=epochs))
    return tuple(tasks)


def venus_tasks(
    n: int | None = 60,
    *,
    rng: np.random.Generator,
    gpus: int,
    load: float | None = None,
    file: str | Path | None = None,
) -> tuple[tuple[Task, ...], JobTrace]:
    """Return the first jobs of the cluster Venus of Helios as trainings of Gavel's record, and the trace of these jobs.

    Args:
        n: number of jobs, of those that the cluster can hold; None is all of the half-year.
        rng: the source of randomness.
        gpus: number of GPUs of the cluster. A job for more is left out and counted.
        load: the offered load, see `offered_load`; None: arrivals are unchanged.
        file: the published trace; without it, a trace is generated that meets its published figures.

    Returns:
        The tasks, and the trace: `origin` names its source, `report()` counts the rows that were left out.
    """
    # Some jobs are for more GPUs than a small cluster has; three times as many leave enough jobs on one GPU.
    trace = (
        read_trace(file, most_gpus=gpus) if file is not None else generate_trace(None if n is None else 3 * n, rng=rng)
    )
    trace = usable_jobs(trace, most_gpus=gpus)
    trace = replace(trace, jobs=trace.jobs[:n])
    if load is not None:
        trace = scale_to_load(trace, gpus, load)
    return tasks_of_trace(trace, rng=rng, pool=training.workloads("gavel")), trace


def venus_trainings(jobs: int, *, rng: np.random.Generator, gpus: int, load: float, record: str) -> tuple[Task, ...]:
    """Return trainings that arrive as in a generated trace of Venus, for the studies of systems that train.

    Of `jobs` drawn, those outside `DURATIONS_S`, or for more than a node, are excluded. `load` is the offered load,
    `record` that of the training workloads.
    """
    trace = usable_jobs(generate_trace(jobs, rng=rng), most_gpus=training.NODE_GPUS)
    kept = [job for job in trace.jobs if DURATIONS_S[0] <= job.duration_s <= DURATIONS_S[1]]
    trace = scale_to_load(replace(trace, jobs=tuple(kept)), gpus, load)
    return tasks_of_trace(trace, rng=rng, pool=training.workloads(record))


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
        """Return values at shares from 0 to 1, (n,), interpolated between published quantiles on a logarithmic scale.

        `tail_power` is the exponent of the interpolation between the last two published quantiles.
        """
        published_pct, values = np.array(list(self.tables[name])), np.log1p(list(self.tables[name].values()))
        logs = np.interp(100 * shares, published_pct, values)
        in_tail = 100 * shares > published_pct[-2]
        way = (100 * shares[in_tail] - published_pct[-2]) / (published_pct[-1] - published_pct[-2])
        logs[in_tail] = values[-2] + (values[-1] - values[-2]) * way**tail_power
        return np.asarray(np.expm1(logs), dtype=np.float64)


@cache
def published_figures() -> PublishedFigures:
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

    Every distribution is cut into `jobs` equal parts and one value is drawn from each part. A long trace therefore
    meets every quantile closely, and heavy tails differ little between seeds. The jobs are from the first of April on
    at the published rate; by default they are those of the half-year.
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
    # Select for each target the nearest unused duration. Both are sorted, so the indices must rise by at least one
    # each, and must leave as many durations as there are remaining targets.
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
    # Gaps are seconds at the mean rate; an hour of a higher rate contains more of them.
    at_mean_rate_s = np.concatenate([[0.0], np.cumsum(gaps)])
    hours_s = np.concatenate([[0.0], np.cumsum(_rates(float(at_mean_rate_s[-1]))) * _HOUR_S])
    submits_s: FloatArray = np.floor(np.interp(at_mean_rate_s, hours_s, np.arange(len(hours_s)) * _HOUR_S))
    return submits_s


def _rates(span_s: float) -> FloatArray:
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
