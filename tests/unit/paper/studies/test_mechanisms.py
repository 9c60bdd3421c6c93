"""Trade-off without each mechanism lacks it, what plans state is what the run plans, and the other En-opt."""

from __future__ import annotations

import pytest

from heshare.lab.sweeps.random_streams import POLICY, Repetition
from heshare.paper import harness
from heshare.paper.harness import ENERGY, JCT, NEVER_WRONG, Setting
from heshare.paper.studies import mechanisms
from heshare.policies.cached_planner import CachedPlanner
from heshare.prediction.oracle import DevicePredictor
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

SETTING = Setting(cluster="1xT4,1xA100", tasks=6, predictor=NEVER_WRONG)
REMOVED = {
    "sharing": "heshare:trade-off/no-batches(generations=10)",
    "order": "heshare.paper.studies.mechanisms:without_order",
}
PLANS = {"Trade-off": "heshare:trade-off(generations=10)", **REMOVED}


def test_without_order_tasks_run_as_they_are_numbered() -> None:
    streams = Repetition(0, 0)
    policy = mechanisms.without_order()
    cluster = Cluster.parse("1xT4,1xA100")
    front, _ = policy.planner.front(streams.task_set(6), cluster, DevicePredictor(), streams.rng(POLICY))
    for queue in front.choose("trade-off").queues:
        order = [task for batch in queue for task in batch.tasks]
        assert order == sorted(order)


def test_a_plan_takes_what_it_states_if_the_predictor_is_never_wrong() -> None:
    runs = harness.run(SETTING, PLANS, seeds=2)
    stated = mechanisms.stated([SETTING], PLANS, seeds=2)
    assert stated["stated_j"].to_numpy() == pytest.approx(runs[ENERGY].to_numpy())
    assert stated["stated_s"].to_numpy() == pytest.approx(runs[JCT].to_numpy())

    table = mechanisms.worth(runs, stated, REMOVED)
    delivered, promised = (table[table["basis"] == basis]["value"].to_numpy() for basis in ("delivered", "promised"))
    assert delivered == pytest.approx(promised)
    assert table["mechanism"].unique().tolist() == list(REMOVED)
    assert mechanisms.excess(runs, stated)["value"].to_numpy() == pytest.approx(0.0, abs=1e-6)


def test_the_other_en_opt_is_the_fastest_plan_of_nearly_the_least_energy() -> None:
    streams = Repetition(0, 0)
    tasks = streams.task_set(12)
    cluster = Cluster.parse("1xT4,1xA100")
    planner = CachedPlanner(Settings(generations=10))
    front, _ = planner.front(tasks, cluster, DevicePredictor(), streams.rng(POLICY))
    least = front.en_opt

    for share in (0.0, 0.02, 100.0):
        policy = mechanisms.EnOptWithin(share)
        policy.planner = planner
        policy.reset(cluster, DevicePredictor(), streams.rng(POLICY))
        queues = policy.plan(tasks)
        (plan,) = [plan for plan in front.plans if plan.queues == queues]
        assert plan.energy_j <= (1 + share) * least.energy_j
        faster = [other for other in front.plans if other.jct_s < plan.jct_s]
        assert all(other.energy_j > (1 + share) * least.energy_j for other in faster)
