"""Properties of every task set, trace, cluster and task file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import clusters, residents, task_sets, workloads

from heshare.world.arrivals import ARRIVALS, arrivals_s
from heshare.world.catalogue import resident
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.task_file import read_tasks, write_tasks
from heshare.world.task_set import FLOOR_S, LOADS, LONGEST_S, task_set
from heshare.world.workload import Resident, Workload


def alone_s(workload: Workload) -> float:
    return 0.002 * (1 + len(workload.model)) * workload.batch_size


@given(
    n=st.integers(1, 250),
    seed=st.integers(0, 2**32),
    load=st.sampled_from(LOADS),
    arrivals=st.sampled_from(ARRIVALS),
    interval_s=st.floats(0.1, 600),
    batch_sizes=st.lists(st.sampled_from([1, 4, 8, 16]), min_size=1, max_size=3),
)
def test_task_set(n: int, seed: int, load: str, arrivals: str, interval_s: float, batch_sizes: list[int]) -> None:
    """Task set is reproducible and within its ranges."""

    def draw() -> tuple[Task, ...]:
        return task_set(
            n,
            rng=np.random.default_rng(seed),
            time_alone_s=alone_s,
            load=load,
            arrivals=arrivals,
            interval_s=interval_s,
            batch_sizes=batch_sizes,
        )

    tasks = draw()
    assert tasks == draw()
    assert [task.id for task in tasks] == list(range(n))
    times_s = [task.arrival_s for task in tasks]
    assert times_s == sorted(times_s)
    durations_s = np.array([task.iterations * alone_s(task.workload) for task in tasks])
    assert (durations_s > FLOOR_S * (1 - 1e-12)).all()
    assert (durations_s < LONGEST_S).all()
    assert {task.workload.batch_size for task in tasks} <= set(batch_sizes)


@given(seed=st.integers(0, 2**32), interval_s=st.floats(1.0, 600.0))
def test_arrivals(seed: int, interval_s: float) -> None:
    """Exponential arrivals are a Poisson process, and MISO's are none."""
    for arrivals, variation in (("exponential", 1.0), ("miso", interval_s**-0.5)):
        times_s = arrivals_s(4000, rng=np.random.default_rng(seed), arrivals=arrivals, interval_s=interval_s)
        steps_s = np.diff(times_s)
        assert np.isclose(steps_s.mean(), interval_s, rtol=0.1)
        assert np.isclose(steps_s.std() / steps_s.mean(), variation, rtol=0.2)


@given(task_sets(online=True))
def test_task_file(tasks: tuple[Task, ...]) -> None:
    """Read tasks returns what write tasks wrote."""
    with tempfile.TemporaryDirectory() as folder:
        assert read_tasks(write_tasks(Path(folder) / "tasks.csv", tasks)) == tasks


@given(clusters())
def test_cluster(cluster: Cluster) -> None:
    """Cluster parse reads the text of a cluster."""
    again = Cluster.parse(str(cluster))
    assert sorted(card.name for card in again.gpus) == sorted(card.name for card in cluster.gpus)
    assert again.kinds == cluster.kinds
    assert len(set(cluster.labels)) == len(cluster)


@given(residents() | st.builds(Resident, workloads(), sharing=st.sampled_from(["time-slice", "mig-1g", "priority-3"])))
def test_resident(drawn: Resident) -> None:
    """Resident reads the text of a resident, whatever its way of sharing."""
    assert resident(str(drawn)) == drawn
