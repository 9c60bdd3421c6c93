"""Searches with a budget: valid fronts for any budget, plans on demand, cancellation, tables that are kept."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import executed
from support.strategies import clusters, task_sets
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

import heshare as hs
from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.heshare_plus import optimise
from heshare.lab.plus.rates import Rates
from heshare.lab.plus.search_settings import BatchChoices, SearchSettings
from heshare.lab.plus.timed.deadline import Deadline, InterruptedSearchWarning, InterruptRequest
from heshare.lab.plus.timed.kept_tables import KeptTables, kept_tables
from heshare.lab.plus.timed.kind_instance import make_kind_instance
from heshare.lab.plus.timed.plans_on_demand import PlansOnDemand
from heshare.lab.plus.timed.quick_plans import quick_plans
from heshare.lab.plus.timed.timed_search import TimedSearch
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import Front, non_dominated
from heshare.world.catalogue import gpus
from heshare.world.cluster import Cluster
from heshare.world.task import Task

TINY = SearchSettings(
    weights=3, coarse_weights=3, perturbations=1, undivided_tasks=40,
    choices=BatchChoices(clocks=3, mps_variants=2, mps_pcts=(50, 100)),
)  # fmt: skip


class KeepingToy(Toy):
    """A toy predictor that keeps tables, as those of the package do."""

    def __init__(self) -> None:
        super().__init__(speed={name: 1.0 + index for index, name in enumerate(gpus())}, demand=DEMANDS)
        self.derived: dict[object, object] = {}


def within(tasks: tuple[Task, ...], cluster: str | Cluster, budget_s: float, toy: Toy | None = None) -> Front:
    toy = toy or KeepingToy()
    rng = np.random.default_rng(0)
    return optimise(tasks, Cluster.parse(cluster), toy, rng=rng, effort=TINY, budget_s=budget_s)


@settings(max_examples=15, deadline=None)
@given(task_sets(), clusters(max_gpus=4), st.sampled_from([0.0, 0.001, 0.02, 0.1]))
def test_every_budget_gives_valid_plans_with_the_objectives_of_their_batches(
    tasks: tuple[Task, ...], cluster: Cluster, budget_s: float
) -> None:
    front = within(tasks, cluster, budget_s)
    assert non_dominated(front.objectives).all()
    world = make_instance(tasks, cluster, KeepingToy())
    for plan in {id(plan): plan for plan in (front.en_opt, front.trade_off, front.jct_opt)}.values():
        assert sorted(plan.scheme) == sorted(task.id for task in tasks)  # the plan itself checks memory and clocks
        np.testing.assert_allclose((plan.energy_j, plan.jct_s), executed(plan, world, KeepingToy()), rtol=1e-9)


@pytest.mark.parametrize("budget_s", [0.001, 0.3, 1.5])
def test_a_budget_gives_valid_plans_of_a_cluster_in_blocks(budget_s: float) -> None:
    tasks, cluster = mixed_tasks(120), "10xT4,5xV100,5xA100"
    front = within(tasks, cluster, budget_s)
    assert len(front) >= 5
    assert non_dominated(front.objectives).all()
    world = make_instance(tasks, Cluster.parse(cluster), KeepingToy())
    for plan in (front[0], front.trade_off, front[-1]):
        assert sorted(plan.scheme) == list(range(120))
        np.testing.assert_allclose((plan.energy_j, plan.jct_s), executed(plan, world, KeepingToy()), rtol=1e-9)


def test_more_time_gives_no_worse_sums_along_the_front() -> None:
    toy = KeepingToy()
    quick, long = (within(mixed_tasks(12), "2xT4,1xA100", budget_s, toy).objectives for budget_s in (0.0, 0.5))
    for weight in np.geomspace(1e-2, 1e4, 7):
        assert (long @ [1.0, weight]).min() <= (quick @ [1.0, weight]).min() * (1 + 1e-9)


def test_ready_times_count_in_plans_of_an_exhausted_budget() -> None:
    tasks, ready_s = mixed_tasks(6), np.array([0.0, 1e6])
    front = optimise(
        tasks, Cluster.parse("2xT4"), KeepingToy(), rng=np.random.default_rng(0), effort=TINY, budget_s=0.0,
        ready_s=ready_s,
    )  # fmt: skip
    assert all(gpu == 0 for gpu in front.jct_opt.scheme.values())
    assert front.jct_opt.jct_s < 1e6


def test_kind_instances_have_the_values_of_instances() -> None:
    tasks, cluster = mixed_tasks(9), Cluster.parse("2xT4,1xA100,1xT4")
    by_kind, world = make_kind_instance(tasks, cluster, KeepingToy()), make_instance(tasks, cluster, KeepingToy())
    for name in ("time_s", "energy_j", "fits", "needs_mib", "kind_of", "order", "order_of_kind", "time_of_kind"):
        assert (getattr(by_kind, name) == getattr(world, name)).all()
    one, other = (each.part(np.array([1, 4]), np.array([2, 3])) for each in (by_kind, world))
    assert (one.cluster, one.tasks, one.time_s.tolist()) == (other.cluster, other.tasks, other.time_s.tolist())


def test_quick_plans_of_equal_gpus_at_one_clock_have_the_least_sum_of_times() -> None:
    choices = BatchChoices(clocks=1, mps_variants=1)
    tasks = mixed_tasks(7)
    costs = BatchCosts(make_instance(tasks, Cluster.parse("3xA100"), KeepingToy()), KeepingToy(), choices)
    plans = quick_plans(costs, np.zeros(3, dtype=np.int64), np.zeros(7, dtype=np.int64), np.array([1.0]))
    longest = np.sort(costs.time_s[:, 0])[::-1]
    assert plans.points[0, 0, 1] == pytest.approx((longest * (np.arange(7) // 3 + 1)).sum())


def test_plans_of_a_budget_are_built_when_they_are_looked_at() -> None:
    built: list[int] = []
    front = within(mixed_tasks(6), "2xT4", 0.0)
    plans = PlansOnDemand(len(front), lambda index: built.append(index) or front.plans[index])
    lazy = Front(plans, front.objectives)
    lazy.to_frame()
    assert (len(lazy), built) == (len(front), [])
    assert lazy.jct_opt is lazy.plans[-1] is lazy[-1]
    assert built == [len(front) - 1]
    assert lazy == front == Front(tuple(front), front.objectives)
    assert hash(plans) == hash(tuple(front))
    assert lazy[1:3].plans == tuple(front)[1:3]
    assert pickle.loads(pickle.dumps(lazy)) == front
    assert sorted(built) == list(range(len(front)))
    with pytest.raises(IndexError):
        plans[len(front)]


def test_a_cancelled_search_ends_with_the_front_so_far() -> None:
    for budget_s in (None, 3600.0):
        cancel, rounds = threading.Event(), []
        front = optimise(
            mixed_tasks(6), Cluster.parse("1xT4,1xA100"), KeepingToy(), rng=np.random.default_rng(0), cancel=cancel,
            effort=SearchSettings(rounds=10**6, choices=TINY.choices), budget_s=budget_s,
            progress=lambda done, _, rounds=rounds, cancel=cancel: rounds.append(done) or done < 3 or cancel.set(),
        )  # fmt: skip
        assert rounds[-1] <= 4
        assert len(front) >= 2


def test_ctrl_c_ends_a_search_with_the_front_so_far_and_a_warning() -> None:
    def press(done: int, _: object) -> None:
        if done == 2:
            os.kill(os.getpid(), signal.SIGINT)

    for budget_s in (None, 3600.0):
        effort = SearchSettings(rounds=10**6)
        with pytest.warns(InterruptedSearchWarning, match="the search so far"):
            front = hs.optimise(3, "1xT4", budget_s=budget_s, predictor=KeepingToy(), progress=press, effort=effort)
        assert len(front) >= 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_without_a_front_or_pressed_twice_raises() -> None:
    request = InterruptRequest()
    with request.handled(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with request.handled():
        assert not request.is_set()
        signal.raise_signal(signal.SIGINT)
        assert request.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_search_with_a_budget_predicts_nothing_that_is_in_kept_tables() -> None:
    toy, tasks, cluster = KeepingToy(), mixed_tasks(8), Cluster.parse("1xT4,1xA100")
    with kept_tables(make_instance(tasks, cluster, toy), toy, TINY.choices) as tables:
        for rates in tables:
            rates.fill_all()
    front = optimise(
        tasks,
        cluster,
        toy,
        rng=np.random.default_rng(0),
        effort=TINY,
        budget_s=600.0,
        progress=lambda done, _: done < 4,
    )
    assert front.predictor_rows == 2 * len({task.workload for task in tasks}), "the tasks alone, for the instance"
    (kept,) = [value for value in toy.derived.values() if isinstance(value, KeptTables)]
    assert pickle.loads(pickle.dumps(kept)).workloads == ()


def test_kept_tables_grow_with_the_workloads_of_other_task_sets() -> None:
    toy, choices = KeepingToy(), TINY.choices
    tasks = mixed_tasks(30)
    few = [task for task in tasks if task.workload.model in ("resnet50", "gpt2")]
    cluster = Cluster.parse("1xA100")
    with kept_tables(make_instance(few, cluster, toy), toy, choices) as (rates,):
        rates.fill_all()
    with kept_tables(make_instance(tasks, cluster, toy), toy, choices) as (grown,):
        costs = BatchCosts(make_instance(tasks, cluster, toy), toy, choices, [grown])
        calls = toy.calls
        index = [task.id for task in few[:3]]
        found = costs.options(0, np.array([index]))
        assert toy.calls == calls
        costs.fill_tables()
    fresh = BatchCosts(make_instance(tasks, cluster, toy), toy, choices)
    expected = fresh.options(0, np.array([index]))
    assert found.values.tolist() == expected.values.tolist()
    assert found.mps_pct.tolist() == expected.mps_pct.tolist()
    every = np.array([[a, b, c] for a, b, c in zip(range(28), range(1, 29), range(2, 30), strict=True)])
    assert costs.options(0, every).values.tolist() == fresh.options(0, every).values.tolist()


def test_tables_are_filled_as_far_as_the_deadline_allows() -> None:
    toy = KeepingToy()
    world = make_instance(mixed_tasks(12), Cluster.parse("1xA100"), toy)
    costs = BatchCosts(world, toy, TINY.choices)
    costs.deadline = Deadline(time.perf_counter() - 1.0)
    costs.fill(0, np.array([[0, 1, 2]]))
    assert not costs.filled
    assert len(costs.options(0, np.array([[0, 1, 2]])).values) == 0
    rates: Rates = costs.rates[0]
    assert rates.fill(np.array([[0, 1], [0, 2]]), Deadline(time.perf_counter() + 60.0))


def test_rounds_of_a_timed_search_do_not_dominate_later_ones() -> None:
    toy, fronts = KeepingToy(), []
    world = make_kind_instance(mixed_tasks(12), Cluster.parse("2xT4,1xA100"), toy)
    costs = BatchCosts(world, toy, TINY.choices)
    search = TimedSearch(
        costs, TINY, np.random.default_rng(0), np.zeros(3, dtype=np.int64), np.zeros(12, dtype=np.int64),
        until_s=time.perf_counter() + 600.0,
    )  # fmt: skip
    search.run(lambda done, front: fronts.append(front) or done < 4)
    assert len(fronts) == 4
    for early, late in pairwise(fronts):
        assert non_dominated(np.concatenate((late, early)))[len(late) :].sum() == 0
