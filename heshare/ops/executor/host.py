"""What a run uses of this machine: its cards, MPS, processes and time; tests put another machine in its place."""

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from multiprocessing import connection
from pathlib import Path
from typing import Any

from heshare.ops.executor.job_process import AssignedJob, CommandWorker
from heshare.ops.keeper import Keeper
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
        """Return the clock of a run, which begins now."""
        return WallClock()

    def survey(self) -> Sequence[SurveyedCard]:
        """Return the cards of the machine."""
        return survey()

    def reader(self, deadline_s: float) -> CardReader:
        """Return what reads and clocks the cards; a call may take `deadline_s`, s."""
        return CardReader(deadline_s)

    def keeper(self, locks: Sequence[int], tell: Callable[[str], object]) -> Keeper:
        """Start the process that restores clocks and MPS when this one ends."""
        return Keeper(locks, tell=tell)

    def sharing(self) -> str:
        """Return how jobs would share a card here: `mps`, or `time-slice` where its program is missing."""
        return MPS if shutil.which(CONTROL) else TIME_SLICE

    def mps(self, uuid: str) -> MpsSession:
        """Return an MPS session for a card, which is not started yet."""
        return MpsSession(uuid)

    def models_lack(self) -> str:
        """Return what is missing for workloads of Table IV and how to install it; empty if nothing is."""
        lacking = [name for name in LIBRARIES["live"] if find_spec(name) is None]
        return f"{', '.join(lacking)} missing: {install_command('live')}" if lacking else ""

    def models(self, mps: MpsSession, outputs: Path) -> Launcher:
        """Return what starts workloads of Table IV as clients of an MPS session."""
        return ProcessLauncher(mps, log_dir=outputs)

    def command(
        self, job: AssignedJob, log: Path, iterations: float, variables: Mapping[str, str], grace_s: float
    ) -> Worker:
        """Start the command of a job, with further variables in its environment.

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
