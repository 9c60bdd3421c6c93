"""Hypothesis strategies for the nouns: workloads, residents, tasks, clusters, trace rows."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from heshare.world.catalogue import gpus, paper_models
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
MPS_PCTS = tuple(range(10, 101, 10))


def gpu_types() -> SearchStrategy[Gpu]:
    """A GPU of the catalogue."""
    return st.sampled_from(list(gpus().values()))


def workloads(batch_sizes: tuple[int, ...] = BATCH_SIZES) -> SearchStrategy[Workload]:
    """A model of Table IV with an inference batch size."""
    return st.builds(Workload, st.sampled_from(list(paper_models())), st.sampled_from(batch_sizes))


def residents(mps_pcts: tuple[int, ...] = MPS_PCTS) -> SearchStrategy[Resident]:
    """A workload under an MPS percentage."""
    return st.builds(Resident, workloads(), st.sampled_from(mps_pcts))


def any_residents(largest_batch_size: int, precisions: Sequence[str]) -> SearchStrategy[Resident]:
    """A model of Table IV at any inference batch size, precision, engine and MPS percentage."""
    engines = st.sampled_from(["eager", "tensorrt"])
    sizes, names = st.integers(1, largest_batch_size), st.sampled_from(sorted(paper_models()))
    return st.builds(
        Resident, st.builds(Workload, names, sizes, st.sampled_from(precisions), engines), st.integers(1, 100)
    )


def clusters(max_gpus: int = 6) -> SearchStrategy[Cluster]:
    """One to `max_gpus` GPUs in any order."""
    return st.builds(Cluster, st.lists(gpu_types(), min_size=1, max_size=max_gpus).map(tuple))


@st.composite
def task_sets(
    draw: DrawFn, min_size: int = 1, max_size: int = 12, batch_sizes: tuple[int, ...] = (4, 8), online: bool = False
) -> tuple[Task, ...]:
    """Tasks 0 .. n-1 by arrival; all at zero unless `online`."""
    size = draw(st.integers(min_size, max_size))
    arrivals = sorted(draw(st.lists(st.integers(0, 3600), min_size=size, max_size=size))) if online else [0] * size
    iterations = st.floats(1, 1e6, allow_nan=False)
    return tuple(
        Task(i, draw(workloads(batch_sizes)), draw(iterations), float(arrival)) for i, arrival in enumerate(arrivals)
    )
