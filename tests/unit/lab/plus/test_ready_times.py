"""Ready times of GPUs count in both planners, and searches begin with the schemes that they are given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from support.policy_runs import run_emulated
from support.toy_predictor import DEMANDS, Toy, instance_from_tables, mixed_tasks

from heshare.lab.plus import heshare_plus
from heshare.lab.plus.batch_table import BatchChoices
from heshare.lab.plus.heshare_plus import SearchSettings
from heshare.policies.plan_release import FixedPlanPolicy
from heshare.prediction.oracle import DevicePredictor
from heshare.scheduling import planner
from heshare.scheduling.front import Front
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import evaluate_schemes, make_instance
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

CLUSTER = Cluster.parse("2xT4,1xA100")
READY_S = np.array([0.0, 400.0, 90.0])
QUICK = Settings(population=20, generations=30)
SMALL = SearchSettings(
    rounds=2, weights=5, coarse_weights=3, perturbations=1, choices=BatchChoices(clocks=3, mps_variants=2)
)


def test_evaluate_schemes() -> None:
    """Every task is delayed by the ready time of its GPU."""
    world = replace(
        instance_from_tables([[2.0, 3.0], [4.0, 5.0]], [[1.0, 1.0], [1.0, 1.0]], "1xT4,1xA100"),
        ready_s=np.array([10.0, 0.0]),
    )
    # Both on the first: 10 + 2 and 10 + 6. One each: 10 + 2 and 5. Both on the second: 3 and 8.
    values = evaluate_schemes(np.array([[0, 0], [0, 1], [1, 1]]), world)
    assert values[:, 1].tolist() == [14.0, 8.5, 5.5]


def fronts(ready_s: np.ndarray) -> Iterator[Front]:
    tasks, truth = mixed_tasks(8), DevicePredictor()
    rng = np.random.default_rng
    yield planner.plan(tasks, CLUSTER, truth, rng=rng(1), settings=QUICK, ready_s=ready_s)
    yield heshare_plus.optimise(tasks, CLUSTER, truth, rng=rng(1), effort=SMALL, ready_s=ready_s)


def test_jct_of_run() -> None:
    """Plans with ready times have the JCT of their run plus the ready times."""
    for front in fronts(READY_S):
        for plan in front.plans:
            done = run_emulated(plan.tasks, FixedPlanPolicy(plan), CLUSTER)
            late_s = sum(READY_S[gpu] * len(batch.tasks) for gpu, queue in enumerate(plan.queues) for batch in queue)
            assert plan.jct_s == pytest.approx(done.jct_s.mean() + late_s / len(plan.tasks), rel=1e-6)
            assert plan.energy_j == pytest.approx(done.gpu_energy_active_j.sum(), rel=1e-6)


def test_seeds() -> None:
    """The genetic search begins with its seeds."""
    tasks, toy = mixed_tasks(12), Toy(demand=DEMANDS)
    world = make_instance(tasks, CLUSTER, toy)
    good = search(world, Settings(), np.random.default_rng(0)).gpus
    short, fastest = replace(Settings(), generations=1), good[-10:]
    cold, warm = (search(world, short, np.random.default_rng(1), seeds=seeds) for seeds in (None, fastest))
    least_s = evaluate_schemes(fastest, world)[:, 1].min()
    assert warm.objectives[:, 1].min() <= least_s < cold.objectives[:, 1].min()
