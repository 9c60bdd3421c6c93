"""Tasks that arrive as on a trace: the load sets the time between them; all systems get the same ones."""

from __future__ import annotations

import numpy as np
import pytest

from heshare.devices.task_sizes import draw
from heshare.paper import harness
from heshare.paper.studies.trace_setting import TraceSetting

SMALL = TraceSetting(cluster="1xT4,1xA100", tasks=6)


def test_tasks_and_arrivals() -> None:
    """Tasks are those of the recipe, and arrive on average at the load."""
    tasks = SMALL.draw(rng=np.random.default_rng(1))
    recipe = draw(6, rng=np.random.default_rng(1), batch_sizes=(4, 8))
    assert [(task.workload, task.iterations) for task in tasks] == [(task.workload, task.iterations) for task in recipe]

    arrivals_s = [task.arrival_s for task in tasks]
    assert arrivals_s[0] == 0.0
    assert arrivals_s == sorted(arrivals_s)
    assert arrivals_s[-1] == pytest.approx(5 * SMALL.interval_s())


def test_load() -> None:
    """A load is a share of what the GPUs can do."""
    half, whole = harness.vary(SMALL, load=[0.5, 1.0])
    assert half.interval_s() == pytest.approx(2 * whole.interval_s(), rel=1e-4)
    one, two = harness.vary(whole, cluster=["1xA100", "2xA100"])
    assert one.interval_s() == pytest.approx(2 * two.interval_s(), rel=1e-4)
