"""Trade-off without each mechanism lacks it, what plans state is what the run plans, and the other En-opt."""

from __future__ import annotations

from typing import Any

import pytest

from heshare.lab.sweeps.random_streams import POLICY, Repetition
from heshare.paper import harness
from heshare.paper.harness import ENERGY, JCT, NEVER_WRONG, Setting
from heshare.paper.studies import mechanisms
from heshare.prediction.oracle import DevicePredictor
from heshare.scheduling.planner import plan
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

SETTING = Setting(cluster="1xT4,1xA100", tasks=6, predictor=NEVER_WRONG)
REMOVED: dict[str, Any] = {
    "sharing": "heshare:trade-off/no-batches(generations=10)",
    "order": mechanisms.WithoutOrder(),
}
PLANS = {"Trade-off": "heshare:trade-off(generations=10)", **REMOVED}


def test_stated_is_delivered() -> None:
    """With a predictor that is never wrong, a run takes what its plan predicts."""
    runs = harness.run(SETTING, PLANS, seeds=2)
    stated = mechanisms.stated([SETTING], PLANS, seeds=2)
    assert stated["stated_j"].to_numpy() == pytest.approx(runs[ENERGY].to_numpy())
    assert stated["stated_s"].to_numpy() == pytest.approx(runs[JCT].to_numpy())

    table = mechanisms.worth(runs, stated, REMOVED)
    delivered, promised = (table[table["basis"] == basis]["value"].to_numpy() for basis in ("delivered", "promised"))
    assert delivered == pytest.approx(promised)
    assert table["mechanism"].unique().tolist() == list(REMOVED)
    assert mechanisms.excess(runs, stated)["value"].to_numpy() == pytest.approx(0.0, abs=1e-6)


def test_other_en_opt() -> None:
    """The other En-opt is the fastest plan within a share of the least energy."""
    streams = Repetition(0, 0)
    tasks = streams.task_set(12)
    cluster = Cluster.parse("1xT4,1xA100")
    settings = Settings(generations=10)
    front = plan(tasks, cluster, DevicePredictor(), rng=streams.rng(POLICY), settings=settings)
    least = front.en_opt

    for share in (0.0, 0.02, 100.0):
        policy = mechanisms.EnOptWithin(share, settings)
        policy.reset(cluster, DevicePredictor(), streams.rng(POLICY))
        queues = policy.plan(tasks)
        (chosen,) = [each for each in front.plans if each.queues == queues]
        assert chosen.energy_j <= (1 + share) * least.energy_j
        faster = [other for other in front.plans if other.jct_s < chosen.jct_s]
        assert all(other.energy_j > (1 + share) * least.energy_j for other in faster)
