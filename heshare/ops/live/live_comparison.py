"""Live comparison: the same tasks under the same policies on this machine's GPUs and in the simulator.

The GPUs are recorded, each policy is run, and each run is simulated with the same predictions and random numbers.
Recordings and complete runs are stored and reused, so a comparison can be continued after its time is over or after an
interruption.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants, default
from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.calibration import own_record
from heshare.ops.executor import execute
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.live import live_gpus
from heshare.ops.live.live_runs import LiveRuns, MeasuredRun
from heshare.ops.live.live_task_set import MIN_MODELS, draw_live_tasks
from heshare.ops.live.loading_device import LoadingDevice, LoadingTimes
from heshare.ops.workers.worker_pool import WARM_S
from heshare.policies.registry import canonical, make
from heshare.prediction.load import predictor_factory
from heshare.prediction.predictor import Predictor
from heshare.profiles import store
from heshare.profiles.visit import MeasurementProtocol
from heshare.running.result import Run
from heshare.running.run import run
from heshare.shared.code_version import files_hash
from heshare.world.cluster import Cluster
from heshare.world.task import Task

POLICIES = ("random", "sched-only", "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt", "morak", "mu-serve")
FIRST_POLICIES = ("heshare:trade-off", "random", "sched-only")
"""Those that run first, since Fig. 6 compares the others with them."""
TASKS_PER_GPU = 3
"""Number of tasks for each GPU, unless it is given; there are at least `MIN_MODELS`."""
DEVICE_MODELS = ("fitted", "shipped")
"""The compared device models: the one fitted to the profiles of these GPUs, and the package's."""


@dataclass(frozen=True)
class LiveComparisonConfig:
    """What a live comparison compares, and its size.

    `devices` is `nvml` for every GPU, or `nvml:0,nvml:1`. `tasks` None means `TASKS_PER_GPU` for each. `minutes` is the
    time of the task set with tasks run one after the other, spread over the GPUs; each type of GPU is recorded for
    `budget_s`, s. `allow_clocks` lets recorder and policies lock clocks.
    """

    devices: str = "nvml"
    policies: tuple[str, ...] = POLICIES
    tasks: int | None = None
    minutes: float = 0.5
    budget_s: float = 240.0
    seed: int = 0
    allow_clocks: bool = False


@dataclass(frozen=True)
class LiveOptions:
    """Options that do not change the comparison, most of them for tests.

    A call begins no run of a policy that would probably end later than `time_s`, s, after the call began, but always
    one. `opener` opens a GPU for the recorder; workers warm up for `warm_s`, s, before they begin; `report` is called
    with a text before each step.
    """

    execute: execute.ExecutorOptions = field(default_factory=execute.ExecutorOptions)
    time_s: float = math.inf
    protocol: MeasurementProtocol | None = None
    opener: live_gpus.OpenGpu = live_gpus.open_gpu
    warm_s: float = WARM_S
    report: Callable[[str], object] = lambda text: None
    progress: bool = True


@dataclass(frozen=True)
class LiveComparison:
    """The result: measured runs, and simulations of the same.

    `emulated` is whether the GPUs were stand-ins of the tests, without a measurement on a real GPU. `records` are the
    files of their profiles, `table` has all rows, `loading` the measured times of starting and ending processes.
    `measured` is by policy, without those that have not run yet; `simulated` by device model (`DEVICE_MODELS`) and
    policy. `without_loading` are simulations on the fitted device model in which starting and ending processes takes no
    time, by policy.
    """

    config: LiveComparisonConfig
    gpus: tuple[live_gpus.LiveGpu, ...]
    emulated: bool
    records: tuple[Path, ...]
    table: pd.DataFrame
    tasks: tuple[Task, ...]
    loading: LoadingTimes
    measured: dict[str, MeasuredRun]
    simulated: dict[str, dict[str, Run]]
    without_loading: dict[str, Run]

    @property
    def left(self) -> tuple[str, ...]:
        """The policies that have not run yet."""
        return tuple(policy for policy in self.config.policies if policy not in self.measured)


