"""Runs of policies on this machine's GPUs, measured from their journals; complete runs are stored and reused.

In simulated time planning takes no time, and no energy is spent before the first start. So time and energy of a live
run count from the time at which its first decision was carried out.
"""

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from heshare.ops.executor import execute
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import End
from heshare.ops.jobs.report import run_report
from heshare.ops.jobs.run_state import RunState
from heshare.ops.live.live_gpus import LiveGpu
from heshare.ops.live.live_task_set import JOB_PREFIX, job_file_text
from heshare.ops.live.loading_device import LoadingTimes
from heshare.policies.registry import canonical
from heshare.prediction.predictor import Predictor
from heshare.shared import files
from heshare.shared.code_version import package_version
from heshare.shared.errors import DeviceError, InputError
from heshare.world.task import Task

JOBS = "jobs.yaml"
STARTS_TOGETHER, STARTS_ONE_BY_ONE = "random:all-at-once", "random"
"""Policies without a predictor: one starts as many tasks at once as fit into memory, one starts one at a time."""
MAX_SINGLE_STARTS = 8
"""Most tasks that are started one after the other to measure loading times."""


@dataclass(frozen=True)
class MeasuredRun:
    """A live run in which every job completed.

    Attributes:
        jobs: one row a job: job, gpu (of its last attempt), attempts, jct_s, loading_s (from the start of that attempt
            to its first iteration), sm_mhz (at its end).
        energy_active_j: each GPU until its last job ends, by its counter, J.
        energy_cluster_j: all GPUs until the makespan, by their counters, J.
        before_s: from the start of the run to the first decision, for opening the GPUs and planning, s.
        sharing: `mps` or `time-slice`: how jobs shared each GPU.
        limits: observed clock limits.
    """

    jobs: pd.DataFrame
    makespan_s: float
    energy_active_j: float
    energy_cluster_j: float
    before_s: float
    sharing: tuple[str, ...]
    limits: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def avg_jct_s(self) -> float:
        """Average JCT (Eq. 9), s."""
        return float(self.jobs["jct_s"].mean())


@dataclass(frozen=True, slots=True)
class LoadedJobs:
    """Jobs that loaded together on a GPU.

    The first was started at `started_s`, all began at `begun_s`, and the last ended at `ended_s`, s.
    """

    jobs: tuple[str, ...]
    started_s: float
    begun_s: float
    ended_s: float


def measured_run(state: RunState, arrivals_s: Mapping[str, float]) -> MeasuredRun:
    """Return the times and energies of a run; `arrivals_s` is when each job arrived, s from the start of the run.

    Raises:
        DeviceError: it has more than one session, or a job that did not complete.
    """
    attempts = [end for session in state.sessions for end in session.ends]
    completed = {end.job: end for end in attempts if end.completed}
    missing = sorted(set(arrivals_s) - set(completed))

    if missing or len(state.sessions) != 1:
        reasons = "; ".join(end.reason for end in attempts if end.job in missing and end.reason)
        raise DeviceError(
            f"A live run did not complete {', '.join(missing) or 'in one piece'}: {reasons or 'no reason'}."
        )
    (session,) = state.sessions
    if session.first_action is None:
        raise DeviceError("A live run has no decision. See its report.")

    decision, before = session.first_action
    begin_s, begin_j = decision.decided_s, [account.energy_j for account in before]

    # A GPU on which nothing ran has no active energy.
    active_j = [
        max((end.account.energy_j for end in attempts if end.gpu == gpu), default=begin_j[gpu])
        for gpu in range(len(state.gpus))
    ]

    rows = [
        {
            "job": job,
            "gpu": end.gpu,
            "attempts": sum(attempt.job == job for attempt in attempts),
            "jct_s": end.end_s - max(begin_s, arrivals_s[job]),
            "loading_s": math.nan if end.released_s is None else end.released_s - end.start_s,
            "sm_mhz": math.nan if end.sm_mhz is None else end.sm_mhz,
        }
        for job, end in sorted(completed.items())
    ]

    return MeasuredRun(
        jobs=pd.DataFrame(rows),
        makespan_s=max(end.end_s for end in completed.values()) - begin_s,
        energy_active_j=sum(active_j) - sum(begin_j),
        energy_cluster_j=sum(gpu.energy_j for gpu in state.gpus) - sum(begin_j),
        before_s=begin_s,
        sharing=tuple(gpu.sharing for gpu in session.session.gpus),
        limits=tuple(sorted({limit for end in attempts for limit in end.limits})),
        notes=tuple(note.text for note in session.notes),
    )


