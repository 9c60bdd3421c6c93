"""Properties of every plan of the improved scheduler, for any task set and cluster."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import executed
from support.strategies import clusters, task_sets
from support.toy_predictor import DEMANDS, Toy

from heshare.lab.plus.batch_table import BatchChoices, BatchTable
from heshare.lab.plus.heshare_plus import FrontArchive, SearchSettings, optimise
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import Schemes
from heshare.scheduling.objectives import evaluate_schemes, make_instance
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.settings import Settings
from heshare.world.catalogue import gpus
from heshare.world.cluster import Cluster
from heshare.world.task import Task

TINY = SearchSettings(
    rounds=2,
    weights=3,
    coarse_weights=3,
    perturbations=1,
    choices=BatchChoices(clocks=3, mps_variants=2, mps_pcts=(50, 100)),
)
SEEDS = st.integers(0, 2**32 - 1)


def toy() -> Toy:
    return Toy(speed={name: 1.0 + index for index, name in enumerate(gpus())}, demand=DEMANDS)


@settings(max_examples=6)
@given(task_sets(), clusters(max_gpus=4), SEEDS)
def test_plans(tasks: tuple[Task, ...], cluster: Cluster, seed: int) -> None:
    """Every plan is valid and has the objectives of its batches."""
    front = optimise(tasks, cluster, toy(), rng=np.random.default_rng(seed), effort=TINY)
    assert non_dominated(front.objectives).all()
    world = make_instance(tasks, cluster, toy())
    for plan in {id(plan): plan for plan in (front.en_opt, front.trade_off, front.jct_opt)}.values():
        assert sorted(plan.scheme) == sorted(task.id for task in tasks)  # the plan itself checks memory and clocks
        np.testing.assert_allclose((plan.energy_j, plan.jct_s), executed(plan, world, toy()), rtol=1e-9)


@settings(max_examples=8)
@given(task_sets(max_size=5), clusters(max_gpus=3), SEEDS)
def test_stage_2(tasks: tuple[Task, ...], cluster: Cluster, seed: int) -> None:
    """No plan of stage 2 on the same assignment is better, with all its clocks and percentages."""
    rng = np.random.default_rng(seed)
    world = make_instance(tasks, cluster, toy())
    allowed = np.array([rng.choice(np.flatnonzero(row)) for row in world.fits])
    schemes = Schemes(allowed[None], evaluate_schemes(allowed[None], world), 1)
    _, stage_2 = configure(schemes, world, toy(), Settings(clocks=3, mps_pcts=(100,)))
    effort = SearchSettings(
        labels=1000, sum_points=1000, choices=BatchChoices(width=max(1, len(tasks)), mps_variants=1, clocks=3)
    )
    archive = FrontArchive(BatchTable(world, toy(), effort.choices), effort)
    archive.add([allowed])
    points = archive.objectives()
    for point in stage_2:
        assert (points <= point * (1 + 1e-9)).all(axis=1).any()
