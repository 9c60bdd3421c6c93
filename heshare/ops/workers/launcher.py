"""Interfaces of a live device to its processes: a `Launcher` starts a `Worker` for each task.

The package's launcher runs models in PyTorch (`heshare.ops.workers.worker_pool`); tests use processes that only count.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from heshare.world.workload import Workload


class Worker(Protocol):
    """The process of one task on the GPU; its values are those of the last `poll`."""

    @property
    def pid(self) -> int:
        """The process, or 0 before there is one."""

    @property
    def ready(self) -> bool:
        """Whether the worker has loaded its model and warmed up."""

    @property
    def done(self) -> float:
        """Iterations completed, counted after warm-up."""

    @property
    def time_s(self) -> float:
        """Present time per iteration, s, NaN before the first."""

    @property
    def finished(self) -> bool:
        """Whether all requested iterations are done."""

    @property
    def failure(self) -> str | None:
        """The reason of its failure, one line, or None."""

    def go(self) -> None:
        """Let it begin its first iteration as soon as it is ready. Idempotent."""

    def poll(self) -> None:
        """Read the reports of the process; never blocks, and never raises for a failure of the process."""

    def stop(self) -> float:
        """End the task in any state and wait for its end; return the iterations done. Idempotent."""


class Launcher(ABC):
    """Base class of launchers of worker processes on a GPU."""

    @abstractmethod
    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> Worker:
        """Start one worker and return at once; it reports `ready` later, and then waits for `Worker.go`.

        Its share of the SMs, `mps_pct` %, is set in its environment before it has a CUDA context. Without `iterations`
        it runs until it is stopped.

        Raises:
            DeviceError: the process cannot be started.
        """

    def stand_by(self) -> None:  # noqa: B027 (optional)
        """Start spare processes, which import their libraries before the first task is started."""

    def end_idle_workers(self) -> None:  # noqa: B027
        """End idle processes that are reused between tasks, and wait until their GPU memory is free."""

    def close(self) -> None:  # noqa: B027
        """End every process. Idempotent."""
