"""HeShare+ as a policy: the plan that it releases, its planning time, its registration."""

from __future__ import annotations

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.heshare_plus import SearchSettings, optimise
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.sweep import Scenario, repetition
from heshare.policies.registry import make
from heshare.running.run import run
from heshare.world.cluster import Cluster


@pytest.mark.parametrize("choice", ["trade-off", "en-opt", "jct-opt"])
def test_choice(choice: str) -> None:
    """The policy follows the plan of its choice."""
    tasks, gpus = mixed_tasks(6), Cluster.parse("1xT4,1xA100")
    policy = make(f"heshare+:{choice}(rounds=2)")
    policy.reset(gpus, Toy(demand=DEMANDS), np.random.default_rng(1))
    front = optimise(tasks, gpus, Toy(demand=DEMANDS), rng=np.random.default_rng(1), effort=SearchSettings(rounds=2))
    chosen = {"trade-off": front.trade_off, "en-opt": front.en_opt, "jct-opt": front.jct_opt}[choice]
    assert policy.plan(tasks) == chosen.queues  # type: ignore[attr-defined]


def test_shared_front() -> None:
    """The three policies share one front, and each is charged for it."""
    tasks, gpus = mixed_tasks(6), Cluster.parse("1xT4,1xA100")
    names = [f"heshare+:{choice}(rounds=2)" for choice in ("trade-off", "en-opt", "jct-opt")]
    alone = [
        run(tasks, gpus, make(name), predictor=Toy(demand=DEMANDS), rng=np.random.default_rng(1)) for name in names
    ]
    predictors: list[Toy] = []

    def predictor() -> Toy:
        predictors.append(Toy(demand=DEMANDS))
        return predictors[-1]

    together = list(repetition(Scenario({}, gpus, tasks, predictor), map(make, names), Repetition(0, 1)))
    # The second and the third policy reuse the front, so their predictors predict nothing.
    assert [toy.calls > 0 for toy in predictors] == [True, False, False]
    assert len({done.predictor_calls for done in (*alone, *together)}) == 1
    assert together[1].planning_s > 0
