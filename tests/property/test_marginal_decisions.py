"""Decisions of `marginal` at random task sets are those of the slow form, which computes every place in full."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.marginal_reference import MarginalReference

from heshare.lab.plus.marginal.marginal_policy import Marginal
from heshare.policies.policy import Traits
from heshare.prediction.oracle import DevicePredictor
from heshare.prediction.predictor import CoRuns
from heshare.running.run import run
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTERS = tuple(map(Cluster.parse, ("3xV100", "2xT4,1xV100,2xA100", "T4", "12xT4,4xA100")))
WORKLOADS = [Workload(name, size) for name in ("mobilenet", "bert_large", "vgg19", "gpt2") for size in (2, 8)]


class BothForms:
    """Decides as `marginal` does and compares it with the slow form at every event."""

    name, gangs, tick_s = "both", False, None
    traits = Traits(frequency=True, multi_task=True, heterogeneous=True)

    def __init__(self, predictors, **parameters):
        self._predictors = predictors
        self._forms = MarginalReference(**parameters), Marginal(**parameters)
        self.events = 0

    def reset(self, cluster, predictor, rng):
        for form, own in zip(self._forms, self._predictors, strict=True):
            form.reset(cluster, own, rng)

    def decide(self, event, view):
        slow, fast = (list(form.decide(event, view)) for form in self._forms)
        assert fast == slow
        self.events += 1
        return fast


class OddPredictor(ToyPredictor):
    """Predicts times and powers that are random for each set, clock and GPU: sharing may help or harm."""

    def co_run(self, sets, gpu, sm_mhz):
        self.calls += sum(map(len, sets))
        time_s = np.full((len(sets), max(map(len, sets), default=0)), np.nan)
        power_w = np.empty(len(sets))
        for row, (residents, mhz) in enumerate(zip(sets, sm_mhz, strict=True)):
            rng = np.random.default_rng(crc32(f"{list(map(str, residents))} {gpu.name} {mhz}".encode()))
            of = {resident: rng.choice([0.5, 1.0, 3.0]) * rng.uniform(0.5, 2.0) for resident in sorted(set(residents))}
            time_s[row, : len(residents)] = [of[resident] for resident in residents]
            power_w[row] = gpu.idle_w + rng.uniform(-20.0, 200.0)
        return CoRuns(time_s, power_w)


@st.composite
def task_sets(draw: st.DrawFn) -> list[Task]:
    """One to thirty tasks, many of them equal, that arrive together or one by one."""
    arrival_s = st.integers(0, draw(st.sampled_from([0, 20, 2000])))
    return [
        Task(index, draw(st.sampled_from(WORKLOADS)), float(draw(st.integers(1, 40))) * 50.0, float(draw(arrival_s)))
        for index in range(draw(st.integers(1, 30)))
    ]


PARAMETERS = {
    "price_w": st.sampled_from([1.0, 30.0, 100.0, 1000.0]),
    "most": st.integers(1, 5),
    "look": st.sampled_from([3, 200]),
    "sizes": st.sampled_from([0, 0, 16]),
}


@settings(max_examples=30, deadline=None)
@given(
    tasks=task_sets(),
    cluster=st.sampled_from(CLUSTERS),
    start_cost_s=st.sampled_from([0.0, 0.0, 7.0]),
    parameters=st.fixed_dictionaries(PARAMETERS),
)
def test_marginal_decides_as_its_slow_form(tasks, cluster, start_cost_s, parameters):
    predictors = DevicePredictor(), DevicePredictor()
    policy = BothForms(predictors, **parameters)
    rng = np.random.default_rng(0)
    run(tasks, cluster, policy, predictor=predictors[1], rng=rng, start_cost_s=start_cost_s)
    assert policy.events
    assert predictors[0].calls == predictors[1].calls


@settings(max_examples=30, deadline=None)
@given(tasks=task_sets(), gpus=st.integers(1, 8), parameters=st.fixed_dictionaries(PARAMETERS))
def test_marginal_decides_as_its_slow_form_under_any_predictions(tasks, gpus, parameters):
    predictors = OddPredictor(), OddPredictor()
    policy = BothForms(predictors, **parameters)
    cards = tuple(toy_gpu(f"Toy{index % 2}") for index in range(gpus))
    devices = [ToyDevice(card) for card in cards]
    run(tasks, Cluster(cards), policy, predictor=predictors[1], rng=np.random.default_rng(0), devices=devices)
    assert predictors[0].calls == predictors[1].calls
