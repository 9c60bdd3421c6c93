"""Jobs of a trace as tasks: selection, load, workloads, rows with errors; and a generated trace's statistics."""

from pathlib import Path

import numpy as np
import pytest

from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.trace_jobs import (
    generate_trace,
    offered_load,
    published_figures,
    scale_to_load,
    tasks_of_trace,
    usable_jobs,
    venus_tasks,
)
from heshare.shared.errors import InputError
from heshare.world.job_trace import JobTrace, TraceJob


def trace(*jobs):
    rows = tuple(TraceJob(index, submit_s, duration_s, gpus) for index, (submit_s, duration_s, gpus) in enumerate(jobs))
    return JobTrace(Path("x.csv"), rows, {})


def test_usable_jobs():
    """Jobs with too many GPUs are left out and counted, and the first one that is left arrives at 0."""
    found = usable_jobs(trace((5, 9, 64), (7, 9, 2), (9, 4, 9), (11, 4, 1)), most_gpus=8)
    assert [(job.id, job.submit_s, job.gpus) for job in found.jobs] == [(1, 0, 2), (3, 4, 1)]
    assert sum(found.left_out.values()) == 2
    assert str(found.report()).startswith("x.csv: 4 rows read, 2 kept, 2 left out")
    with pytest.raises(InputError, match="no job for a GPU"):
        usable_jobs(trace((0, 9, 64)), most_gpus=8)


def test_load():
    """A trace is scaled to an offered load."""
    some = trace((0, 30, 2), (20, 40, 1))
    assert offered_load(some, 10) == 0.5
    slower = scale_to_load(some, 10, 0.25)
    assert [job.submit_s for job in slower.jobs] == [0, 40]
    assert offered_load(slower, 10) == 0.25
    with pytest.raises(InputError, match="a load above 0"):
        scale_to_load(some, 10, 0.0)
    with pytest.raises(InputError, match="more than one moment"):
        scale_to_load(trace((0, 30, 2)), 10, 0.5)


def drawn(some, **options):
    return tasks_of_trace(some, rng=np.random.default_rng(0), **options)


def test_durations():
    """Tasks take as long alone as their jobs."""
    durations_s = (3.0, 60.0, 7_000.0, 172_800.0)
    tasks = drawn(
        trace(*[(index, d, 1 + index) for index, d in enumerate(durations_s)]), pool=training.workloads("gavel")
    )
    assert [(task.arrival_s, task.gpus) for task in tasks] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    for task, duration_s in zip(tasks, durations_s, strict=True):
        assert task.iterations * training.step(task.workload).step_s == pytest.approx(duration_s)


def test_epochs():
    """Tasks have workloads of which they complete an epoch."""
    jobs = trace(*[(0, duration_s, 1) for duration_s in (1.0, 30.0, 100.0, 5_000.0) for _ in range(40)])
    tasks = drawn(jobs, pool=training.workloads("gavel"))

    def epoch_s(workload):
        one = training.step(workload)
        return one.step_s * one.epoch_samples / workload.batch_size

    shortest_s = min(map(epoch_s, training.workloads("gavel")))
    for task, job in zip(tasks, jobs.jobs, strict=True):
        assert epoch_s(task.workload) <= max(job.duration_s, shortest_s)
        assert task.epochs == max(1, round(job.duration_s / epoch_s(task.workload)))
    assert len({task.workload for task in tasks[-40:]}) > 10


def test_published_statistics():
    """A generated trace has the published durations, numbers of GPUs, hours, weekdays, months and gaps."""
    jobs, published = generate_trace(rng=np.random.default_rng(3)).jobs, published_figures()
    submit_s, duration_s, gpus = (
        np.array([getattr(job, name) for job in jobs]) for name in ("submit_s", "duration_s", "gpus")
    )

    for name, sample in (("duration", duration_s), ("duration_one_gpu", duration_s[gpus == 1])):
        for pct, value in published.tables[name].items():
            assert np.percentile(sample, pct) == pytest.approx(value, rel=0.02, abs=1.0)
    # Between the published quantiles the mean is up to the way in which they are joined.
    assert duration_s.mean() == pytest.approx(published.single["duration_mean"], rel=0.06)

    counts, found = published.tables["gpus"], np.bincount(gpus)
    assert set(np.flatnonzero(found)) == set(counts)
    assert all(abs(found[int(size)] - count) <= 1 for size, count in counts.items())

    days = submit_s // 86_400
    for name, parts in (("hour", submit_s // 3600 % 24), ("weekday", (days + 2) % 7)):
        weights = np.array(list(published.tables[name].values()))
        np.testing.assert_allclose(np.bincount(parts.astype(int)) / len(submit_s), weights, atol=0.01)
    ends = np.cumsum([30, 31, 30, 31, 31, 30])
    months = np.bincount(np.searchsorted(ends, days, side="right"))
    np.testing.assert_allclose(months[:6], list(published.tables["month"].values()), rtol=0.08)

    gaps_s = np.diff(submit_s)
    assert (gaps_s >= 0).all()
    assert gaps_s.mean() == pytest.approx(published.single["gap_mean"], rel=0.01)
    # The few longest gaps make it, and what they become depends on the hours that they fall into.
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(published.single["gap_cv"], rel=0.15)
    for pct, value in published.tables["gap"].items():
        if 20 <= pct < 100:
            assert np.percentile(gaps_s, pct) == pytest.approx(value, rel=0.2)


def test_seed():
    """A generated trace is the same for a seed, and has at least one job."""
    assert generate_trace(50, rng=np.random.default_rng(1)) == generate_trace(50, rng=np.random.default_rng(1))
    assert generate_trace(50, rng=np.random.default_rng(1)) != generate_trace(50, rng=np.random.default_rng(2))
    assert generate_trace(1, rng=np.random.default_rng(0)).jobs[0].submit_s == 0.0
    with pytest.raises(InputError, match="at least one job"):
        generate_trace(0, rng=np.random.default_rng(0))


def test_bad_rows(tmp_path):
    """Bad rows of a trace, jobs of no GPU and those with too many are left out and counted."""
    path = tmp_path / "trace.csv"
    rows = [f"{number},{1 + number % 3},2020-09-01 00:{number:02d}:00,{60 + number}" for number in range(6)]
    rows += ["7,,2020-09-01 00:10:00,60", "8,64,2020-09-01 00:10:00,60", "9,0,2020-09-01 00:11:00,60"]
    path.write_text("\n".join(["job_id,gpu_num,submit_time,duration", *rows, ""]), encoding="utf-8")
    tasks, trace = venus_tasks(None, rng=np.random.default_rng(0), gpus=8, file=path)
    assert sorted(trace.left_out.values()) == [1, 1, 1]
    assert len(tasks) == 6
