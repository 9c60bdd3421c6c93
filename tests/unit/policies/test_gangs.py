"""Tasks on several GPUs: every policy runs them, or refuses them before anything runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.policies.registry import make, policies
from heshare.prediction.truth import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

RUN_THEM = {"eaco", "exclusive", "fifo", "fifo-packed", "fikit", "gandiva", "power-flow", "sjf", "srtf"}
ONE = Workload("resnet50", 8)
TASKS = (Task(0, ONE, 200.0), Task(1, Workload("eaco_resnet50", 32, phase="training"), 100.0, gpus=2))


def go(name: str, tasks: tuple[Task, ...] = TASKS) -> Run:
    cluster = Cluster.parse("4xV100")
    return run(tasks, cluster, make(name), predictor=DevicePredictor(), rng=np.random.default_rng(0))


@pytest.mark.parametrize("name", sorted(name for name in policies(variants=True) if ":" not in name))
def test_gangs_are_run_or_refused_at_once(name: str) -> None:
    if name in RUN_THEM:
        held = {each.gpu for each in go(name).record.segments if any(task == 1 for task, *_ in each.residents)}
        assert len(held) >= 2
    else:
        with pytest.raises(
            InputError, match=rf"column gpus: found task 1, which runs on 2 GPUs, under {name}; expected"
        ):
            go(name)


def test_a_task_that_may_run_on_one_gpu_is_not_refused() -> None:
    elastic = (TASKS[0], replace(TASKS[1], widths=(1,)))
    assert len(go("random", elastic).jct_s) == 2
