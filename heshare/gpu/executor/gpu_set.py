"""The GPUs of a run as a context manager: taken at its begin, given back at its end, whatever ends it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self
from uuid import uuid4

from heshare.gpu.executor.gpu_readings import Timeouts
from heshare.gpu.executor.local_device import LocalExecutorDevice
from heshare.gpu.remote.remote_client import RemoteDevice
from heshare.gpu.workers.job_process import AssignedJob
from heshare.signals import InterruptHandler, handling

ExecutorDevice = LocalExecutorDevice | RemoteDevice
"""A GPU that runs jobs, here or on another host: a `Device` with accounts of its jobs and its energy."""


class GpuSet:
    """The GPUs of a run: those of this machine, or of several hosts.

    Signals that would end the process raise `Interrupted` within the `with`, and are ignored while the GPUs are given back.

    Args:
        uuids: the GPUs.
        jobs: the jobs by task id.
        now_s: the time of the run, which all devices share, s.
        allow_clocks: let policies lock clocks.
        timeouts: how long to wait.

    Attributes:
        devices: one for each GPU, in order; there once the `with` has begun.
        token: the mark of the run's processes.
        attempts: the number of attempts at each job so far, on all of the GPUs.
    """

    def __init__(
        self,
        uuids: Sequence[str],
        jobs: Mapping[int, AssignedJob],
        now_s: Callable[[], float],
        *,
        allow_clocks: bool,
        timeouts: Timeouts,
    ) -> None:
        self.devices: list[ExecutorDevice] = []
        self.token = uuid4().hex
        self.attempts = {task: job.attempts for task, job in jobs.items()}
        self._uuids, self._jobs, self._now_s = uuids, jobs, now_s
        self._clocks, self._timeouts = allow_clocks, timeouts
        self._interrupts = InterruptHandler()
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            exits.enter_context(handling(self._interrupts))
            self._open(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.ignore()
        self._exits.__exit__(kind, error, trace)

    def counters_j(self) -> list[float | None]:
        """Return each GPU's energy since its driver was loaded, J; None where that is unknown."""
        raise NotImplementedError

    def _open(self, exits: ExitStack) -> None:
        """Take the GPUs and fill `devices`; give back what `exits` has if that fails."""
        raise NotImplementedError
