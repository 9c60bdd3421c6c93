"""Where the jobs of a sweep run: processes of this machine by joblib, or a Dask cluster, with the same results.

A Slurm or Kubernetes cluster is one of Dask's: `dask_jobqueue.SLURMCluster` and `dask_kubernetes.operator.KubeCluster`
are clusters that can be given here, as can a `distributed.Client` or a scheduler's address, `dask://host:8786`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from joblib import Parallel, delayed

from heshare.errors import InputError

Job = TypeVar("Job")
Found = TypeVar("Found")
LOCAL = "joblib"
"""The default engine: processes of this machine."""


def check(engine: Any) -> None:
    """Refuse what is no engine, before anything is computed.

    Raises:
        InputError: another text than `joblib`, `dask` or `dask://host:port`, an object that is neither a Dask client
            nor a cluster, or Dask is not installed.
    """
    if engine == LOCAL:
        return
    good = engine == "dask" or (isinstance(engine, str) and engine.startswith("dask://") and len(engine) > 7)
    if not (good or hasattr(engine, "submit") or hasattr(engine, "scheduler_address")):
        raise InputError(
            column="engine",
            found=repr(engine),
            expected="joblib, dask, dask://host:port, or a Dask client or cluster",
            action="Choose one.",
        )
    _distributed()


def each(
    function: Callable[[Job], Found], jobs: Sequence[Job], *, engine: Any = LOCAL, n_jobs: int = 1
) -> Iterator[tuple[int, Found]]:
    """Call a function on every job, in whatever order they end.

    Args:
        function: a function of a module, or one that cloudpickle knows how to send.
        jobs: its arguments.
        engine: `joblib`; `dask` for a Dask cluster of `n_jobs` processes on this machine that ends with the sweep;
            `dask://host:port` for a scheduler; or a `distributed.Client` or Dask cluster, which is left running.
        n_jobs: processes of `joblib` and `dask`.

    Yields:
        The index of a job and what its call returned.

    Raises:
        InputError: no such engine.
    """
    check(engine)
    if engine != LOCAL:
        yield from _by_dask(function, jobs, engine, n_jobs)
    elif n_jobs == 1 or len(jobs) == 1:
        for index, job in enumerate(jobs):
            yield index, function(job)
    else:
        # One job at a time for each process, so that whoever is stopped loses no more than it was at.
        pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
        with closing(pool(delayed(_numbered)(function, index, job) for index, job in enumerate(jobs))) as done:
            yield from done


def _numbered(function: Callable[[Job], Found], index: int, job: Job) -> tuple[int, Found]:
    return index, function(job)


def _by_dask(
    function: Callable[[Job], Found], jobs: Sequence[Job], engine: Any, n_jobs: int
) -> Iterator[tuple[int, Found]]:
    with client(engine, n_jobs) as dask:
        futures = {dask.submit(function, job, pure=False): index for index, job in enumerate(jobs)}
        try:
            for future in _distributed().as_completed(list(futures)):
                yield futures.pop(future), future.result()
                future.release()
        finally:
            dask.cancel(list(futures))


@contextmanager
def client(engine: Any, n_jobs: int = 1, *, column: str = "engine", timeout_s: float = 30.0) -> Iterator[Any]:
    """A Dask client of an engine; what was opened here is closed here, what was given stays open.

    Args:
        engine: as in `each`, but `joblib`.
        n_jobs: processes of `dask`.
        column: where the engine was named, for messages.
        timeout_s: how long a scheduler may take to answer, s.

    Raises:
        InputError: no scheduler answers, or Dask is not installed.
    """
    dask = _distributed(column)
    if hasattr(engine, "submit"):
        yield engine
    elif engine == "dask":
        options = {"n_workers": n_jobs, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
        with dask.LocalCluster(**options) as cluster, dask.Client(cluster) as ours:
            yield ours
    else:
        address = f"tcp://{engine.removeprefix('dask://')}" if isinstance(engine, str) else engine
        try:
            ours = dask.Client(address, timeout=timeout_s)
        except (OSError, ValueError) as error:
            raise InputError(
                column=column,
                found=f"{engine}, where no scheduler answers ({error})",
                expected="the address of a running Dask scheduler",
                action="Start one with `dask scheduler`, and workers with `dask worker ADDRESS`.",
            ) from None
        with ours:
            yield ours


def _distributed(column: str = "engine") -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError(
            column=column,
            found="no Dask on this machine",
            expected="the packages dask and distributed",
            action="Install them: pip install 'heshare[dask]', or '.[dask]' in a checkout.",
        ) from None
    return distributed
