"""Runs that are short of file descriptors: the limit is raised, jobs wait, everything is given back all the same."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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


@contextmanager
def none_left() -> Iterator[None]:
    """Have this process use every descriptor that it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)


def test_the_limit_is_raised_for_the_run_and_not_for_its_jobs(doubles, limit) -> None:
    seen = []
    looking = doubles.once_started(lambda: seen.append(resource.getrlimit(resource.RLIMIT_NOFILE)))
    assert doubles.run(jobs_of(job("a", "sh", "-c", "ulimit -n; sleep 0.5"))).complete
    looking.join()
    ((soft, hard),) = seen
    assert soft == min(hard, 65536)
    assert (doubles.folder / "run" / "outputs" / "a.1.log").read_text() == f"{limit}\n"
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, hard)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM])
def test_a_job_for_which_nothing_is_left_waits_and_has_not_failed(doubles, monkeypatch, number) -> None:
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


def test_a_run_that_ends_without_descriptors_gives_everything_back(doubles) -> None:
    def end() -> None:
        with none_left():
            os.kill(os.getpid(), signal.SIGTERM)
            done.wait(20.0)

    done = threading.Event()
    ending = doubles.once_started(end)
    with pytest.raises(BaseException, match="SIGTERM"):
        doubles.run(jobs_of(job("a", "sleep", "60", count=2)), clocks=True)
    done.set()
    ending.join()
    assert doubles.traces() == []
