"""Runs of policies on this machine's GPUs: a complete run is kept and reused, an interrupted one is repeated.

The times that processes take to start and to end are measured by runs of their own, before any policy.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from heshare.ops.executor import execute
from heshare.ops.executor.outcome import run_outcome
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.run_state import RunState
from heshare.ops.live.live_gpus import LiveGpu
from heshare.ops.live.live_journal import LoadedJobs, MeasuredRun, loaded_jobs, measured_run
from heshare.ops.live.live_task_set import JOB_PREFIX, job_file_text
from heshare.ops.live.loading_device import LoadingTimes
from heshare.policies.registry import canonical
from heshare.prediction.predictor import Predictor
from heshare.shared import files
from heshare.shared.code_version import code_version
from heshare.shared.errors import DeviceError, InputError
from heshare.world.task import Task

JOBS = "jobs.yaml"
STARTS_TOGETHER = "random"
"""A policy that predicts nothing, and starts as many tasks at once as the memory holds."""
STARTS_ONE_BY_ONE = "heshare:trade-off(batching=single,clock_scope=none,generations=2,population=12)"
"""A policy that starts one task after the other."""
MAX_SINGLE_STARTS = 8
"""Most tasks that are started one after the other to measure loading times."""


@dataclass(frozen=True)
class LiveRuns:
    """The live runs of one comparison.

    Attributes:
        folder: of the runs and their job files.
        devices: the GPUs, such as `nvml`.
        conditions: what a run depends on besides its policy, such as GPUs, driver and profiles; runs made under other
            conditions are not reused.
        predictor: makes the policies' predictor; called for each run.
        seed: of the policies.
        allow_clocks: let policies lock clocks.
        options: of the executor.
    """

    folder: Path
    devices: str
    conditions: Mapping[str, Any]
    predictor: Callable[[], Predictor]
    seed: int
    allow_clocks: bool
    options: execute.ExecutorOptions

    def run_policy(self, tasks: Sequence[Task], policy: str) -> MeasuredRun:
        """Return the measurements of a policy's run on all GPUs.

        Raises:
            DeviceError: a job did not complete, or a GPU cannot be used.
            Interrupted: a signal requested the end; complete runs are kept.
        """
        name = re.sub(r"[^a-z0-9]+", "-", policy.lower()).strip("-")
        state = self._journal(name, tasks, policy, self.devices)
        return measured_run(state, {f"{JOB_PREFIX}{task.id}": task.arrival_s for task in tasks})

    def measure_loading_times(
        self, live: LiveGpu, tasks: Sequence[Task], predictor: Predictor, *, warm_s: float = 0.0
    ) -> LoadingTimes:
        """Return how long the processes of tasks take to start and to end.

        The jobs of the task set run one iteration each: all of them together, then some one after the other. The first
        start of all fills the machine's disk cache and is not used.

        Args:
            live: the GPU to start them on.
            tasks: the task set.
            predictor: predicts how long the one iteration takes.
            warm_s: how long workers are set to warm up, s; not measured.

        Raises:
            DeviceError, Interrupted: as `run_policy`.
        """
        short, device = [replace(task, iterations=1) for task in tasks], f"nvml:{live.uuid}"
        for name in ("start-cold", "start-warm"):
            together = _in_order_of_start(self._journal(name, short, STARTS_TOGETHER, device))[0]
        single = _in_order_of_start(self._journal("start-alone", short[:MAX_SINGLE_STARTS], STARTS_ONE_BY_ONE, device))
        one_s = median(job.begun_s - job.started_s for job in single)
        others = len(together.jobs) - 1
        more_s = (together.begun_s - together.started_s - one_s) / others if others else 0.0
        gaps_s = [after.started_s - before.ended_s for before, after in pairwise(single)]
        iteration_s = predictor.solo([tasks[_number(job)].workload for job in single], live.gpu).time_s[:, 0]
        exits_s = [job.ended_s - job.begun_s - float(time_s) for job, time_s in zip(single, iteration_s, strict=True)]
        return LoadingTimes(
            one_s=one_s,
            more_s=max(0.0, more_s),
            exit_s=max(0.0, median(exits_s)),
            end_s=max(0.0, median(gaps_s or [0.0])),
            warm_s=min(warm_s, one_s),
        )

    def _journal(self, name: str, tasks: Sequence[Task], policy: str, devices: str) -> RunState:
        text = job_file_text(tasks)
        folder = self.folder / f"{name}-{self._key(text, policy, devices)}"
        if not is_complete(folder):
            # A run with a break in it is no measurement: one that was interrupted begins again.
            shutil.rmtree(folder, ignore_errors=True)
            run = execute.execute(
                files.write_text(folder / JOBS, text),
                folder / "run",
                policy=policy,
                devices=devices,
                predictor=self.predictor(),
                seed=self.seed,
                allow_clocks=self.allow_clocks,
                options=self.options,
            )
            if not run.complete:
                failed = run.jobs[run.jobs["outcome"] != "completed"].iloc[0]
                raise DeviceError(
                    f"{policy}: {failed['job']} {failed['outcome']}: {failed['reason'] or 'no reason given'}. "
                    f"See {folder}; complete runs are kept, run the same command again."
                )
        return run_journal.read_state(folder / "run")

    def _key(self, text: str, policy: str, devices: str) -> str:
        identity = {
            **self.conditions,
            "jobs": text,
            "policy": canonical(policy),
            "devices": devices,
            "seed": self.seed,
            "clocks": self.allow_clocks,
            "code": code_version(__name__),
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def is_complete(folder: Path) -> bool:
    """Return whether a folder holds a run that went from its beginning to its end in one piece."""
    try:
        state = run_journal.read_state(folder / "run")
    except (InputError, OSError):
        return False
    return len(state.sessions) == 1 and (folder / "run" / "report.txt").is_file() and run_outcome(state).complete


def _in_order_of_start(state: RunState) -> list[LoadedJobs]:
    jobs = sorted(loaded_jobs(state), key=lambda together: together.started_s)
    if not jobs:
        raise DeviceError("No job was started. See the outputs of the runs called start-*.")
    return jobs


def _number(job: LoadedJobs) -> int:
    return int(job.jobs[0].removeprefix(JOB_PREFIX))