def loaded_jobs(state: RunState) -> Iterator[LoadedJobs]:
    """Yield the jobs that loaded together, by GPU, in their order."""
    ends = [(end.released_s, end) for session in state.sessions for end in session.ends if end.released_s is not None]

    def gpu_and_release(pair: tuple[float, End]) -> tuple[int, float]:
        return pair[1].gpu, pair[0]

    for (_, released_s), group in groupby(sorted(ends, key=gpu_and_release), key=gpu_and_release):
        together = [end for _, end in group]
        yield LoadedJobs(
            tuple(sorted(end.job for end in together)),
            min(end.start_s for end in together),
            released_s,
            max(end.end_s for end in together),
        )


@dataclass(frozen=True)
class LiveRuns:
    """The live runs of one comparison.

    `folder` is for the runs and their job files. `conditions` are the values that a run depends on besides its policy,
    such as GPUs, driver and profiles; runs under other conditions are not reused. `predictor` is called for each run.
    """

    folder: Path
    devices: str
    conditions: Mapping[str, Any]
    predictor: Callable[[], Predictor]
    seed: int
    allow_clocks: bool
    options: execute.ExecutorOptions

    def is_stored(self, tasks: Sequence[Task], policy: str) -> bool:
        """Return whether a complete run of the tasks under the policy is stored."""
        return is_complete(self._run_folder(_file_name(policy), job_file_text(tasks), policy, self.devices))

    def run_policy(self, tasks: Sequence[Task], policy: str) -> MeasuredRun:
        state = self._journal(_file_name(policy), tasks, policy, self.devices)
        return measured_run(state, {f"{JOB_PREFIX}{task.id}": task.arrival_s for task in tasks})

    def measure_loading_times(
        self, live: LiveGpu, tasks: Sequence[Task], predictor: Predictor, *, warm_s: float = 0.0
    ) -> LoadingTimes:
        """Measure the times of starting and ending the processes of tasks.

        The jobs of the task set run one iteration each: all together, then some one after the other. The first run,
        which fills the machine's disk cache, is not used. `warm_s` is the warm-up time of the workers, s.
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
        folder = self._run_folder(name, text, policy, devices)

        if not is_complete(folder):
            # A run of several sessions is no measurement, so an interrupted run is repeated.
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
                    f"See {folder}; complete runs are stored: run the same command again."
                )

        return run_journal.read_state(folder / "run")

    def _run_folder(self, name: str, text: str, policy: str, devices: str) -> Path:
        identity = {
            **self.conditions,
            "jobs": text,
            "policy": canonical(policy),
            "devices": devices,
            "seed": self.seed,
            "clocks": self.allow_clocks,
            "code": package_version(),
        }
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        return self.folder / f"{name}-{key}"


def is_complete(folder: Path) -> bool:
    """Return whether a folder has a complete run of one session."""
    try:
        state = run_journal.read_state(folder / "run")
    except (InputError, OSError):
        return False
    return len(state.sessions) == 1 and (folder / "run" / "report.txt").is_file() and run_report(state).complete


def _in_order_of_start(state: RunState) -> list[LoadedJobs]:
    jobs = sorted(loaded_jobs(state), key=lambda together: together.started_s)
    if not jobs:
        raise DeviceError("No job was started. See the outputs of the runs called start-*.")
    return jobs


def _file_name(policy: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", policy.lower()).strip("-")


def _number(job: LoadedJobs) -> int:
    return int(job.jobs[0].removeprefix(JOB_PREFIX))
