"""GPUs that begin late: what their tasks wait counts in both planners, and earlier schemes are where searches begin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks, table

from heshare.policies.release import FollowsPlan
from heshare.prediction.truth import DevicePredictor
from heshare.running.run import run
from heshare.scheduling import improved, planner
from heshare.scheduling.costs import BatchCosts, Freedom
from heshare.scheduling.effort import Effort
from heshare.scheduling.genetic import search
from heshare.scheduling.improving import assign, cost_of, descend, waits
from heshare.scheduling.menus import menus
from heshare.scheduling.objectives import instance, objectives
from heshare.scheduling.pareto import Front
from heshare.scheduling.queueing import empty_queues
from heshare.scheduling.searching import Search
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

CLUSTER = Cluster.parse("2xT4,1xA100")
READY_S = np.array([0.0, 400.0, 90.0])
QUICK = Settings(population=20, generations=30)
SMALL = Effort(rounds=2, weights=5, coarse=3, kicks=1, freedom=Freedom(clocks=3, variants=2))


def test_every_task_of_a_gpu_waits_until_it_begins() -> None:
    world = replace(
        table([[2.0, 3.0], [4.0, 5.0]], [[1.0, 1.0], [1.0, 1.0]], "1xT4,1xA100"), ready_s=np.array([10.0, 0.0])
    )
    # Both on the first: 10 + 2 and 10 + 6. One each: 10 + 2 and 5. Both on the second: 3 and 8.
    found = objectives(np.array([[0, 0], [0, 1], [1, 1]]), world)
    assert found[:, 1].tolist() == [14.0, 8.5, 5.5]


@pytest.mark.parametrize("reading", [Settings(), Settings(overload=0.7, mutation_rate=0.4), Settings(targets="static")])
def test_both_forms_find_the_same_front(reading: Settings) -> None:
    world = instance(mixed_tasks(20), CLUSTER, Toy(demand=DEMANDS), READY_S)
    settings = replace(reading, generations=12, population=21)
    one, other = (search(world, settings, np.random.default_rng(5), compiled=form) for form in (True, False))
    assert one.gpus.tobytes() == other.gpus.tobytes()
    assert one.objectives.tobytes() == other.objectives.tobytes()


def test_no_single_move_improves_a_local_optimum(rng: np.random.Generator) -> None:
    toy = Toy(demand=DEMANDS)
    costs = BatchCosts(instance(mixed_tasks(8), CLUSTER, toy, READY_S), toy, SMALL.freedom)
    costs.warm()
    m = menus(costs)

    def cost(scheme: np.ndarray) -> float:
        queues = empty_queues(costs.world.kind_of, 8, costs.freedom.width, costs.world.begin_s)
        assign(m, queues, scheme, 1.0)
        late = sum(waits(queues, gpu, 1.0) for gpu in range(3))
        assert late == pytest.approx(READY_S[scheme].sum())
        return late + sum(cost_of(queues, gpu) for gpu in range(3))

    queues = empty_queues(costs.world.kind_of, 8, costs.freedom.width, costs.world.begin_s)
    assign(m, queues, rng.integers(3, size=8), 1.0)
    targets = np.ascontiguousarray(np.broadcast_to(np.arange(3), (8, 3)))
    total = descend(m, queues, np.arange(8), targets, costs.fits, True, 100, 1.0)
    assert cost(queues.gpu) == pytest.approx(total)
    for task, gpu in product(range(8), range(3)):
        moved = queues.gpu.copy()
        moved[task] = gpu
        assert cost(moved) >= total * (1 - 1e-8)


def fronts(ready_s: np.ndarray) -> Iterator[Front]:
    tasks, truth = mixed_tasks(8), DevicePredictor()
    rng = np.random.default_rng
    yield planner.plan(tasks, CLUSTER, truth, rng=rng(1), settings=QUICK, ready_s=ready_s)
    yield improved.optimise(tasks, CLUSTER, truth, rng=rng(1), effort=SMALL, ready_s=ready_s)


def test_a_plans_jct_is_that_of_its_run_and_what_its_tasks_waited_before() -> None:
    for front in fronts(READY_S):
        for plan in front.plans:
            done = run(
                plan.tasks, CLUSTER, FollowsPlan(plan), predictor=DevicePredictor(), rng=np.random.default_rng(0)
            )
            late_s = sum(READY_S[gpu] * len(batch.tasks) for gpu, queue in enumerate(plan.queues) for batch in queue)
            assert plan.jct_s == pytest.approx(done.jct_s.mean() + late_s / len(plan.tasks), rel=1e-6)
            assert plan.energy_j == pytest.approx(done.gpu_energy_active_j.sum(), rel=1e-6)


def test_a_gpu_that_begins_far_ahead_gets_no_task_of_the_fastest_plan() -> None:
    for front in fronts(np.array([0.0, 0.0, 1e7])):
        assert not front.jct_opt.queues[2]
        assert front.jct_opt.queues[0]


def test_searches_begin_with_the_schemes_that_they_are_given() -> None:
    tasks, toy = mixed_tasks(12), Toy(demand=DEMANDS)
    world = instance(tasks, CLUSTER, toy)
    good = search(world, Settings(), np.random.default_rng(0)).gpus
    one, quick = replace(Settings(), generations=1), good[-10:]
    cold, warm = (search(world, one, np.random.default_rng(1), seeds=seeds) for seeds in (None, quick))
    least_s = objectives(quick, world)[:, 1].min()
    assert warm.objectives[:, 1].min() <= least_s < cold.objectives[:, 1].min()


def test_the_local_search_improves_the_assignments_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    toy, begun = Toy(demand=DEMANDS), []
    costs = BatchCosts(instance(mixed_tasks(8), CLUSTER, toy), toy, SMALL.freedom)
    climb = Search._local_optimum
    monkeypatch.setattr(
        Search,
        "_local_optimum",
        lambda self, scheme, weight, **more: begun.append(scheme.copy()) or climb(self, scheme, weight, **more),
    )
    given = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    improved.search_for(costs, SMALL, np.random.default_rng(0), [given]).run()
    assert sum(np.array_equal(scheme, given) for scheme in begun) == SMALL.weights
