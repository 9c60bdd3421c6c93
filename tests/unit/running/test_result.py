"""Result of a run: its arrays, tables and summary agree."""

from dataclasses import replace

import numpy as np
import pytest
from support.policy_runs import run_emulated

from heshare.running.result import jct_summary
from heshare.shared.errors import InputError
from heshare.testing.policy_contract import check_run
from heshare.testing.toy import ToyPredictor
from heshare.world.catalogue import gpus
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

TASKS = tuple(Task(index, Workload("resnet50", 4), 500.0 * (3 - index), float(index)) for index in range(3))


EVERY_GPU = ",".join(f"1000x{name}" for name in gpus())


@pytest.fixture(scope="module")
def result():
    """Return a run of Random on emulated devices, the default, with tasks in another order than their ids."""
    return run_emulated(TASKS[::-1], "random", "T4,A100", predictor=ToyPredictor(), seed=2, progress=True)


def test_invariants(result):
    """A run on default devices keeps the invariants; its summary agrees with its arrays."""
    check_run(result)
    assert result.provenance == "emulated"
    assert result.events == 6
    summary = result.summary()
    assert summary["avg_jct_s"] == pytest.approx(result.jct_s.mean())
    assert summary["makespan_s"] == result.timeline["end_s"].max() == result.intervals["end_s"].max()
    assert summary["energy_cluster_j"] == pytest.approx(result.timeline["energy_j"].sum())
    assert summary["predictor_calls"] == 0


def test_frame(result):
    """The table is in the order of ids."""
    frame = result.to_frame()
    assert frame["task"].tolist() == [0, 1, 2]
    assert frame["arrival_s"].tolist() == [0.0, 1.0, 2.0]
    assert set(frame["gpu"]) <= {"T4-0", "A100-0"}
    np.testing.assert_allclose(frame["jct_s"], frame["waiting_s"] + frame["execution_s"])


def test_equality(result):
    """Runs are equal if all but their wall times are."""
    slower = replace(result, planning_s=result.planning_s + 1)
    assert result == slower
    assert hash(result) == hash(slower)
    assert result != replace(result, device_energy_j=result.device_energy_j + 1)
    assert result != replace(result, policy="other")


def test_short_text(result):
    """Run has a short text and a small table."""
    assert result.provenance in repr(result)
    assert len(repr(replace(result, policy="morak(" + "9" * 300, cluster=Cluster.parse(EVERY_GPU)))) <= 200
    assert result._repr_html_().count("<tr") == 4


def test_jct_summary():
    """The summary of JCTs is their average, median and 99th percentile."""
    expected = {"avg_jct_s": 3.0, "median_jct_s": 2.5, "p99_jct_s": pytest.approx(3.0 + 0.97 * 3.0)}
    assert jct_summary([1.0, 2.0, 3.0, 6.0]) == expected
    with pytest.raises(InputError, match="at least one"):
        jct_summary([])
