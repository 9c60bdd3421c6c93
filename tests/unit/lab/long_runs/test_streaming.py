"""Recorders of long runs: totals equal those of the timeline, and a streamed timeline equals the one in memory."""

import numpy as np
import pandas as pd
import pytest

from heshare.devices.task_sizes import draw
from heshare.lab.long_runs.run_long import run_long
from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.policies.registry import make
from heshare.shared.errors import InputError
from heshare.testing.toy import ToyPredictor
from heshare.world.cluster import Cluster


def run_full_and_summary(policy, tasks, cluster, **options):
    options = {"predictor": ToyPredictor(), **options}
    return [
        run_long(tasks, Cluster.parse(cluster), make(policy), rng=np.random.default_rng(0), record=record, **options)
        for record in ("full", "summary")
    ]


def check_totals(full, summary):
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


def test_summary_record_has_the_totals_of_gangs_and_training():
    tasks, _ = venus_tasks(150, rng=np.random.default_rng(1), gpus=24, load=0.9)
    check_totals(*run_full_and_summary("fifo", tasks, "24xV100"))


def test_summary_record_has_the_totals_of_tasks_that_share():
    tasks = draw(25, rng=np.random.default_rng(2), arrivals="poisson", interval_s=20.0)
    check_totals(*run_full_and_summary("random", tasks, "2xT4,1xV100", start_cost_s=3.0))


def test_run_long_refuses_an_unknown_record():
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0), "record": "some"}
    with pytest.raises(InputError, match="full or summary"):
        run_long(draw(2, rng=np.random.default_rng(2)), Cluster.parse("T4"), make("fifo"), **options)


def test_streamed_timeline_equals_the_one_in_memory(tmp_path):
    tasks, _ = venus_tasks(60, rng=np.random.default_rng(1), gpus=24, load=0.9)
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0)}
    full, streamed = (
        run_long(tasks, Cluster.parse("24xV100"), make("fifo"), record=record, **options)
        for record in ("full", tmp_path)
    )
    check_totals(full, streamed)
    for name, expected in (("segments", full.record.segments), ("intervals", full.record.intervals)):
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        assert list(frame.columns) == list(expected[0]._fields)
        assert frame["start_s"].tolist() == [row.start_s for row in expected]
        assert frame["gpu"].tolist() == [row.gpu for row in expected]
    residents = pd.read_csv(tmp_path / "segments.csv")["residents"].fillna("").tolist()
    assert [text.split("@")[0] for text in residents] == [
        "".join(str(task) for task, _, _ in segment.residents) for segment in full.record.segments
    ]
