"""Menus of batches: the compiled form against the readable one and against `Sharing`, and what is dropped."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.errors import InputError
from heshare.scheduling.costs import BatchCosts, Freedom, Options
from heshare.scheduling.departing import NOBODY, run_states
from heshare.scheduling.objectives import instance
from heshare.scheduling.sharing import Batches, Sharing
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload


def costs_of(tasks: tuple[Task, ...], cluster: str = "1xT4,1xA100", freedom: Freedom | None = None) -> BatchCosts:
    toy = Toy(demand=DEMANDS)
    return BatchCosts(instance(tasks, Cluster.parse(cluster), toy), toy, freedom or Freedom(clocks=4, limited=3))


def every_set(n: int, width: int) -> np.ndarray:
    sets = [some for size in range(1, width + 1) for some in combinations(range(n), size)]
    return np.array([(*some, *[NOBODY] * (width - len(some))) for some in sets])


def owners(options: Options) -> np.ndarray:
    return np.repeat(np.arange(len(options.begin) - 1), np.diff(options.begin))


@pytest.mark.parametrize("kind", [0, 1])
def test_an_option_costs_what_the_device_would_make_of_it(kind: int) -> None:
    costs = costs_of(mixed_tasks(7))
    sets = every_set(7, 3)[:, [1, 0, 2]]  # in any order, gaps inside are no set
    sets = np.array([sorted(row, key=lambda one: one == NOBODY) for row in sets.tolist()])
    options = costs.options(kind, sets)
    tasks = sets[owners(options)]
    pct = np.where(tasks == NOBODY, 100, options.mps_pct)
    run = Sharing(costs.world, Toy(demand=DEMANDS)).execute(
        Batches(np.full(len(tasks), kind), tasks, pct, options.sm_mhz), piecewise=True
    )
    np.testing.assert_allclose(options.energy_j, run.energy_j, rtol=1e-12)
    np.testing.assert_allclose(options.spent_s, run.time_s.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(options.end_s, run.end_s, rtol=1e-12)
    assert (options.mps_pct[tasks == NOBODY] == 0).all()


def test_a_menu_is_the_pareto_front_of_all_runs_of_the_readable_form() -> None:
    costs = costs_of(mixed_tasks(6, seed=3))
    sets = every_set(6, 3)[6:]
    options, table = costs.options(0, sets), costs.rates[0].tables
    for row, one in enumerate(sets.tolist()):
        members = sorted((task for task in one if task != NOBODY), key=lambda task: costs.workload[task])
        number = int(costs.rates[0].number(costs.workload[members][None])[0])
        variants = np.arange(table.begin[number], table.begin[number] + table.count[number])
        runs = []
        for clock in range(len(table.clocks_mhz)):
            work = np.tile(costs.iterations[members], (len(variants), 1))
            states = table.states[variants, : 2 ** len(members)]
            runs.append(np.stack(run_states(table.time_s[:, clock], table.power_w[:, clock], states, work), axis=1))
        points = np.concatenate(runs)
        beaten = [((points <= point).all(axis=1) & (points < point).any(axis=1)).any() for point in points]
        here = slice(options.begin[row], options.begin[row + 1])
        found = np.stack((options.energy_j[here], options.spent_s[here], options.end_s[here]), axis=1)
        assert {tuple(point) for point in found} == {tuple(point) for point in points[~np.array(beaten)]}  # to the bit
        assert len({tuple(point) for point in found}) == len(found)


def test_asking_early_or_late_gives_the_same_menus() -> None:
    early, late = costs_of(mixed_tasks(6)), costs_of(mixed_tasks(6))
    early.warm()
    sets = every_set(6, 3)
    rows = [late.options(1, sets[[row]]) for row in reversed(range(len(sets)))][::-1]
    whole = early.options(1, sets)
    for name in ("energy_j", "spent_s", "end_s", "sm_mhz", "mps_pct"):
        np.testing.assert_array_equal(getattr(whole, name), np.concatenate([getattr(row, name) for row in rows]))


def test_after_warming_nothing_is_asked() -> None:
    tasks, toy = mixed_tasks(6), Toy(demand=DEMANDS)
    costs = BatchCosts(instance(tasks, Cluster.parse("1xT4"), toy), toy, Freedom(clocks=3, limited=3))
    costs.warm()
    before = toy.calls
    costs.options(0, every_set(6, 3))
    assert toy.calls == before


def test_what_does_not_fit_has_no_options() -> None:
    tasks = tuple(Task(i, Workload("gpt2", 64), 10.0 + i) for i in range(3))
    costs = costs_of(tasks, "1xT4,1xA100")
    sets = every_set(3, 3)
    few = np.diff(costs.options(0, sets).begin) > 0
    np.testing.assert_array_equal(few, costs.room(0, sets))
    assert few.any()
    assert not few.all()


def test_percentages_come_in_the_order_of_asking() -> None:
    """A task that wants little of the card can be limited, whatever its place in the question."""
    tasks = (Task(0, Workload("mobilenet", 4), 100.0), Task(1, Workload("bert_large", 4), 100.0))
    costs = costs_of(tasks, "1xA100")
    one, other = costs.options(0, np.array([[0, 1]])), costs.options(0, np.array([[1, 0]]))
    np.testing.assert_array_equal(one.energy_j, other.energy_j)
    np.testing.assert_array_equal(one.mps_pct, other.mps_pct[:, ::-1])


def test_spt_order_is_that_of_the_instance() -> None:
    costs = costs_of(mixed_tasks(9), "2xT4,1xA100")
    np.testing.assert_array_equal(costs.order[0], costs.world.order[0])
    np.testing.assert_array_equal(costs.order[1], costs.world.order[2])


@pytest.mark.parametrize("wrong", [{"width": 0}, {"variants": 0}, {"coarse": (50,)}, {"mps_pcts": (100, 50)}])
def test_a_freedom_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Freedom(**wrong)  # type: ignore[arg-type]


def test_larger_sets_than_the_width_are_refused() -> None:
    with pytest.raises(InputError, match="at most 2"):
        costs_of(mixed_tasks(4), freedom=Freedom(width=2)).options(0, np.array([[0, 1, 2]]))
