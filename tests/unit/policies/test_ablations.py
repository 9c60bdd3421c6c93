"""HeShare with parts taken away: each does without what its name says, and keeps the rest."""

import numpy as np
import pytest

from heshare.policies.heshare import ABLATIONS, HeShare
from heshare.policies.policy import Traits
from heshare.policies.registry import make
from heshare.prediction.truth import DevicePredictor
from heshare.running.run import run
from heshare.testing.policies import placement
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTER = Cluster.parse("2xT4,V100,A100")
MODELS = ("bert_large", "mobilenet")
TASKS = tuple(Task(index, Workload(MODELS[index % 2], 4), 1_000.0 * (1 + index)) for index in range(12))
QUICK = "(population=10,generations=20)"


class Wrong(DevicePredictor):
    """Believes that the small model takes a hundred times as long as it does."""

    def co_run(self, sets, gpu, sm_mhz):
        truth = super().co_run(sets, gpu, sm_mhz)
        for row, residents in enumerate(sets):
            for place, one in enumerate(residents):
                truth.time_s[row, place] *= 100.0 if one.workload.model == "mobilenet" else 1.0
        return truth


def go(name, predictor=None):
    predictor = predictor or DevicePredictor()
    return run(TASKS, CLUSTER, make(name + QUICK), predictor=predictor, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("", Traits(True, True, True)),
        ("/random-placement", Traits(True, True, False)),
        ("/no-mps", Traits(True, True, True)),
        ("/no-clock", Traits(False, True, True)),
        ("/no-batches", Traits(True, False, True)),
        ("/true-predictor", Traits(True, True, True)),
    ],
)
def test_traits(name, traits):
    assert make(f"heshare:trade-off{name}").traits == traits


def test_the_whole_uses_what_the_others_lack():
    whole = go("heshare:trade-off")
    assert {each.mps_pct for each in whole.record.intervals} - {100}
    assert not whole.timeline["requested_mhz"].isna().any()
    assert whole.timeline["tasks"].max() > 1


def test_without_mps_everybody_gets_the_whole_card():
    result = go("heshare:trade-off/no-mps")
    assert {each.mps_pct for each in result.record.intervals} == {100}
    assert result.timeline["tasks"].max() > 1


def test_without_clocks_no_card_is_told_one():
    assert go("heshare:trade-off/no-clock").timeline["requested_mhz"].isna().all()


def test_without_batches_nobody_shares():
    assert go("heshare:trade-off/no-batches").timeline["tasks"].max() == 1


def test_random_placement_is_random_s():
    assert placement(go("heshare:trade-off/random-placement")) == placement(
        run(TASKS, CLUSTER, make("random"), predictor=DevicePredictor(), rng=np.random.default_rng(0))
    )


def test_the_true_predictor_does_not_listen_to_a_wrong_one():
    right, misled = go("heshare:trade-off"), go("heshare:trade-off", Wrong())
    sure = go("heshare:trade-off/true-predictor", Wrong())
    assert sure.record == right.record != misled.record
    assert sure.predictor_calls == right.predictor_calls > 0


def test_every_ablation_is_a_parameter_of_the_whole():
    for name, (_, preset) in ABLATIONS.items():
        inside = ",".join(f"{key}={value}" for key, value in preset.items())
        short, long = make(f"heshare:trade-off/{name}"), make(f"heshare:trade-off({inside})")
        assert isinstance(short, HeShare)
        assert isinstance(long, HeShare)
        assert short.planner.kind == long.planner.kind != HeShare().planner.kind
