"""What holds for every plan, whatever the task set, the cluster and the settings."""

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
from strategies import clusters, task_sets
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.policies.heshare import HeShare, Planner
from heshare.prediction.truth import DevicePredictor
from heshare.running.run import run
from heshare.scheduling import operators
from heshare.scheduling.objectives import instance, segments
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.plan import check_queues
from heshare.scheduling.planner import plan, random_scheme, sched_only
from heshare.scheduling.settings import Settings
from heshare.world.catalogue import gpus
from heshare.world.cluster import Cluster
from heshare.world.task import Task

TINY = Settings(population=8, generations=4, solutions=4, clocks=3, mps_pcts=(20, 50, 100), front=12)
READINGS = st.sampled_from(
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
@given(task_sets(), clusters(max_gpus=4), READINGS, SEEDS)
def test_every_plan_runs_each_task_once_and_fits(
    tasks: tuple[Task, ...], cluster: Cluster, reading: Settings, seed: int
) -> None:
    front = plan(tasks, cluster, toy(), rng=np.random.default_rng(seed), settings=reading)
    for one in (*front.plans, sched_only(tasks, cluster, toy(), rng=np.random.default_rng(seed), settings=reading)):
        check_queues(cluster, tasks, one.queues)  # each task once; memory, clients, clocks
    assert non_dominated(front.objectives).all()
    assert np.isfinite(front.objectives).all()
    assert (front.objectives > 0).all()


@settings(max_examples=25)
@given(task_sets(min_size=2), clusters(max_gpus=4), SEEDS)
def test_a_child_has_every_task_on_a_gpu_of_one_of_its_parents(
    tasks: tuple[Task, ...], cluster: Cluster, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    world = instance(tasks, cluster, toy())
    both = operators.anywhere(world.fits, 20, rng)
    before = both.copy()
    for kind in ("normalised", "totals"):
        scores = operators.segment_scores(both, segments(both, world), world, Settings(segments=kind))  # type: ignore[arg-type]
        child = operators.elitism_selection((both[:10], both[10:]), (scores[:10], scores[10:]), world, rng)
        assert ((child == both[:10]) | (child == both[10:])).all()
    np.testing.assert_array_equal(both, before)


@settings(max_examples=25)
@given(task_sets(min_size=2), clusters(max_gpus=4), SEEDS)
def test_mutation_leaves_its_parents_alone_and_every_task_where_it_fits(
    tasks: tuple[Task, ...], cluster: Cluster, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    world = instance(tasks, cluster, toy())
    parents = operators.anywhere(world.fits, 6, rng)
    before = parents.copy()
    use = operators.resource_use(world)
    after = operators.priority_mutation(parents, use, world, Settings(mutation_rate=0.5, overload=1.0), rng)
    np.testing.assert_array_equal(parents, before)
    assert after.shape == (12, len(tasks))
    assert world.fits[np.arange(len(tasks)), after].all()


@given(task_sets(), clusters(max_gpus=4), SEEDS)
def test_random_schemes_fit(tasks: tuple[Task, ...], cluster: Cluster, seed: int) -> None:
    scheme = random_scheme(tasks, cluster, np.random.default_rng(seed))
    assert instance(tasks, cluster, toy()).fits[np.arange(len(tasks)), scheme].all()


SCRIPT = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from toy_predictor import DEMANDS, Toy, mixed_tasks
from heshare.scheduling.planner import plan
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster
front = plan(mixed_tasks(30), Cluster.parse("2xT4,1xA100"), Toy(demand=DEMANDS), rng=np.random.default_rng(3),
             settings=Settings(generations=40))
print(hashlib.sha256(front.objectives.tobytes() + repr([one.queues for one in front.plans]).encode()).hexdigest())
"""


def test_same_seed_same_bytes_in_any_process() -> None:
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
def test_with_a_true_predictor_a_plan_costs_what_it_says(choice: str) -> None:
    tasks, cluster = mixed_tasks(20), Cluster.parse("2xT4,1xV100,1xA100")
    settings = Settings(generations=20, solutions=10)
    expected = plan(tasks, cluster, DevicePredictor(), rng=np.random.default_rng(8), settings=settings)
    policy = HeShare(choice, planner=Planner(settings))  # type: ignore[arg-type]
    done = run(tasks, cluster, policy, predictor=DevicePredictor(), rng=np.random.default_rng(8))
    chosen = {"trade-off": expected.trade_off, "en-opt": expected.en_opt, "jct-opt": expected.jct_opt}[choice]
    assert done.energy_active_j == pytest.approx(chosen.energy_j, rel=1e-6)
    assert float(np.mean(done.jct_s)) == pytest.approx(chosen.jct_s, rel=1e-6)
