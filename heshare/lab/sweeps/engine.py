"""Engines that run the jobs of a sweep with the same results: joblib processes of this machine, or a Dask cluster.

Slurm and Kubernetes clusters are reached through Dask: a `dask_jobqueue.SLURMCluster` or a
`dask_kubernetes.operator.KubeCluster` is an engine, as is a `distributed.Client` or a scheduler's address,
`tls://host:8786`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from heshare.lab.sweeps import dask_security
from heshare.shared.errors import InputError
from heshare.shared.extras import require_extra

Job = TypeVar("Job")
Result = TypeVar("Result")
LOCAL = "joblib"
"""The default engine: processes of this machine."""


def check_engine(engine: Any) -> None:
    """Check an engine before anything is computed.

    Raises:
        InputError: another text than `joblib`, `dask` or an address, an address without TLS over a network, an object
            that is neither a Dask client nor a cluster, or Dask is not installed.
    """
    if engine == LOCAL:
        return
    if dask_security.is_address(engine):
        dask_security.check_address(engine, "engine")
    elif not (engine == "dask" or hasattr(engine, "submit") or hasattr(engine, "scheduler_address")):
        expected = f"joblib, dask, {dask_security.FORMS}, or a Dask client or cluster"
        raise InputError(repr(engine), expected, "Choose one.", column="engine")
    _distributed()


def map_unordered(
    function: Callable[[Job], Result], jobs: Sequence[Job], *, engine: Any = LOCAL, n_jobs: int = 1
) -> Iterator[Result]:
    """Call a function on every job; yield results in the order in which the calls end.

    Args:
        function: a function of a module, or one that cloudpickle can send.
        jobs: its arguments.
        engine: `joblib`; `dask` for a Dask cluster of `n_jobs` processes on this machine that ends with the sweep;
            `tls://host:port` for a scheduler, or `dask://host:port` for one of this machine; or a `distributed.Client`
            or Dask cluster, which is left running.
        n_jobs: processes of `joblib` and `dask`.

    Raises:
        InputError: no such engine.
    """
    check_engine(engine)
    if engine != LOCAL:
        yield from _map_by_dask(function, jobs, engine, n_jobs)
    elif n_jobs == 1 or len(jobs) == 1:
        yield from map(function, jobs)
    else:
        from joblib import Parallel, delayed  # only where it is used: the API imports this module

        # One job at a time for each process: a sweep that is killed loses no more than the jobs under way.
        pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
        with closing(pool(delayed(function)(job) for job in jobs)) as results:
            yield from results


def _map_by_dask(function: Callable[[Job], Result], jobs: Sequence[Job], engine: Any, n_jobs: int) -> Iterator[Result]:
    with dask_client(engine, n_jobs) as client:
        futures = {client.submit(function, job, pure=False) for job in jobs}
        try:
            for future in _distributed().as_completed(list(futures)):
                futures.remove(future)
                yield future.result()
                future.release()
        finally:
            client.cancel(list(futures))


@contextmanager
def dask_client(engine: Any, n_jobs: int = 1, *, column: str = "engine", timeout_s: float = 30.0) -> Iterator[Any]:
    """Yield a Dask client of an engine; a client or cluster that was passed in stays open, all else is closed.

    `engine` and `n_jobs` are as in `map_unordered`, without `joblib`. Messages name the engine by `column`. A scheduler
    must respond within `timeout_s`.

    Raises:
        InputError: no scheduler responds, or Dask is not installed.
    """
    distributed = _distributed(column)
    if hasattr(engine, "submit"):
        yield engine
    elif engine == "dask":
        with _local_cluster(distributed, n_jobs) as cluster, distributed.Client(cluster) as client:
            yield client
    else:
        address, security = engine, None
        if isinstance(engine, str):
            dask_security.check_address(engine, column)
            address, security = dask_security.client_arguments(engine, column)
        try:
            client = distributed.Client(address, timeout=timeout_s, security=security)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{engine}, where no scheduler responds ({error})",
                "the address of a running Dask scheduler",
                "Start one with `dask scheduler`, and workers with `dask worker ADDRESS`.",
                column=column,
            ) from None
        with client:
            yield client


@contextmanager
def _local_cluster(distributed: Any, n_jobs: int) -> Iterator[Any]:
    """Yield a cluster of this machine that no other user of it can connect to, without pages of its state."""
    import dask

    with (
        dask.config.set({"distributed.scheduler.http.routes": []}),
        distributed.LocalCluster(
            n_workers=n_jobs,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            security=dask_security.temporary_security(),
        ) as cluster,
    ):
        yield cluster


def _distributed(column: str = "engine") -> Any:
    # Dask is an extra: imported only where an engine needs it.
    require_extra("dask", column)
    import distributed

    return distributed
