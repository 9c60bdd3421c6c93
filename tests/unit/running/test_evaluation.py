"""Evaluation of a plan: what is predicted, what is run, and their relation."""

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy

from heshare.running.evaluation import Evaluation, evaluation
from heshare.scheduling.plan import Batch
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

TASKS = (Task(0, Workload("resnet50", 8), 500.0), Task(1, Workload("bert_large", 4), 200.0))
CLUSTER = Cluster.parse("1xT4")


@pytest.fixture(scope="module")
def evaluated() -> Evaluation:
    return evaluation([[Batch((0, 1), (50, 50), None)]], TASKS, CLUSTER, Toy(demand=DEMANDS))


def test_frame(evaluated: Evaluation) -> None:
    """The frame has what is predicted, what is run, and by how many per cent the run is above the prediction."""
    frame = evaluated.to_frame()
    assert frame["predicted"].tolist() == [evaluated.plan.energy_j, evaluated.plan.jct_s]
    assert frame["run"].tolist() == [evaluated.run.energy_active_j, evaluated.run.avg_jct_s]
    factor = 1 + frame["run_over_predicted_pct"] / 100
    assert (frame["predicted"] * factor).to_numpy() == pytest.approx(frame["run"].to_numpy())
    assert np.isfinite(factor).all()


@pytest.mark.parametrize("queues", [[], "batches", [["batch"]], [[Batch((0, 1), (50, 50), None), "batch"]]])
def test_other_queues(queues: object) -> None:
    """Anything but lists of batches is refused."""
    with pytest.raises(InputError, match="a list of Batch"):
        evaluation(queues, TASKS, CLUSTER, Toy(demand=DEMANDS))  # type: ignore[arg-type]
