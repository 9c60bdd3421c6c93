"""Properties of plans and operators for random task sets, clusters and settings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import clusters, task_sets
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.policies.heshare import HeShare
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.scheduling import operators
from heshare.scheduling.objectives import make_instance, segment_costs
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.plan import check_queues
from heshare.scheduling.planner import plan, sched_only
from heshare.scheduling.settings import Settings
from heshare.world.catalogue import gpus
from heshare.world.cluster import Cluster
from heshare.world.task import Task

TINY = Settings(population=8, generations=4, solutions=4, clocks=3, mps_pcts=(20, 50, 100), front=12)
SETTINGS = st.sampled_from(
    [
        TINY,
        replace(TINY, piecewise=False, mps_goal="queue"),
        Settings.literal(population=8, generations=4, solutions=4, clocks=3, mps_pcts=(20, 50, 100)),
    ]
)
SEEDS = st.integers(0, 2**32 - 1)


def toy() -> Toy:
    return Toy(speed={name: 1.0 + index for index, name in enumerate(gpus())}, demand=DEMANDS)


@settings(max_examples=25)
@given(task_sets(), clusters(max_gpus=4), SETTINGS, SEEDS)
def test_plans(tasks: tuple[Task, ...], cluster: Cluster, chosen: Settings, seed: int) -> None:
    """Every plan runs each task once and fits."""
    front = plan(tasks, cluster, toy(), rng=np.random.default_rng(seed), settings=chosen)
    alone, together = (
        sched_only(tasks, cluster, toy(), rng=np.random.default_rng(seed), settings=chosen, all_at_once=all_at_once)
        for all_at_once in (False, True)
    )
    for planned in (*front.plans, alone, together):
        check_queues(cluster, tasks, planned.queues)  # each task once; memory, clients, clocks
    assert alone.scheme == together.scheme
    assert non_dominated(front.objectives).all()
    assert np.isfinite(front.objectives).all()
    assert (front.objectives > 0).all()


@settings(max_examples=25)
@given(task_sets(min_size=2), clusters(max_gpus=4), SEEDS)
def test_elitism_selection(tasks: tuple[Task, ...], cluster: Cluster, seed: int) -> None:
    """Elitism selection takes each GPU from a parent."""
    rng = np.random.default_rng(seed)
    instance = make_instance(tasks, cluster, toy())
    parents = operators.random_schemes(instance.fits, 20, rng)
    before = parents.copy()
    costs = segment_costs(parents, instance.solo)
    pairs = np.arange(20).reshape(2, 10)
    for kind in ("normalised", "totals"):
        child = operators.crossover(parents, costs, pairs, instance, Settings(segments=kind), rng)  # type: ignore[arg-type]
        assert ((child == parents[:10]) | (child == parents[10:])).all()
    np.testing.assert_array_equal(parents, before)


@settings(max_examples=25)
@given(task_sets(min_size=2), clusters(max_gpus=4), SEEDS)
def test_priority_mutation(tasks: tuple[Task, ...], cluster: Cluster, seed: int) -> None:
    """Priority mutation keeps its parents and puts tasks where they fit."""
    rng = np.random.default_rng(seed)
    instance = make_instance(tasks, cluster, toy())
    parents = operators.random_schemes(instance.fits, 6, rng)
    before = parents.copy()
    after = operators.mutate(parents, instance, Settings(mutation_rate=0.5, overload=1.0), rng)
    np.testing.assert_array_equal(parents, before)
    assert after.shape == (12, len(tasks))
    assert instance.fits[np.arange(len(tasks)), after].all()


SCRIPT = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from support.toy_predictor import DEMANDS, Toy, mixed_tasks
from heshare.scheduling.planner import plan
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
front = plan(mixed_tasks(30), Cluster.parse("2xT4,1xA100"), Toy(demand=DEMANDS), rng=np.random.default_rng(3),
             settings=Settings(generations=40))
print(hashlib.sha256(front.objectives.tobytes() + repr([chosen.queues for chosen in front.plans]).encode()).hexdigest())
"""


@pytest.mark.nightly
def test_other_process() -> None:
    """The planner returns the same bytes in every process."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("choice", ["trade-off", "en-opt", "jct-opt"])
def test_predicted_costs(choice: str) -> None:
    """With the device model as predictor a run costs what the plan predicts."""
    tasks, cluster = mixed_tasks(20), Cluster.parse("2xT4,1xV100,1xA100")
    settings = Settings(generations=20, solutions=10)
    expected = plan(tasks, cluster, DevicePredictor(), rng=np.random.default_rng(8), settings=settings)
    policy = HeShare(choice, settings)  # type: ignore[arg-type]
    done = run(tasks, cluster, policy, predictor=DevicePredictor(), rng=np.random.default_rng(8))
    chosen = expected.choose(choice)  # type: ignore[arg-type]
    assert done.energy_active_j == pytest.approx(chosen.energy_j, rel=1e-6)
    assert float(np.mean(done.jct_s)) == pytest.approx(chosen.jct_s, rel=1e-6)
