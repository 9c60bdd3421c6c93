"""EaCO's study: the tasks, the measured sets, the comparisons and the variants."""

import numpy as np
import pandas as pd
import pytest

from heshare.lab.sweeps import study_runs
from heshare.lab.systems.shared.training import measured_sets, step
from heshare.paper.studies.systems import eaco_sets as set_study
from heshare.paper.studies.systems import eaco_study as study


def test_host_power_is_the_measured_power_less_that_of_the_gpus():
    # 712, 959, 1330 and 1533 W less eight times 56.4, 81.1, 133.7 and 159.1 W.
    assert study.host_w() == pytest.approx(260.5, abs=0.5)


def test_draw_tasks_sets_deadlines_and_epochs_of_jobs_that_fit_a_node():
    tasks = study.StudySetting(jobs=60, load=0.5, deadline=1.5).draw_tasks(2, np.random.default_rng(0))
    for task in tasks:
        alone_s = task.iterations * step(task.workload).step_s
        assert alone_s * (1 + 1e-9) >= 60
        assert alone_s <= 86_400 * (1 + 1e-9)
        assert task.deadline_s - task.arrival_s == pytest.approx(1.5 * alone_s)
        assert task.epochs == study.EPOCHS
        assert task.gpus <= study.NODE
    span_s = max(task.arrival_s for task in tasks)
    requested_s = sum(task.gpus * task.iterations * step(task.workload).step_s for task in tasks)
    assert requested_s / (span_s * 16) == pytest.approx(0.5, rel=1e-6)
    assert {
        task.gpus for task in study.StudySetting(jobs=60, whole_nodes=True).draw_tasks(2, np.random.default_rng(0))
    } == {8}


def test_run_sets_follows_from_the_power_and_slowdown_of_a_set():
    frame = set_study.run_sets(0, 1)
    assert len(frame) == 2 * 6
    pair = frame[(frame["set"] == "alexnet+resnet50") & (frame["repetition"] < 0)].iloc[0]
    # Alone 712 and 1330 W (emulated as measured) for 34.76 and 36.01 h; together 8 x 133.8 + 260.5 W, 3.5 % longer.
    apart = 0.712 * 34.76 + 1.330 * 36.01
    both_w = 8 * 133.8 + 260.5
    together = both_w / 1000 * 1.035 * 34.76 + both_w / 1000 * (36.01 * 1.035 - 34.76 * 1.035)
    assert pair["saving_pct"] == pytest.approx(100 * (together / apart - 1), abs=1.0)
    assert pair["measured_pct"] == pytest.approx(100 * (50.93 / (24.73 + 47.87) - 1))
    assert pair["measured_slowdown_pct"] == pytest.approx(100 * (36.63 / ((34.76 + 36.01) / 2) - 1))
    assert [set_study.set_name(one) for one in measured_sets() if len(one.workloads) == 4] == [
        "alexnet+resnet18+resnet50+vgg16"
    ]
    best = set_study.best_sets(frame)
    found = set_study.evaluate_energy_per_job(frame, best)
    assert found["low"] == found["measured"] == found["high"]
    assert set_study.evaluate_utilisation(frame)["holds"]["a set reaches 97 %"] is False


def test_changes_are_paired_and_medians_are_over_repetitions():
    rows = [(0, 4, "FIFO", 10.0), (0, 4, "EaCO", 5.0), (1, 4, "FIFO", 100.0), (1, 4, "EaCO", 80.0)]
    frame = pd.DataFrame(rows, columns=["repetition", "nodes", "title", "energy_j"])
    for column in ("energy_awake_j", "energy_gpus_j", "node_hours", "avg_jct_s"):
        frame[column] = frame["energy_j"]
    found = study.changes(frame, "EaCO")
    assert found["change_pct"].tolist() == pytest.approx([-35.0] * 5)
    assert study_runs.medians(frame, ["title"]).set_index("title")["energy_j"].to_dict() == {"FIFO": 55.0, "EaCO": 42.5}


def test_variants_change_one_existing_parameter_each():
    for trace, changed in study.VARIANTS.values():
        assert len(trace) + len(changed) <= 1
        assert set(trace) <= set(study.StudySetting.__slots__)
        study.Eaco(**changed)
