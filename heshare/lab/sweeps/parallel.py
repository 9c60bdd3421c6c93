"""Calls in parallel by joblib: in processes of this machine, or by the backend that the caller has chosen for joblib.

`joblib.parallel_config(backend="dask")` with a `distributed.Client` sends the calls to its workers: of a Slurm cluster
(`dask_jobqueue.SLURMCluster`), of Kubernetes, or of any machines that joined its scheduler.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def calls_elsewhere() -> bool:
    """Return whether joblib's backend is Dask's: calls may then be on other machines."""
    from joblib.parallel import get_active_backend  # only where it is used: the API imports this module

    return type(get_active_backend()[0]).__name__ == "DaskDistributedBackend"


def map_unordered(function: Callable[[Job], Result], jobs: Sequence[Job], *, n_jobs: int = 1) -> Iterator[Result]:
    """Call a function on every job; yield results in the order in which the calls end.

    The function is one of a module, or one that cloudpickle can send. `n_jobs` is for processes of this machine; Dask's
    workers take the jobs whatever it is.
    """
    elsewhere = calls_elsewhere()
    if not elsewhere and (n_jobs == 1 or len(jobs) == 1):
        yield from map(function, jobs)
        return
    from joblib import Parallel, delayed

    # One job at a time for each process: a sweep that is killed loses no more than the jobs under way.
    pool = Parallel(n_jobs=-1 if elsewhere else n_jobs, return_as="generator_unordered", batch_size=1)
    with closing(pool(delayed(function)(job) for job in jobs)) as results:
        yield from results
