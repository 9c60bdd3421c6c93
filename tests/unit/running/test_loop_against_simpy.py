"""The event loop under FIFO gives the same run as two SimPy programs on the same trace."""

import importlib.util
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.policy_runs import run_emulated

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.testing.toy import ToyPredictor
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident


@pytest.fixture(scope="module")
def program():
    path = Path(__file__).parents[3] / "benchmarks" / "simpy_fifo.py"
    spec = importlib.util.spec_from_file_location("simpy_fifo", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@cache
def estimate(workloads):
    found = co_run(gpu("V100"), [Resident(workload) for workload in workloads])
    return found if workloads else replace(found, power_w=default().power["V100"].parked_w)


@pytest.mark.parametrize("how", ["by_device", "by_job"])
@pytest.mark.parametrize(("gpus", "load", "seed"), [(16, 0.5, 0), (16, 1.5, 1), (64, 1.0, 2)])
def test_simpy(program, how, gpus, load, seed):
    """The loop gives the run of the SimPy programs."""
    tasks, _ = venus_tasks(300, rng=np.random.default_rng(seed), gpus=gpus, load=load)
    ours = run_emulated(tasks, "fifo", f"{gpus}xV100", predictor=ToyPredictor())
    theirs = getattr(program, how)(tasks, gpus, estimate)
    mine = program.stretches(ours.record.intervals)
    # At equal times the order of completions is that of the plan here and that of processes there.
    mine, others = (sorted(each, key=lambda one: (round(one.end_s, 4), one.task)) for each in (mine, theirs.stretches))
    assert [(one.task, one.gpus) for one in mine] == [(one.task, one.gpus) for one in others]
    for name in ("start_s", "end_s"):
        np.testing.assert_allclose(
            *[[getattr(one, name) for one in each] for each in (mine, others)], rtol=1e-9, atol=1e-6
        )
    np.testing.assert_allclose(ours.gpu_energy_cluster_j, theirs.energy_j, rtol=1e-9)
    assert any(one.start_s > tasks[one.task].arrival_s for one in mine)
