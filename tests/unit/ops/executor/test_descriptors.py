"""Runs that are short of file descriptors: the limit is raised, and jobs wait."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

import pytest
from support.job_rows import job, jobs_of

from heshare.ops.executor import job_process


@pytest.fixture(autouse=True)
def limit() -> Iterator[int]:
    """A soft limit below the hard one, as a login has it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, before[1]))
    yield 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_limit_is_raised(doubles, limit) -> None:
    """The limit of descriptors is raised for a run, not for its jobs, and restored at its end."""
    seen = []
    looking = doubles.once_started(lambda: seen.append(resource.getrlimit(resource.RLIMIT_NOFILE)))
    assert doubles.run(jobs_of(job("a", "sh", "-c", "ulimit -n; sleep 0.5"))).complete
    looking.join()
    ((soft, hard),) = seen
    assert soft == min(hard, 65536)
    assert (doubles.folder / "run" / "outputs" / "a.1.log").read_text() == f"{limit}\n"
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, hard)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_start_waits(doubles, monkeypatch, number) -> None:
    """A job that the system lacks resources to start waits; that is no failed attempt."""
    start, refused = job_process.start_unprivileged, [OSError(number, os.strerror(number))] * 3

    def refuse(*arguments, **options):
        if refused:
            raise refused.pop()
        return start(*arguments, **options)

    monkeypatch.setattr(job_process, "start_unprivileged", refuse)
    result = doubles.run(jobs_of(job("a", "true", count=2)))
    assert result.complete
    assert list(result.jobs["attempts"]) == [1, 1]
    assert sum("waits" in note and os.strerror(number) in note for note in result.notes) == 1
    assert doubles.traces() == []
