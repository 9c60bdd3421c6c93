"""`import heshare as hs`: its names are imported when used, and return what the stages return."""

from __future__ import annotations

import numpy as np
import pytest

import heshare as hs


def test_every_name_of_all_can_be_imported() -> None:
    for name in hs.__all__:
        assert getattr(hs, name) is not None
    assert set(hs.__all__) <= set(dir(hs))
    assert {"Plan", "Front", "Run", "read_tasks", "gpus", "models"} <= set(dir(hs))
    assert not {"Any", "import_module", "compiling", "api"} & set(dir(hs)), "only what a user would call"
    with pytest.raises(AttributeError, match="nonsense"):
        _ = hs.nonsense


def test_plan_and_run_from_a_task_set() -> None:
    cluster = hs.Cluster.parse("1xT4,1xA100")
    tasks = hs.task_set(4, seed=0)
    front = hs.plan(tasks, cluster, seed=0)
    assert front.en_opt.energy_j <= front.trade_off.energy_j <= front.jct_opt.energy_j
    assert front.jct_opt.jct_s <= front.trade_off.jct_s <= front.en_opt.jct_s
    done = hs.run(tasks, "1xT4,1xA100", "heshare:jct-opt", seed=0)
    assert done.jct_s.shape == (4,)
    assert np.array_equal(hs.plan(tasks, "1xT4,1xA100", seed=0).objectives, front.objectives)


def test_a_run_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(hs.HeShareError):
        hs.run(4, "1xT4,1xA100", "fifo", max_time_s=1e-9)


def test_optimise_is_not_worse_than_plan() -> None:
    tasks = hs.task_set(5, seed=1)
    front, better = hs.plan(tasks, "1xT4,1xA100", seed=0), hs.optimise(tasks, "1xT4,1xA100", seed=0)
    assert better.en_opt.energy_j <= front.en_opt.energy_j
    assert better.jct_opt.jct_s <= front.jct_opt.jct_s
    assert np.array_equal(hs.optimise(tasks, "1xT4,1xA100", seed=0).objectives, better.objectives)


def test_task_set_divides_durations_by_the_time_alone_on_an_a100() -> None:
    from heshare.world.task_set import helios_durations_s

    task = hs.task_set(1, seed=5)[0]
    alone_s = hs.estimate("A100", [str(task.workload)]).tasks[0].time_s
    assert np.isclose(helios_durations_s(), task.iterations * alone_s).any()
