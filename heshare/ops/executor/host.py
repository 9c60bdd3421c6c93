"""Interface of the executor to this machine: GPUs, MPS, processes and time; tests substitute a simulated one."""

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from multiprocessing import connection
from pathlib import Path
from typing import Any

from heshare.ops.cleanup import CleanupProcess
from heshare.ops.executor.job_process import AssignedJob, CommandWorker
from heshare.ops.mps import CONTROL, MPS, TIME_SLICE, MpsSession
from heshare.ops.nvml.card_reader import CardReader
from heshare.ops.nvml.card_survey import SurveyedCard, survey
from heshare.ops.workers.launcher import Launcher, Worker
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.running.clock import Clock, WallClock
from heshare.shared.extras import LIBRARIES, install_command


class Host:
    """This machine."""

    def clock(self) -> Clock:
        """Return the clock of a run that begins now."""
        return WallClock()

    def survey(self) -> Sequence[SurveyedCard]:
        """Return the cards of the machine."""
        return survey()

    def reader(self, deadline_s: float) -> CardReader:
        """Return the reader of the GPUs; a call may take `deadline_s`, s."""
        return CardReader(deadline_s)

    def cleanup_process(self, locks: Sequence[int], report: Callable[[str], object]) -> CleanupProcess:
        """Start the process that restores clocks and MPS when this one ends."""
        return CleanupProcess(locks, report=report)

    def sharing(self) -> str:
        """Return how jobs would share a GPU: `mps`, or `time-slice` if the MPS program is not installed."""
        return MPS if shutil.which(CONTROL) else TIME_SLICE

    def mps(self, uuid: str) -> MpsSession:
        """Return an MPS session for a GPU, which is not started yet."""
        return MpsSession(uuid)

    def models_lack(self) -> str:
        """Return the missing libraries of workloads of Table IV and how to install them; empty if none is missing."""
        lacking = [name for name in LIBRARIES["live"] if find_spec(name) is None]
        return f"{', '.join(lacking)} missing: {install_command('live')}" if lacking else ""

    def models(self, mps: MpsSession, outputs: Path) -> Launcher:
        """Return the launcher of workloads of Table IV as clients of an MPS session."""
        return ProcessLauncher(mps, log_dir=outputs)

    def command(
        self, job: AssignedJob, log: Path, iterations: float, variables: Mapping[str, str], grace_s: float
    ) -> Worker:
        """Start the command of a job with additional environment variables.

        Raises:
            DeviceError: it does not start.
        """
        spec = job.spec
        return CommandWorker(
            job.key,
            spec.command,
            directory=spec.directory,
            environment={**os.environ, **dict(spec.environment), **variables},
            log=log,
            iterations=iterations,
            grace_s=grace_s,
            output_mib=spec.output_mib,
        )

    def wait(self, descriptors: Collection[int], timeout_s: float) -> list[Any]:
        """Wait until one of the descriptors is readable, at most `timeout_s`, s; return those that are."""
        return connection.wait(descriptors, timeout_s)
