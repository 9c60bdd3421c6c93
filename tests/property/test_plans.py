"""Properties of plans and operators for random task sets, clusters and settings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

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


SCRIPT = """
import hashlib
import numpy as np
from support.toy_predictor import DEMANDS, Toy, mixed_tasks
from heshare.lab.plus.batch_table import BatchChoices
from heshare.lab.plus.heshare_plus import SearchSettings, optimise
from heshare.prediction.load import load_predictor
from heshare.scheduling.planner import plan
from heshare.scheduling.settings import Settings
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.workload import parse_resident

cluster, toy, rng = Cluster.parse("2xT4,1xA100"), Toy(demand=DEMANDS), np.random.default_rng
effort = SearchSettings(
    rounds=2,
    weights=3,
    coarse_weights=3,
    perturbations=1,
    choices=BatchChoices(clocks=3, mps_variants=2, mps_pcts=(50, 100)),
)
fronts = (
    plan(mixed_tasks(20), cluster, toy, rng=rng(3), settings=Settings(generations=20)),
    optimise(mixed_tasks(7), cluster, toy, rng=rng(5), effort=effort),
)
for front in fronts:
    found = front.objectives.tobytes() + repr([chosen.queues for chosen in front.plans]).encode()
    print(hashlib.sha256(found).hexdigest())

pair = (parse_resident("resnet50:4@50"), parse_resident("vgg19:8@50"))
answer = load_predictor().co_run([pair, pair[:1]], gpu("A100"), [None, 1200])
print(hashlib.sha256(answer.time_s.tobytes() + answer.power_w.tobytes()).hexdigest())
"""


@pytest.mark.nightly
def test_other_process() -> None:
    """Both planners and the predictor return the same bytes in every process, also in one that compiles nothing."""
    environments = ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2", "NUMBA_DISABLE_JIT": "1"})
    first, second = (
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env=os.environ | changed, capture_output=True, text=True, check=True
        ).stdout
        for changed in environments
    )
    assert first == second
    assert len(first.split()) == 3