def run_live_comparison(
    config: LiveComparisonConfig, folder: Path, options: LiveOptions | None = None
) -> LiveComparison:
    """Run a live comparison, or as much of the rest of it as fits into the time of a call.

    `folder` has the finished recordings and runs.

    Raises:
        DeviceError: no GPU, one that cannot be used, or a job that did not complete.
        InputError: an unknown policy or GPU, too few tasks, too short a budget.
        Interrupted: by a signal; the same call continues the comparison.
    """
    options = options or LiveOptions()
    until_s = time.monotonic() + options.time_s
    for policy in config.policies:
        make(policy)

    gpus = live_gpus.find_live_gpus(config.devices, allow_clocks=config.allow_clocks)

    names = ", ".join(dict.fromkeys(live.gpu.name for live in gpus))
    options.report(f"Recording {names}, {config.budget_s / 60:g} min each")
    records = live_gpus.record_profiles(
        gpus,
        folder,
        budget_s=config.budget_s,
        seed=config.seed,
        protocol=options.protocol,
        opener=options.opener,
        progress=options.progress,
    )

    table = pd.concat(map(store.read, records), ignore_index=True)
    predictor, cluster = predictor_factory(table), live_gpus.cluster_of(gpus)
    count = config.tasks or max(MIN_MODELS, TASKS_PER_GPU * len(gpus))
    tasks = draw_live_tasks(count, cluster, table, predictor(), minutes=config.minutes, seed=config.seed)

    runs = LiveRuns(
        folder / "runs",
        config.devices,
        _conditions(gpus, records),
        predictor,
        config.seed,
        config.allow_clocks,
        options.execute,
    )

    options.report("Measuring what starting and ending processes takes")
    loading = runs.measure_loading_times(gpus[0], tasks, predictor(), warm_s=options.warm_s)

    measured = run_policies(runs, tasks, config.policies, lambda: until_s - time.monotonic(), options.report)

    options.report("Simulating the same runs")

    def simulated(constants: Constants, times: LoadingTimes) -> dict[str, Run]:
        return {
            policy: simulate(tasks, cluster, policy, predictor(), constants, times, config.seed) for policy in measured
        }

    models = device_models(table)
    return LiveComparison(
        config,
        gpus,
        live_gpus.nvml_is_emulated(),
        records,
        table,
        tasks,
        loading,
        measured,
        {model: simulated(constants, loading) for model, constants in models.items()},
        simulated(models["fitted"], LoadingTimes()),
    )


def run_policies(
    runs: LiveRuns,
    tasks: Sequence[Task],
    policies: Sequence[str],
    time_left_s: Callable[[], float],
    report: Callable[[str], object],
) -> dict[str, MeasuredRun]:
    """Return the runs of policies, those of `FIRST_POLICIES` measured first, while there is time for another.

    A policy whose run is not stored is left out if the longest run so far took longer than `time_left_s()`, s; at
    least one is run.
    """
    measured: dict[str, MeasuredRun] = {}
    has_run = False

    for policy in sorted(policies, key=_place_in_order):
        if not runs.is_stored(tasks, policy):
            likely_s = max((one.before_s + one.makespan_s for one in measured.values()), default=0.0)
            if has_run and likely_s > time_left_s():
                continue
            has_run = True
            report(f"Running {len(tasks)} tasks under {policy}")
        measured[policy] = runs.run_policy(tasks, policy)

    return {policy: measured[policy] for policy in policies if policy in measured}


def _place_in_order(policy: str) -> int:
    name = canonical(policy)
    return FIRST_POLICIES.index(name) if name in FIRST_POLICIES else len(FIRST_POLICIES)


def device_models(table: pd.DataFrame) -> dict[str, Constants]:
    """Return the constants of each of `DEVICE_MODELS`; workloads without a profile have the package's."""
    return {"fitted": own_record.fit_with(table).constants, "shipped": default()}


def simulate(
    tasks: Sequence[Task],
    cluster: Cluster,
    policy: str,
    predictor: Predictor,
    constants: Constants,
    loading: LoadingTimes,
    seed: int,
) -> Run:
    """Return the run of the executor's tasks in virtual time.

    `cluster` has the GPUs as the executor describes them to policies, `constants` are those of the device model, and
    `loading` has the times of starting and ending processes.
    """
    # The executor's first session uses the first child of its seed.
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    devices = [LoadingDevice(EmulatedDevice(gpu, constants=constants), loading) for gpu in cluster.gpus]
    return run(tasks, cluster, FaultTolerantPolicy(make(policy)), predictor=predictor, rng=rng, devices=devices)


def _conditions(gpus: tuple[live_gpus.LiveGpu, ...], records: tuple[Path, ...]) -> dict[str, Any]:
    return {
        "cards": [{"uuid": live.uuid, "gpu": asdict(live.gpu), "driver": live.facts.get("driver")} for live in gpus],
        "record": files_hash(records),
    }
