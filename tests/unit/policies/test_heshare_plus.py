"""HeShare+ as a policy: asked for by name, with a budget or with rounds."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.errors import InputError
from heshare.policies.registry import make, policies
from heshare.prediction.truth import DevicePredictor
from heshare.running.repetition import repetition
from heshare.running.run import run
from heshare.scheduling.effort import Effort
from heshare.scheduling.improved import optimise
from heshare.world.cluster import Cluster


@pytest.mark.parametrize("choice", ["trade-off", "en-opt", "jct-opt"])
def test_it_releases_the_plan_that_it_is_named_after(choice: str) -> None:
    tasks, gpus = mixed_tasks(6), Cluster.parse("1xT4,1xA100")
    policy = make(f"heshare+:{choice}(rounds=2)")
    policy.reset(gpus, Toy(demand=DEMANDS), np.random.default_rng(1))
    front = optimise(tasks, gpus, Toy(demand=DEMANDS), rng=np.random.default_rng(1), effort=Effort(rounds=2))
    wanted = {"trade-off": front.trade_off, "en-opt": front.en_opt, "jct-opt": front.jct_opt}[choice]
    assert policy.plan(tasks) == wanted.queues  # type: ignore[attr-defined]


def test_what_it_foresees_is_what_a_device_does_when_the_predictor_is_right() -> None:
    tasks, gpus = mixed_tasks(5), Cluster.parse("1xV100,1xA100")
    effort, rng = Effort(rounds=2), np.random.default_rng(1)
    front = optimise(tasks, gpus, DevicePredictor(), rng=rng, effort=effort)
    policy = make("heshare+:en-opt(rounds=2)")
    done = run(tasks, gpus, policy, predictor=DevicePredictor(), rng=np.random.default_rng(1))
    assert done.jct_s.mean() == pytest.approx(front.en_opt.jct_s, rel=1e-6)


def test_its_three_plans_share_one_front_and_each_is_charged_for_it() -> None:
    tasks, gpus = mixed_tasks(6), Cluster.parse("1xT4,1xA100")
    names = [f"heshare+:{choice}(rounds=2)" for choice in ("trade-off", "en-opt", "jct-opt")]
    alone = [run(tasks, gpus, make(one), predictor=Toy(demand=DEMANDS), rng=np.random.default_rng(1)) for one in names]
    makers = [partial(make, one) for one in names]
    asked: list[Toy] = []

    def predictor() -> Toy:
        asked.append(Toy(demand=DEMANDS))
        return asked[-1]

    seed = np.random.SeedSequence(1)
    together = list(repetition(seed, tasks, gpus, makers, predictor))
    assert [one.calls > 0 for one in asked] == [True, False, False]
    assert len({done.predictor_calls for done in (*alone, *together)}) == 1
    assert together[1].planning_s > 0


def test_forms_of_it_are_asked_for_by_name() -> None:
    assert "heshare+:trade-off" not in policies()
    assert "heshare+:trade-off" in policies(variants=True)


@pytest.mark.parametrize("wrong", ["rounds=0", "budget_s=-1"])
def test_a_parameter_out_of_range_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=wrong.partition("=")[0]):
        make(f"heshare+:en-opt({wrong})")
