"""The launcher of a run's jobs on one GPU: commands as processes, workloads of Table IV by the model launcher."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from heshare.ops.descriptors import ShortageError
from heshare.ops.executor.host import Host
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.mps import MPS, MpsSession
from heshare.ops.workers.launcher import Launcher, Worker
from heshare.shared.processes import MARK
from heshare.world.workload import Workload


class JobLauncher(Launcher):
    """Starts the jobs of a run as clients of one GPU's MPS session, or time-sliced without MPS.

    Args:
        attempts: number of attempts at each task, shared by the launchers of a run, since a job may be retried on
            another GPU. A start that fails with `ShortageError` does not count.
        token: identifies every process of this run in its environment (`processes.MARK`).
        grace_s: time for a command to end after SIGTERM before SIGKILL, s.
    """

    def __init__(
        self,
        host: Host,
        jobs: Mapping[int, AssignedJob],
        mps: MpsSession,
        outputs: Path,
        *,
        attempts: dict[int, int],
        token: str,
        grace_s: float,
    ) -> None:
        self._host, self._jobs, self._mps, self._outputs = host, jobs, mps, outputs
        self._models = host.models(mps, outputs)
        self._attempts, self._token, self._grace_s = attempts, token, grace_s

    def attempt(self, task_id: int) -> int:
        """Return the number of attempts at a task so far."""
        return self._attempts[task_id]

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> Worker:
        """Start a job, as `Launcher.start`."""
        job = self._jobs[task_id]
        mps_pct = mps_pct if self._mps.sharing == MPS else 100
        with self._counted(task_id):
            if not job.spec.command:
                return self._models.start(task_id, workload, mps_pct, iterations, gpu_uuid=gpu_uuid)

            attempt = self._attempts[task_id]
            variables = {
                **self._mps.environment(mps_pct),
                "HESHARE_JOB": job.key,
                "HESHARE_JOB_INDEX": str(job.index),
                "HESHARE_ATTEMPT": str(attempt),
                MARK: self._token,
            }
            log = self._outputs / f"{job.key}.{attempt}.log"
            count = math.inf if iterations is None else iterations
            return self._host.command(job, log, count, variables, self._grace_s)

    def close(self) -> None:
        """End the processes of workloads."""
        self._models.close()

    @contextmanager
    def _counted(self, task_id: int) -> Iterator[None]:
        self._attempts[task_id] += 1
        try:
            yield
        except ShortageError:
            self._attempts[task_id] -= 1
            raise
