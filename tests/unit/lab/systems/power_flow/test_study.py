"""PowerFlow's study: the tasks, the comparisons and the variants."""

import numpy as np
import pandas as pd
import pytest

from heshare.paper.studies.systems import power_flow_study as study


def test_at_equal_energy_takes_the_fastest_budget_within_and_counts_misses():
    rows = [
        (0, "FIFO", 1.0, 10.0, 100.0), (0, "PowerFlow", 0.8, 8.0, 90.0), (0, "PowerFlow", 1.0, 9.9, 50.0),
        (0, "PowerFlow", 1.2, 10.1, 10.0), (1, "FIFO", 1.0, 7.0, 100.0), (1, "PowerFlow", 0.8, 8.0, 90.0),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["repetition", "title", "setting", "energy_j", "avg_jct_s"])
    frame["energy"] = frame["energy_cluster"] = 1.0
    frame["energy_cluster_j"] = 20.0 - frame["energy_j"]
    found = study.at_equal_energy(frame).iloc[0]
    assert (found["times"], found["n"], found["reached"]) == (1.5, 2, 1), "2 and, without a setting within, 1"
    found = study.at_equal_energy(frame, "energy_cluster_j").iloc[0]
    # The other way round: 10 of the 100 s for 9.9 of 10 J, and 90 for 12 of 13 J.
    assert (found["times"], found["reached"]) == (pytest.approx((10 + 100 / 90) / 2), 2)


def test_draw_tasks_returns_elastic_jobs_without_epochs():
    tasks = study.StudySetting(jobs=40).draw_tasks(np.random.default_rng(0))
    assert all(task.widths == (1, 2, 4, 8) and task.epochs is None for task in tasks)
    systems = study.systems([0.9, 1.0], [0.8], elastic=False)
    assert list(systems) == [
        ("FIFO", 1.0), ("SJF", 1.0), ("SRTF", 1.0), ("SRTF, lower clocks", 0.8), ("PowerFlow", 0.9), ("PowerFlow", 1.0),
    ]  # fmt: skip
    assert not systems["SRTF", 1.0]().traits.frequency
    assert systems["SRTF, lower clocks", 0.8]().traits.frequency


def test_variants_change_one_existing_parameter_each():
    for trace, changed in study.VARIANTS.values():
        assert set(trace) <= set(study.StudySetting.__slots__)
        study.PowerFlow(**changed)
