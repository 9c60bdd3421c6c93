"""The algorithms of Fig. 7 on HeShare's ground: same encoding, same budget, same archive, memory kept."""

from __future__ import annotations

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks, table

from heshare.errors import InputError
from heshare.scheduling import rivals
from heshare.scheduling.genetic import search
from heshare.scheduling.objectives import Instance, instance, objectives
from heshare.scheduling.pareto import hypervolume, non_dominated
from heshare.scheduling.planner import configure
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

TOY = Toy(demand=DEMANDS)


@pytest.fixture(scope="module")
def world() -> Instance:
    return instance(mixed_tasks(20), Cluster.parse("2xT4,1xV100,1xA100"), TOY)


@pytest.mark.parametrize("name", rivals.TITLES)
def test_a_rival_keeps_the_budget_and_its_front(name: str, world: Instance) -> None:
    one, two = rivals.stages(name, world, rivals.FAIR, np.random.default_rng(1), (500, 1500))
    assert (one.schemes.evaluations, two.schemes.evaluations) == (500, 1500)
    assert 0 < one.seconds < two.seconds
    for stage in (one, two):
        assert non_dominated(stage.schemes.objectives).all()
        np.testing.assert_array_equal(objectives(stage.schemes.gpus, world), stage.schemes.objectives)
    level = objectives(np.zeros((1, 20), dtype=np.int64), world)[0] * 2
    assert hypervolume(two.schemes.objectives, level) > hypervolume(one.schemes.objectives, level)


@pytest.mark.parametrize("name", rivals.TITLES)
def test_same_seed_same_bytes(name: str, world: Instance) -> None:
    # An algorithm of pymoo must not remember the run before, as SPEA2 does with its default survival.
    one, same, other = (
        rivals.search(name, world, rivals.FAIR, np.random.default_rng(seed), evaluations=1000) for seed in (1, 1, 2)
    )
    assert one.gpus.tobytes() == same.gpus.tobytes()
    assert one.gpus.tobytes() != other.gpus.tobytes()


@pytest.mark.parametrize("name", rivals.TITLES)
def test_memory_is_never_exceeded(name: str, rng: np.random.Generator) -> None:
    fits = np.ones((12, 4), dtype=bool)
    fits[:6, :3] = False
    cost = rng.uniform(1, 9, (2, 12, 2))[:, :, [0, 0, 0, 1]]
    world = table(cost[0], cost[1], "3xT4,1xA100", fits)
    found = rivals.search(name, world, rivals.FAIR, rng, evaluations=500, rate="1/n")
    assert fits[np.arange(12), found.gpus].all()


def test_the_second_stage_takes_what_a_rival_finds(world: Instance) -> None:
    found = rivals.search("nsga2", world, rivals.FAIR, np.random.default_rng(1), evaluations=500)
    plans, values = configure(found, world, TOY, Settings(solutions=5))
    assert len(plans) == len(values) >= 3
    assert (values.min(axis=0) <= found.objectives.min(axis=0)).all()


def test_rank_initialisation_can_be_given_to_a_rival(world: Instance) -> None:
    first = [
        rivals.search("nsga2", world, Settings(initialisation=how), np.random.default_rng(1), evaluations=50)  # type: ignore[arg-type]
        for how in ("rank", "random")
    ]
    assert first[0].objectives[:, 0].min() < first[1].objectives[:, 0].min()


def test_our_stages_are_those_of_the_search(world: Instance) -> None:
    settings = Settings(generations=30)
    stages = rivals.own_stages(world, settings, np.random.default_rng(3), (500, 1500))
    whole = search(world, settings, np.random.default_rng(3))
    assert [stage.schemes.evaluations for stage in stages] == [500, 1500]
    assert stages[-1].schemes.gpus.tobytes() == whole.gpus.tobytes()


def test_the_scale_orders_the_ends(world: Instance) -> None:
    best, worst = rivals.scale(world)
    assert (best < worst).all()
    assert best[0] == pytest.approx(world.best_j.sum())


def test_an_unknown_rival_is_refused(world: Instance) -> None:
    with pytest.raises(InputError, match="nsga2"):
        rivals.search("nsga9", world, rivals.FAIR, np.random.default_rng(1))
