"""EaCO's and PowerFlow's home settings: what is drawn, what is compared with what, and what the notes say."""

import numpy as np
import pandas as pd
import pytest

from heshare.reporting import eaco, eaco_sets, eaco_why, power_flow, power_flow_why
from heshare.world.training import measured_sets, step


def test_a_node_has_what_its_gpus_leave_of_the_measured_power():
    # 712, 959, 1330 and 1533 W less eight times 56.4, 81.1, 133.7 and 159.1 W.
    assert eaco.host_w() == pytest.approx(260.5, abs=0.5)


def test_eacos_jobs_have_deadlines_epochs_and_fit_a_node():
    tasks = eaco.Home(jobs=60, load=0.5, deadline=1.5, epochs=7).draw(2, np.random.default_rng(0))
    for task in tasks:
        alone_s = task.iterations * step(task.workload).step_s
        assert alone_s * (1 + 1e-9) >= 60
        assert alone_s <= 86_400 * (1 + 1e-9)
        assert task.deadline_s - task.arrival_s == pytest.approx(1.5 * alone_s)
        assert task.epochs == 7
        assert task.gpus <= eaco.NODE
    span_s = max(task.arrival_s for task in tasks)
    asked_s = sum(task.gpus * task.iterations * step(task.workload).step_s for task in tasks)
    assert asked_s / (span_s * 16) == pytest.approx(0.5, rel=1e-6)
    assert {task.gpus for task in eaco.Home(jobs=60, whole_nodes=True).draw(2, np.random.default_rng(0))} == {8}


def test_a_measured_set_comes_out_as_its_power_and_slowdown_say():
    frame = eaco_sets.sets(0, 1)
    assert len(frame) == 2 * 6
    pair = frame[(frame["set"] == "alexnet+resnet50") & (frame["repetition"] < 0)].iloc[0]
    # Alone 712 and 1330 W (emulated as measured) for 34.76 and 36.01 h; together 8 x 133.8 + 260.5 W, 3.5 % longer.
    apart = 0.712 * 34.76 + 1.330 * 36.01
    both_w = 8 * 133.8 + 260.5
    together = both_w / 1000 * 1.035 * 34.76 + both_w / 1000 * (36.01 * 1.035 - 34.76 * 1.035)
    assert pair["saving_pct"] == pytest.approx(100 * (together / apart - 1), abs=1.0)
    assert pair["measured_pct"] == pytest.approx(100 * (50.93 / (24.73 + 47.87) - 1))
    assert pair["measured_slowdown_pct"] == pytest.approx(100 * (36.63 / ((34.76 + 36.01) / 2) - 1))
    assert [eaco_sets.name_of(one) for one in measured_sets() if len(one.workloads) == 4] == [
        "alexnet+resnet18+resnet50+vgg16"
    ]
    found = eaco_sets.priced_energy(frame, np.random.default_rng(0))
    assert found["low"] == found["measured"] == found["high"]
    assert eaco_sets.priced_utilisation(frame)["holds"]["a set reaches 97 %"] is False


def test_changes_are_paired_and_medians_are_of_repetitions():
    rows = [(0, 4, "FIFO", 10.0), (0, 4, "EaCO", 5.0), (1, 4, "FIFO", 100.0), (1, 4, "EaCO", 80.0)]
    frame = pd.DataFrame(rows, columns=["repetition", "nodes", "title", "energy_j"])
    for column in ("energy_awake_j", "energy_gpus_j", "node_hours", "avg_jct_s"):
        frame[column] = frame["energy_j"]
    found = eaco.changes(frame, "EaCO", np.random.default_rng(0))
    assert found["change_pct"].tolist() == pytest.approx([-35.0] * 5)
    assert eaco.medians(frame, ["title"]).set_index("title")["energy_j"].to_dict() == {"FIFO": 55.0, "EaCO": 42.5}


def test_equal_energy_takes_the_fastest_setting_within_and_counts_misses():
    rows = [
        (0, "FIFO", 1.0, 10.0, 100.0), (0, "PowerFlow", 0.8, 8.0, 90.0), (0, "PowerFlow", 1.0, 9.9, 50.0),
        (0, "PowerFlow", 1.2, 10.1, 10.0), (1, "FIFO", 1.0, 7.0, 100.0), (1, "PowerFlow", 0.8, 8.0, 90.0),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["repetition", "title", "setting", "energy_j", "avg_jct_s"])
    frame["energy"] = frame["energy_cluster"] = 1.0
    frame["energy_cluster_j"] = 20.0 - frame["energy_j"]
    rng = np.random.default_rng(0)
    found = power_flow.at_equal_energy(frame, rng).iloc[0]
    assert (found["times"], found["n"], found["reached"]) == (1.5, 2, 1), "2 and, without a setting within, 1"
    found = power_flow.at_equal_energy(frame, rng, "energy_cluster_j").iloc[0]
    # The other way round: 10 of the 100 s for 9.9 of 10 J, and 90 for 12 of 13 J.
    assert (found["times"], found["reached"]) == (pytest.approx((10 + 100 / 90) / 2), 2)


def test_power_flows_jobs_are_elastic_and_lose_nothing():
    tasks = power_flow.Home(jobs=40).draw(np.random.default_rng(0))
    assert all(task.widths == (1, 2, 4, 8) and task.epochs is None for task in tasks)
    systems = power_flow.systems([0.9, 1.0], [0.8], elastic=False)
    assert list(systems) == [
        ("FIFO", 1.0), ("SJF", 1.0), ("SRTF", 1.0), ("SRTF, lower clocks", 0.8), ("PowerFlow", 0.9), ("PowerFlow", 1.0),
    ]  # fmt: skip
    assert not systems["SRTF", 1.0]().traits.frequency
    assert systems["SRTF, lower clocks", 0.8]().traits.frequency


def test_every_variant_changes_one_thing_that_exists():
    for trace, changed in eaco_why.VARIANTS.values():
        assert len(trace) + len(changed) <= 1
        assert set(trace) <= set(eaco.Home.__slots__)
        eaco.Eaco(**changed)
    for trace, changed in power_flow_why.VARIANTS.values():
        assert set(trace) <= set(power_flow.Home.__slots__)
        power_flow.PowerFlow(**changed)
