"""Searches that end early: within a budget, cancelled, or by Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from support.brute_force import executed
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

import heshare as hs
from heshare.lab.plus.deadline import InterruptedSearchWarning, InterruptRequest
from heshare.lab.plus.heshare_plus import optimise
from heshare.lab.plus.search_settings import BatchChoices, SearchSettings
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import Front, non_dominated
from heshare.world.catalogue import gpus
from heshare.world.cluster import Cluster
from heshare.world.task import Task

TINY = SearchSettings(
    weights=3, coarse_weights=3, perturbations=1,
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


def test_a_budget_that_is_over_gives_the_front_of_the_first_round() -> None:
    tasks, cluster = mixed_tasks(8), Cluster.parse("1xT4,1xA100")
    front = within(tasks, cluster, 0.0)
    assert non_dominated(front.objectives).all()
    world = make_instance(tasks, cluster, KeepingToy())
    for plan in {id(plan): plan for plan in (front.en_opt, front.trade_off, front.jct_opt)}.values():
        assert sorted(plan.scheme) == sorted(task.id for task in tasks)  # the plan itself checks memory and clocks
        np.testing.assert_allclose((plan.energy_j, plan.jct_s), executed(plan, world, KeepingToy()), rtol=1e-9)


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
