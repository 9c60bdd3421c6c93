"""Placements: the same draws and schemes for every system, and groups by sensitivity."""

from collections import Counter

import numpy as np
import pytest
from support.policy_runs import run_emulated

from heshare.lab.systems.shared.placement import HeSharePlacement, make_placement
from heshare.policies.planning_cache import PlanningCache
from heshare.policies.predictions import TaskPredictions
from heshare.policies.random_placement import RandomPlacement
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.scheduling.settings import Settings
from heshare.testing.policy_contract import placement
from heshare.testing.toy import ToyPredictor, toy_gpu
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

MIXED = Cluster.parse("2xT4,V100,A100")
MODELS = ("resnet50", "mobilenet", "bert_large", "vgg19", "densenet121", "gpt2")
TASKS = tuple(Task(index, Workload(MODELS[index % 6], 4), 1_000.0 * (1 + index)) for index in range(12))
QUICK = Settings(population=6, generations=5)


def ready(made, cluster=MIXED, seed=0, predictor=None):
    made.reset(cluster, predictor or DevicePredictor(), np.random.default_rng(seed))
    return made


def test_random_placement():
    """Random placement is the same for all policies."""
    names = ("random", "random:all-at-once", "morak", "mu-serve", "heshare:trade-off/random-placement")
    found = [placement(run_emulated(TASKS, name, MIXED, seed=3)) for name in names]
    assert all(one == found[0] for one in found)


def test_later_arrivals():
    """Random placement of a task does not change with later arrivals."""
    made = ready(RandomPlacement())
    first = made.place(TASKS[:5])
    assert {task: made.place(TASKS)[task] for task in first} == first


def test_heshare_placement():
    """HeShare's placement searches once and charges each policy."""
    moraks = [make("morak:heshare-placement"), make("mu-serve:heshare-placement")]
    cache = PlanningCache()
    for one in moraks:
        one.placement.settings = QUICK
        one.share_planning(cache)
    first, second = (run_emulated(TASKS, one, MIXED) for one in moraks)
    assert placement(first) == placement(second)
    assert moraks[0].reused.predictor_calls == 0 < moraks[1].reused.predictor_calls


def test_waiting_tasks():
    """HeShare's placement plans all waiting tasks again."""
    made = ready(HeSharePlacement(QUICK))
    assert set(made.place(TASKS[:4])) == {0, 1, 2, 3}
    assert set(made.place(TASKS[2:])) == set(range(2, 12))


def test_sensitivity():
    """The sensitivity is one for the toy GPU and less for memory-bound work."""
    assert TaskPredictions(ToyPredictor()).sensitivity(Workload("resnet18", 4), toy_gpu()) == pytest.approx(1.0)
    assert TaskPredictions(ToyPredictor()).sensitivity(Workload("resnet18", 4), toy_gpu(clocks_mhz=(1000,))) == 0.0
    beliefs, a100 = TaskPredictions(DevicePredictor()), gpu("A100")
    found = {model: beliefs.sensitivity(Workload(model, 8), a100) for model in MODELS}
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in found.values())
    assert len(Counter(round(value, 3) for value in found.values())) > 3


def test_earliest_placement():
    """Earliest placement takes the GPU of the earliest completion."""
    # One second an iteration on either card: 5 s and 3 s go apart, 4 s behind the 3 s, and 1 s behind the 5 s.
    made = ready(make_placement("earliest"), Cluster((toy_gpu(), toy_gpu())), predictor=ToyPredictor())
    tasks = [Task(index, Workload("resnet18", 4), work) for index, work in enumerate((5.0, 3.0, 4.0, 1.0))]
    assert made.place(tasks) == {0: 0, 1: 1, 2: 1, 3: 0}
    # At 100 s everything is done; the first card is taken again.
    assert made.place([Task(4, Workload("resnet18", 4), 1.0, 100.0)]) == {4: 0}
