"""Tasks on several GPUs: every policy runs them, or the run is rejected before it begins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.policy_runs import run_emulated

from heshare.policies.registry import policies
from heshare.running.result import Run
from heshare.shared.errors import InputError
from heshare.world.task import Task
from heshare.world.workload import Workload

RUNS_GANGS = {"eaco", "exclusive", "fifo", "fifo-packed", "fikit", "gandiva", "power-flow", "sjf", "srtf"}
WORKLOAD = Workload("resnet50", 8)
TASKS = (Task(0, WORKLOAD, 200.0), Task(1, Workload("eaco_resnet50", 32, phase="training"), 100.0, gpus=2))


def run_policy(name: str, tasks: tuple[Task, ...] = TASKS, cluster: str = "4xV100") -> Run:
    return run_emulated(tasks, name, cluster)


@pytest.mark.parametrize("name", sorted(name for name in policies(variants=True) if ":" not in name))
def test_gangs(name: str) -> None:
    """Policies run gangs, or reject them before the run."""
    if name in RUNS_GANGS:
        segments = run_policy(name).record.segments
        gpus = {segment.gpu for segment in segments if any(task == 1 for task, *_ in segment.residents)}
        assert len(gpus) >= 2
    else:
        with pytest.raises(InputError, match="argument gpus: found task 1, which runs on 2 GPUs"):
            run_policy(name)


def test_one_gpu() -> None:
    """A task that may run on one GPU is not rejected."""
    elastic = (TASKS[0], replace(TASKS[1], widths=(1,)))
    assert len(run_policy("random", elastic).jct_s) == 2


@pytest.mark.parametrize("name", ["eaco", "power-flow", "srtf"])
def test_one_type(name: str) -> None:
    """Policies that mix no types refuse a gang without as many GPUs of one."""
    with pytest.raises(InputError, match=r"found task 1, .*GPUs of one type"):
        run_policy(name, cluster="1xV100,1xA100")
    assert len(run_policy(name, cluster="1xA100,2xV100").jct_s) == 2
