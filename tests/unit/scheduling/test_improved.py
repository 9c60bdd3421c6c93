"""The improved scheduler's parts against brute force: batching of a queue, prices of moves, sums of fronts."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.errors import InputError
from heshare.scheduling.assembly import Archive
from heshare.scheduling.costs import BatchCosts, Freedom
from heshare.scheduling.departing import NOBODY
from heshare.scheduling.effort import Effort
from heshare.scheduling.improved import Search, optimise
from heshare.scheduling.improving import assign, cost_of, descend
from heshare.scheduling.menus import Menus, menus
from heshare.scheduling.merging import kept_of, merge, queue_front
from heshare.scheduling.objectives import instance
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.queueing import Queues, empty_queues, trial
from heshare.world.cluster import Cluster

SMALL = Effort(rounds=3, weights=5, coarse=3, kicks=1, freedom=Freedom(clocks=3, variants=2))


def world(n: int = 8, cluster: str = "2xT4,1xA100", seed: int = 0) -> tuple[BatchCosts, Menus]:
    toy = Toy(demand=DEMANDS)
    costs = BatchCosts(instance(mixed_tasks(n, seed), Cluster.parse(cluster), toy), toy, SMALL.freedom)
    costs.warm()
    return costs, menus(costs)


def compositions(n: int, width: int) -> list[list[int]]:
    if n == 0:
        return [[]]
    return [[size, *rest] for size in range(1, min(width, n) + 1) for rest in compositions(n - size, width)]


def every_way(costs: BatchCosts, kind: int, queue: list[int]) -> np.ndarray:
    """[energy, sum of JCTs] of all ways to cut and configure a queue, shape (many, 2)."""
    points = []
    for sizes in compositions(len(queue), costs.freedom.width):
        menu, at = [], 0
        for size in sizes:
            row = np.array([queue[at : at + size] + [NOBODY] * (costs.freedom.width - size)])
            o, behind = costs.options(kind, row), len(queue) - at - size
            menu.append(np.stack((o.energy_j, o.spent_s + behind * o.end_s), axis=1))
            at += size
        points += [np.sum(one, axis=0) for one in product(*menu)]
    return np.array(points)


def queued(costs: BatchCosts, m: Menus, scheme: np.ndarray, weight: float) -> Queues:
    queues = empty_queues(costs.world.kind_of, costs.world.n, costs.freedom.width)
    assign(m, queues, scheme, weight)
    return queues


def spt(costs: BatchCosts, scheme: np.ndarray, gpu: int) -> list[int]:
    order = costs.order[costs.world.kind_of[gpu]]
    return [task for task in order.tolist() if scheme[task] == gpu]


@pytest.mark.parametrize("weight", [0.01, 1.0, 100.0])
def test_a_queue_costs_what_its_best_batching_costs(weight: float) -> None:
    costs, m = world(5)
    scheme = np.zeros(5, dtype=np.int64)
    found = cost_of(queued(costs, m, scheme, weight), 0)
    points = every_way(costs, 0, spt(costs, scheme, 0))
    assert found == pytest.approx((points @ [1.0, weight]).min(), rel=1e-12)


def test_a_trial_costs_what_the_move_then_costs(rng: np.random.Generator) -> None:
    costs, m = world(9)
    for _ in range(30):
        scheme = rng.integers(3, size=9)
        queues = queued(costs, m, scheme, 1.0)
        gone, come = (int(task) for task in rng.permutation(9)[:2])
        gpu = int(scheme[gone])
        if scheme[come] == gpu:
            continue
        for out, into in ((gone, NOBODY), (NOBODY, come), (gone, come)):
            changed = scheme.copy()
            changed[[task for task in (out,) if task != NOBODY]] = (gpu + 1) % 3
            changed[[task for task in (into,) if task != NOBODY]] = gpu
            then = cost_of(queued(costs, m, changed, 1.0), gpu)
            assert trial(m, queues, gpu, out, into, 1.0) == pytest.approx(then, rel=1e-12)


def test_no_single_move_improves_a_local_optimum(rng: np.random.Generator) -> None:
    costs, m = world(8)
    queues = queued(costs, m, rng.integers(3, size=8), 1.0)
    targets = np.ascontiguousarray(np.broadcast_to(np.arange(3), (8, 3)))
    total = descend(m, queues, np.arange(8), targets, costs.fits, True, 100, 1.0)
    for task, gpu in product(range(8), range(3)):
        moved = queues.gpu.copy()
        moved[task] = gpu
        other = queued(costs, m, moved, 1.0)
        assert sum(cost_of(other, one) for one in range(3)) >= total * (1 - 1e-8)


def test_the_front_of_a_queue_is_exact() -> None:
    costs, _ = world(5, seed=2)
    scheme = np.full(5, 2)
    archive = Archive(costs, SMALL)
    archive.add([scheme])
    points = every_way(costs, 1, spt(costs, scheme, 2))
    expected = points[non_dominated(points)]
    np.testing.assert_allclose(archive.objectives() * [1, 5], expected[np.argsort(expected[:, 0])], rtol=1e-9)


def test_sums_of_fronts_are_exact(rng: np.random.Generator) -> None:
    fronts = [(np.sort(rng.random(6)), np.sort(rng.random(6))) for _ in range(3)]
    fronts = [(energy, time[::-1].copy()) for energy, time in fronts]
    sums = np.array([np.sum(some, axis=0) for some in product(*(np.stack(one, axis=1) for one in fronts))])
    expected = sums[non_dominated(sums)]
    energy_j, jct_s, chosen = merge(fronts, 1000)
    np.testing.assert_allclose(np.stack((energy_j, jct_s), axis=1), expected[np.argsort(expected[:, 0])])
    again = [sum(front[0][at] for front, at in zip(fronts, row, strict=True)) for row in chosen]
    np.testing.assert_allclose(again, energy_j)


def test_thinning_keeps_both_ends_and_the_hull(rng: np.random.Generator) -> None:
    x = np.sort(rng.random(400))
    y = (1 - np.sqrt(x)) + 0.02 * rng.random(400)
    kept = kept_of(x, y, 60)
    whole = kept_of(x, y, 1000)
    assert len(kept) <= 61
    assert {whole[0], whole[-1]} <= set(kept)
    for weight in (0.1, 1.0, 10.0):
        assert (x + weight * y)[kept].min() <= (x + weight * y).min() * 1.001
    assert np.all(np.diff(y[kept]) < 0)


def test_an_empty_cluster_of_queues_has_one_point() -> None:
    energy_j, jct_s, chosen = merge([], 10)
    assert (energy_j.tolist(), jct_s.tolist(), chosen.shape) == ([0.0], [0.0], (1, 0))


def test_the_readable_form_of_queue_front_agrees() -> None:
    """One task, two options: both are on the front."""
    front = queue_front(1, 2, np.array([0, 2, 2]), np.array([1.0, 2.0]), np.array([5.0, 3.0]), np.zeros(2), 8)
    assert front.energy_j.tolist() == [1.0, 2.0]
    assert [front.batches(point) for point in (0, 1)] == [[(1, 0)], [(1, 1)]]


def test_progress_can_stop_the_search() -> None:
    seen: list[int] = []
    optimise(
        mixed_tasks(6), Cluster.parse("1xT4,1xA100"), Toy(demand=DEMANDS), rng=np.random.default_rng(0), effort=SMALL,
        progress=lambda done, front: seen.append(done) or (len(front) > 0 and done < 2),
    )  # fmt: skip
    assert seen == [1, 2]


def test_a_budget_that_is_spent_still_gives_a_front() -> None:
    front = optimise(
        mixed_tasks(6), Cluster.parse("1xT4"), Toy(demand=DEMANDS), rng=np.random.default_rng(0), effort=SMALL,
        budget_s=0.0,
    )  # fmt: skip
    assert len(front) >= 2


def test_later_rounds_never_lose() -> None:
    costs, _ = world(12)
    fronts = []
    search = Search(costs, SMALL, np.random.default_rng(3))
    search.run(None, lambda done, front: fronts.append(front))
    for early, late in pairwise(fronts):
        joined = np.concatenate((late, early))
        assert non_dominated(joined)[len(late) :].sum() == 0


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"weights": 1}, {"labels": 2}])
def test_an_effort_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Effort(**wrong)  # type: ignore[arg-type]
