"""A generated trace of Venus has the published statistics."""

import numpy as np
import pytest

from heshare.lab.systems.shared.trace_jobs import generate_trace, published_figures
from heshare.shared.errors import InputError


@pytest.fixture(scope="module")
def half_year():
    return generate_trace(rng=np.random.default_rng(3))


@pytest.fixture(scope="module")
def columns(half_year):
    jobs = half_year.jobs
    return tuple(np.array([getattr(job, name) for job in jobs]) for name in ("submit_s", "duration_s", "gpus"))


def test_generate_trace_has_the_published_durations(columns):
    _, duration_s, gpus = columns
    for name, sample in (("duration", duration_s), ("duration_one_gpu", duration_s[gpus == 1])):
        for pct, value in published_figures().tables[name].items():
            assert np.percentile(sample, pct) == pytest.approx(value, rel=0.02, abs=1.0)
    # Between the published quantiles the mean is up to the way in which they are joined.
    assert duration_s.mean() == pytest.approx(published_figures().single["duration_mean"], rel=0.06)


def test_generate_trace_has_the_published_numbers_of_gpus(columns):
    counts = published_figures().tables["gpus"]
    found = np.bincount(columns[2])
    assert set(np.flatnonzero(found)) == set(counts)
    assert all(abs(found[int(size)] - count) <= 1 for size, count in counts.items())


def test_generate_trace_has_the_published_hours_weekdays_and_months(columns):
    submit_s = columns[0]
    days = submit_s // 86_400
    for name, found in (("hour", submit_s // 3600 % 24), ("weekday", (days + 2) % 7)):
        weights = np.array(list(published_figures().tables[name].values()))
        shares = np.bincount(found.astype(int)) / len(submit_s)
        np.testing.assert_allclose(shares, weights, atol=0.01)
    ends = np.cumsum([30, 31, 30, 31, 31, 30])
    counts = np.bincount(np.searchsorted(ends, days, side="right"))
    np.testing.assert_allclose(counts[:6], list(published_figures().tables["month"].values()), rtol=0.08)


def test_generate_trace_has_the_published_gaps_between_jobs(columns):
    gaps_s = np.diff(columns[0])
    assert (gaps_s >= 0).all()
    assert gaps_s.mean() == pytest.approx(published_figures().single["gap_mean"], rel=0.01)
    # The few longest gaps make it, and what they become depends on the hours that they fall into.
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(published_figures().single["gap_cv"], rel=0.15)
    for pct, value in published_figures().tables["gap"].items():
        if 20 <= pct < 100:
            assert np.percentile(gaps_s, pct) == pytest.approx(value, rel=0.2)


def test_generate_trace_is_the_same_for_a_seed_and_may_be_longer_than_the_half_year():
    assert generate_trace(50, rng=np.random.default_rng(1)) == generate_trace(50, rng=np.random.default_rng(1))
    assert generate_trace(50, rng=np.random.default_rng(1)) != generate_trace(50, rng=np.random.default_rng(2))
    year = generate_trace(250_000, rng=np.random.default_rng(1)).jobs
    assert year[-1].submit_s == pytest.approx(250_000 * 124.2, rel=0.05)


def test_generate_trace_refuses_less_than_one_job():
    assert generate_trace(1, rng=np.random.default_rng(0)).jobs[0].submit_s == 0.0
    with pytest.raises(InputError, match="at least one job"):
        generate_trace(0, rng=np.random.default_rng(0))
