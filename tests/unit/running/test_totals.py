"""What is added up on the way is what the timeline adds up to."""

import numpy as np
import pandas as pd
import pytest

from heshare.errors import InputError
from heshare.policies.registry import make
from heshare.running.draw import draw, venus
from heshare.running.run import run
from heshare.testing.toy import ToyPredictor
from heshare.world.cluster import Cluster


def both(policy, tasks, cluster, **options):
    options = {"predictor": ToyPredictor(), **options}
    return [
        run(tasks, Cluster.parse(cluster), make(policy), rng=np.random.default_rng(0), record=record, **options)
        for record in ("full", "summary")
    ]


def check(full, summary):
    for name in (
        "waiting_s",
        "execution_s",
        "completion_s",
        "gpu_energy_active_j",
        "gpu_energy_cluster_j",
        "utilisation",
    ):
        np.testing.assert_allclose(getattr(summary, name), getattr(full, name), rtol=1e-9, atol=1e-6, err_msg=name)
    assert summary.to_frame()["gpu"].tolist() == full.to_frame()["gpu"].tolist()
    assert (summary.makespan_s, summary.events) == (full.makespan_s, full.events)
    np.testing.assert_allclose(summary.device_energy_j, summary.gpu_energy_cluster_j, rtol=1e-9)
    assert not summary.record.segments


def test_gangs_and_training():
    tasks, _ = venus(150, rng=np.random.default_rng(1), gpus=24, load=0.9)
    check(*both("fifo", tasks, "24xV100"))


def test_tasks_that_share():
    tasks = draw(25, rng=np.random.default_rng(2), arrivals="poisson", interval_s=20.0)
    check(*both("random", tasks, "2xT4,1xV100", start_cost_s=3.0))


def test_there_is_no_other_way_to_record():
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), "record": "some"}
    with pytest.raises(InputError, match="full or summary"):
        run(draw(2, rng=np.random.default_rng(2)), Cluster.parse("T4"), make("fifo"), **options)


def test_a_timeline_in_files_is_that_in_memory(tmp_path):
    tasks, _ = venus(60, rng=np.random.default_rng(1), gpus=24, load=0.9)
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0)}
    full, streamed = (
        run(tasks, Cluster.parse("24xV100"), make("fifo"), record=record, **options) for record in ("full", tmp_path)
    )
    check(full, streamed)
    for name, kept in (("segments", full.record.segments), ("intervals", full.record.intervals)):
        found = pd.read_csv(tmp_path / f"{name}.csv")
        assert list(found.columns) == list(kept[0]._fields)
        assert found["start_s"].tolist() == [each.start_s for each in kept]
        assert found["gpu"].tolist() == [each.gpu for each in kept]
    shown = pd.read_csv(tmp_path / "segments.csv")["residents"].fillna("").tolist()
    assert [text.split("@")[0] for text in shown] == [
        "".join(str(task) for task, _, _ in each.residents) for each in full.record.segments
    ]
