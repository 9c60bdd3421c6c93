"""A live run's journal, measured like a simulated run: from the first decision to the last completion.

In virtual time planning takes no time and no energy is spent before the first start. So time and energy count here
from the moment when the first decision was carried out; the time before it is reported apart.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from heshare.ops.jobs.entries import End
from heshare.ops.jobs.run_state import RunState
from heshare.shared.errors import DeviceError


@dataclass(frozen=True)
class MeasuredRun:
    """A live run in which every job completed.

    Attributes:
        jobs: one row a job: job, gpu (of its last attempt), attempts, jct_s, loading_s (from the start of that attempt
            to its first iteration), sm_mhz (at its end).
        makespan_s: when the last job completed, s.
        energy_active_j: each GPU until its last job ends, by its counter, J.
        energy_cluster_j: all GPUs until the makespan, by their counters, J.
        before_s: from the start of the run until the first decision: opening the GPUs, and planning, s.
        sharing: `mps` or `time-slice`: how jobs shared each GPU.
        limits: limits that were observed to hold clocks down.
        notes: notes for the operator.
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

    Attributes:
        jobs: their keys.
        started_s: when the first of them was started, s.
        begun_s: when all of them began, s.
        ended_s: when the last of them ended, s.
    """

    jobs: tuple[str, ...]
    started_s: float
    begun_s: float
    ended_s: float


def measured_run(state: RunState, arrivals_s: Mapping[str, float]) -> MeasuredRun:
    """Return the times and energies of a run; `arrivals_s` is when each job arrived, s from the start of the run.

    Raises:
        DeviceError: it was not one run from its beginning to its end in which every job completed.
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
    if session.first_action is None or session.sample is None:
        raise DeviceError("A live run decided nothing. See its report.")
    decision, before = session.first_action
    begin_s, begin_j = decision.decided_s, [gpu.energy_j for gpu in before.gpus] if before else []
    # A GPU on which nothing ran has spent nothing on the active account.
    active_j = [
        max((end.gpu_j for end in attempts if end.gpu == gpu), default=begin_j[gpu]) for gpu in range(len(state.gpus))
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
        energy_cluster_j=sum(gpu.energy_j for gpu in session.sample.gpus) - sum(begin_j),
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
