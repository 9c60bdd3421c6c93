"""Event loop against Gavel's own simulator: the same jobs under FIFO on 16 V100 (`data/gavel/`)."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from support.policy_runs import run_emulated, run_on_toys

from heshare.prediction.oracle import DevicePredictor
from heshare.shared import files
from heshare.testing.toy import toy_gpu
from heshare.world.catalogue import gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

LIGHT = Workload("resnet18", 4)


def read_jobs(name):
    jobs = pd.read_csv(files.data("gavel", "fifo_jobs.csv"))
    return jobs[jobs["set"] == name].reset_index(drop=True)


def as_tasks(jobs, iteration_s=1.0):
    return [
        Task(job.Index, LIGHT, job.duration_s / iteration_s, float(job.arrival_s), gpus=job.gpus)
        for job in jobs.itertuples()
    ]


@cache
def jct_s(name):
    """Completion times here, where an iteration takes 1 s."""
    return run_on_toys(as_tasks(read_jobs(name)), "fifo", (toy_gpu(),) * 16).jct_s


@pytest.mark.parametrize("name", ["single", "gangs"])
def test_exact_jobs(name):
    """Every job completes when it does in Gavel, where rounds cannot matter."""
    jobs = read_jobs(name)
    assert len(jobs) == 200
    assert (jobs["exact_jct_s"] > jobs["duration_s"]).any(), "no job waits"
    np.testing.assert_allclose(jct_s(name), jobs["exact_jct_s"], rtol=0, atol=1e-9)


def test_emulated_gpus():
    """The same holds on emulated GPUs, whose iterations are no round numbers."""
    jobs = read_jobs("gangs")
    iteration_s = DevicePredictor().solo([LIGHT], gpu("V100")).time_s[0, 0]
    result = run_emulated(as_tasks(jobs, iteration_s), "fifo", "16xV100")
    np.testing.assert_allclose(result.jct_s, jobs["exact_jct_s"], rtol=0, atol=1e-6)
