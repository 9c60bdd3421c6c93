"""`import heshare as hs`: its names are imported when used, and return what the stages return."""

from __future__ import annotations

import numpy as np
import pytest

import heshare as hs


def test_names() -> None:
    """Every name of `__all__` can be imported, and `dir` shows no others."""
    for name in hs.__all__:
        assert getattr(hs, name) is not None
    assert set(hs.__all__) <= set(dir(hs))
    assert {"Plan", "Front", "Run", "read_tasks", "gpus", "models"} <= set(dir(hs))
    assert not {"Any", "import_module", "compiling", "api"} & set(dir(hs)), "only what a user would call"
    with pytest.raises(AttributeError, match="nonsense"):
        _ = hs.nonsense


def test_max_time() -> None:
    """A run that takes too long is given up."""
    with pytest.raises(hs.HeShareError):
        hs.run(4, "1xT4,1xA100", "fifo", max_time_s=1e-9)


def test_optimise() -> None:
    """`optimise` is not worse than `plan`, and the same seed gives the same front."""
    tasks = hs.task_set(5, seed=1)
    front, better = hs.plan(tasks, "1xT4,1xA100", seed=0), hs.optimise(tasks, "1xT4,1xA100", seed=0)
    assert better.en_opt.energy_j <= front.en_opt.energy_j
    assert better.jct_opt.jct_s <= front.jct_opt.jct_s
    assert np.array_equal(hs.optimise(tasks, "1xT4,1xA100", seed=0).objectives, better.objectives)


def test_iterations() -> None:
    """The iterations of a task are a duration divided by its time alone on an A100."""
    from heshare.world.task_set import helios_durations_s

    task = hs.task_set(1, seed=5)[0]
    alone_s = hs.estimate("A100", [str(task.workload)]).tasks[0].time_s
    assert np.isclose(helios_durations_s(), task.iterations * alone_s).any()
