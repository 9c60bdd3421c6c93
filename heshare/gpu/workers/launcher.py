"""How a live device gets work onto its GPU: a `Launcher` starts `Worker`s, one process for each resident task.

The device knows clocks, power and counters; what runs a model is the launcher's business. A test's launcher starts
processes that only count; the package's own starts PyTorch (`heshare.gpu.workers.worker_pool`).
"""

from typing import Protocol, runtime_checkable

from heshare.world.workload import Workload


class Worker(Protocol):
    """One task on the GPU, in a process of its own; the figures are those of the last `poll`.

    Attributes:
        pid: the process, or 0 before there is one.
        ready: whether it has loaded, has warmed up and counts iterations.
        done: iterations completed, counted after warm-up.
        time_s: seconds per iteration at present, NaN before the first.
        finished: whether all the iterations that were asked for are done.
        failure: why it died, one line, or None.
    """

    @property
    def pid(self) -> int:
        """The process, or 0 before there is one."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it has loaded, has warmed up and counts iterations."""
        ...

    @property
    def done(self) -> float:
        """Iterations completed, counted after warm-up."""
        ...

    @property
    def time_s(self) -> float:
        """Seconds per iteration at present, NaN before the first."""
        ...

    @property
    def finished(self) -> bool:
        """Whether all the iterations that were asked for are done."""
        ...

    @property
    def failure(self) -> str | None:
        """Why it died, one line, or None."""
        ...

    def poll(self) -> None:
        """Take in what the process has said since; never blocks, never raises for what the process did."""
        ...

    def stop(self) -> float:
        """End the task, whatever its state, and wait for its end; returns the iterations done. May be repeated."""
        ...


class Launcher(Protocol):
    """Starts workers. One that keeps processes between tasks has `shed()`, which gives the memory they hold back."""

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> Worker:
        """Start one worker and return at once; it says `ready` later.

        Args:
            task_id: the id that the device knows the task by.
            workload: what to run.
            mps_pct: its share of the SMs, %; set in its environment before it has a CUDA context.
            iterations: how many to do; None runs until it is stopped.
            gpu_uuid: the GPU, as NVML names it.

        Raises:
            DeviceError: the process cannot be started.
        """
        ...


class HeldWorker(Worker, Protocol):
    """A worker that waits, once ready, before its first iteration."""

    def go(self) -> None:
        """Let it begin. May be repeated."""
        ...


@runtime_checkable
class HoldingLauncher(Protocol):
    """A launcher whose workers can begin together."""

    def start_held(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> HeldWorker:
        """As `Launcher.start`; the worker waits for `go`.

        Raises:
            DeviceError: the process cannot be started.
        """
        ...
