"""Large task sets, searched in blocks: every plan is valid and has the objectives of its batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.heshare_plus import DecomposedSearch, assign_to_blocks, gpu_blocks, optimise, search_for
from heshare.lab.plus.search_settings import BatchChoices, SearchSettings
from heshare.lab.plus.weighted_search import WeightedSearch
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import Front, non_dominated
from heshare.world.cluster import Cluster

QUICK = SearchSettings(
    rounds=2,
    weights=4,
    coarse_weights=3,
    perturbations=0,
    undivided_tasks=150,
    choices=BatchChoices(clocks=3, mps_variants=2, mps_pcts=(50, 100)),
)
CLUSTER = "20xT4,10xV100,10xA100"


def front_of(seed: int) -> Front:
    return optimise(
        mixed_tasks(300), Cluster.parse(CLUSTER), Toy(demand=DEMANDS), rng=np.random.default_rng(seed), effort=QUICK
    )


@pytest.fixture(scope="module")
def front() -> Front:
    return front_of(3)


def test_plans_of_300_tasks_on_40_gpus_hold_every_task_once_within_memory_and_clients(front: Front) -> None:
    needs_mib = dict(enumerate(make_instance(mixed_tasks(300), Cluster.parse(CLUSTER), Toy(demand=DEMANDS)).needs_mib))
    ids = [task.id for task in mixed_tasks(300)]
    index = {task: number for number, task in enumerate(ids)}
    assert len(front.plans) >= 12
    assert non_dominated(front.objectives).all()
    for plan in front.plans:
        planned = [task for queue in plan.queues for batch in queue for task in batch.tasks]
        assert sorted(planned) == sorted(ids)
        for gpu, queue in zip(plan.cluster.gpus, plan.queues, strict=True):
            for batch in queue:
                assert sum(needs_mib[index[task]] for task in batch.tasks) <= gpu.memory_mib
                assert len(batch.tasks) <= gpu.mps_clients
                assert batch.sm_mhz in gpu.clocks_mhz


def test_objectives_of_divided_plans_are_the_sums_over_their_batches(front: Front) -> None:
    toy = Toy(demand=DEMANDS)
    costs = BatchCosts(make_instance(mixed_tasks(300), Cluster.parse(CLUSTER), toy), toy, QUICK.choices)
    index = {task.id: number for number, task in enumerate(mixed_tasks(300))}
    for plan in (front.plans[0], front.plans[len(front.plans) // 2], front.plans[-1]):
        energy_j = jct_s = 0.0
        for kind, queue in zip(costs.world.kind_of.tolist(), plan.queues, strict=True):
            behind = sum(len(batch.tasks) for batch in queue)
            for batch in queue:
                behind -= len(batch.tasks)
                options = costs.options(kind, np.array([[index[task] for task in batch.tasks]]))
                same = (options.sm_mhz == batch.sm_mhz) & (options.mps_pct == batch.mps_pct).all(axis=1)
                chosen = int(np.flatnonzero(same)[0])
                batch_j, sum_s, end_s = options.values[chosen]
                energy_j += batch_j
                jct_s += sum_s + behind * end_s
        assert plan.energy_j == pytest.approx(energy_j, rel=1e-9)
        assert plan.jct_s == pytest.approx(jct_s / 300, rel=1e-9)


def test_the_same_seed_gives_the_same_divided_front(front: Front) -> None:
    again = front_of(3)
    assert again.objectives.tobytes() == front.objectives.tobytes()
    assert [plan.queues for plan in again.plans] == [plan.queues for plan in front.plans]


def test_small_task_sets_and_small_clusters_are_searched_as_a_whole() -> None:
    for n, gpus, whole in ((150, "16xA100", True), (151, "15xA100", True), (151, "16xA100", False)):
        toy = Toy(demand=DEMANDS)
        costs = BatchCosts(make_instance(mixed_tasks(n), Cluster.parse(gpus), toy), toy, QUICK.choices)
        search = search_for(costs, QUICK, np.random.default_rng(0))
        assert isinstance(search, WeightedSearch if whole else DecomposedSearch)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 12), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_blocks_have_their_share_of_every_type_and_tasks_only_where_they_fit(
    seed: int, k: int, blocks: int, kinds: int
) -> None:
    rng = np.random.default_rng(seed)
    kind_of = np.concatenate((np.arange(kinds), rng.integers(kinds, size=k)))
    blocks = min(blocks, len(kind_of))
    block_of = gpu_blocks(kind_of, blocks)
    for kind in range(kinds):
        gpus = np.bincount(block_of[kind_of == kind], minlength=blocks)
        assert gpus.max() - gpus.min() <= 1
    fits = rng.random((90, kinds)) < 0.6
    fits[np.arange(90), rng.integers(kinds, size=90)] = True
    time_s = np.where(fits, rng.uniform(1, 100, size=fits.shape), np.inf)
    assigned = assign_to_blocks(time_s, fits, kind_of, block_of)
    for task in range(90):
        assert fits[task, kind_of[block_of == assigned[task]]].any()


def test_equal_blocks_get_equal_numbers_and_nearly_equal_work() -> None:
    rng = np.random.default_rng(1)
    time_s, kind_of = rng.uniform(1, 100, size=(400, 1)), np.zeros(40, dtype=np.int64)
    assigned = assign_to_blocks(time_s, np.ones((400, 1), dtype=bool), kind_of, gpu_blocks(kind_of, 5))
    assert np.bincount(assigned).tolist() == [80] * 5
    work_s = np.bincount(assigned, weights=time_s[:, 0])
    assert work_s.max() - work_s.min() < 2.0
