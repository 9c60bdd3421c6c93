"""One run of jobs on the machine in memory."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from support.simulator.cards import JobPlan
from support.simulator.disk import SimPath
from support.simulator.edges import SimMachine
from support.simulator.kernel import Process

from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.jobs.job_file import JobSpec
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.testing.toy import ToyPredictor
from heshare.world import catalogue
from heshare.ops.jobs import entries
from heshare.world.workload import Resident, Workload

TIMEOUTS = Timeouts(poll_s=5.0, memory_s=10.0, nvml_s=2.0, grace_s=1.0, settle_s=2.0, mps_pauses_s=(1.0, 4.0))


def spec(name: str, **more: Any) -> JobSpec:
    given = {"timeout_s": None, "retries": 0, "memory_mib": 1000.0, "arrival_s": 0.0, **more}
    return JobSpec(
        name, (name,), Workload("resnet50", 8), 100.0, None, 1, directory=SimPath("/home"), environment=(), row=1, **given
    )


def start(machine: SimMachine, folder: str, specs: tuple[JobSpec, ...], *, resume: bool = False, **given: Any) -> Process:
    process = Process(machine, "executor", machine.environment(FOLDER=folder), None)
    options = execute.ExecutorOptions(timeouts=TIMEOUTS)

    def program() -> None:
        if resume:
            process.outcome = execute.resume(SimPath(folder), predictor=ToyPredictor(), options=options)
        else:
            process.outcome = execute.execute(
                SimPath("/home/jobs.yaml"), SimPath(folder), policy="random", devices="nvml", predictor=ToyPredictor(),
                options=options, **given,
            )

    process.run(program)
    return process


def warm() -> None:
    """Read what modules keep for good, from the real disk, before they run on the machine in memory."""
    gpu, workload = catalogue.gpus()["H100"], Workload("resnet50", 8)
    TenantPower().shares_j(gpu, [Resident(workload, 100), Resident(workload, 50)], 1980.0, 10.0, 1.0)
    catalogue.memory_mib(workload)
    entries.decode(entries.encode(entries.Run("random", (spec("a"),))))
