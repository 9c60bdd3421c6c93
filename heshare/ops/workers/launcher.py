"""The interface between a live device and what starts processes: a `Launcher` starts a `Worker` for each task.

The device handles clocks, power and counters; the launcher runs models. The package's own launcher starts PyTorch
(`heshare.ops.workers.worker_pool`); that of the tests starts processes that only count.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from heshare.world.workload import Workload


class Worker(Protocol):
    """One task on the GPU, in a process of its own; its values are those of the last `poll`."""

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
        """Seconds per iteration at present, NaN before the first."""

    @property
    def finished(self) -> bool:
        """Whether all requested iterations are done."""

    @property
    def failure(self) -> str | None:
        """Why it failed, one line, or None."""

    def go(self) -> None:
        """Let it begin its first iteration, as soon as it is ready. May be repeated."""

    def poll(self) -> None:
        """Read what the process has reported; never blocks, never raises for what the process did."""

    def stop(self) -> float:
        """End the task, whatever its state, and wait for its end; return the iterations done. May be repeated."""


class Launcher(ABC):
    """Base class of what starts worker processes on a GPU."""

    @abstractmethod
    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> Worker:
        """Start one worker and return at once; it reports `ready` later, and then waits for `Worker.go`.

        Its share of the SMs, `mps_pct` %, is set in its environment before it has a CUDA context. Without `iterations`
        it runs until it is stopped. Raises DeviceError where the process cannot be started.
        """

    def stand_by(self) -> None:  # noqa: B027 (what a launcher without such processes does: nothing)
        """Have processes import what they need before the first task is started."""

    def end_idle_workers(self) -> None:  # noqa: B027
        """End processes that are kept between tasks, and wait until the GPU has their memory back."""

    def close(self) -> None:  # noqa: B027
        """End every process. May be repeated."""
