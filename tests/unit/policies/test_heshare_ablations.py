"""Ablations of HeShare: each lacks the part of its name and keeps the others."""

from support.policy_runs import run_emulated

from heshare.policies.heshare import ABLATIONS, HeShare
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

CLUSTER = Cluster.parse("2xT4,V100,A100")
MODELS = ("bert_large", "mobilenet")
TASKS = tuple(Task(index, Workload(MODELS[index % 2], 4), 1_000.0 * (1 + index)) for index in range(12))
QUICK = "(population=10,generations=20)"


class WrongPredictor(DevicePredictor):
    """Predicts a hundred times the true time for the small model."""

    def co_run(self, sets, gpu, sm_mhz):
        truth = super().co_run(sets, gpu, sm_mhz)
        for row, residents in enumerate(sets):
            for column, task in enumerate(residents):
                truth.time_s[row, column] *= 100.0 if task.workload.model == "mobilenet" else 1.0
        return truth


def run_ablation(name, predictor=None):
    return run_emulated(TASKS, name + QUICK, CLUSTER, predictor=predictor)


def test_trade_off():
    """Trade-off uses MPS, clocks and batches."""
    result = run_ablation("heshare:trade-off")
    assert {interval.mps_pct for interval in result.record.intervals} - {100}
    assert not result.timeline["requested_mhz"].isna().any()
    assert result.timeline["tasks"].max() > 1


def test_missing_part():
    """Each ablation lacks the part of its name."""
    no_mps = run_ablation("heshare:trade-off/no-mps")
    assert {interval.mps_pct for interval in no_mps.record.intervals} == {100}
    assert no_mps.timeline["tasks"].max() > 1
    assert run_ablation("heshare:trade-off/no-clock").timeline["requested_mhz"].isna().all()
    assert run_ablation("heshare:trade-off/no-batches").timeline["tasks"].max() == 1


def test_true_predictor():
    """The true predictor ignores a wrong one."""
    right, wrong = run_ablation("heshare:trade-off"), run_ablation("heshare:trade-off", WrongPredictor())
    true = run_ablation("heshare:trade-off/true-predictor", WrongPredictor())
    assert true.record == right.record != wrong.record
    assert true.predictor_calls == right.predictor_calls > 0


def test_parameters():
    """Every ablation equals Trade-off with parameters."""
    for name, (_, preset) in ABLATIONS.items():
        parameters = ",".join(f"{key}={value}" for key, value in preset.items())
        short, long = make(f"heshare:trade-off/{name}"), make(f"heshare:trade-off({parameters})")
        assert isinstance(short, HeShare)
        assert isinstance(long, HeShare)
        assert short.planner == long.planner != HeShare().planner
