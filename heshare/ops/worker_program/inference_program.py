"""Programs of a worker process: forward passes of a network in PyTorch, warm-up, and the loop with reports."""

import gc
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from heshare.ops.worker_program.networks import Network, build, library
from heshare.ops.worker_program.worker_messages import Message
from heshare.shared.errors import DeviceError


class Program(Protocol):
    """Program of a worker: one call runs one iteration.

    Attributes:
        lag: number of iterations that may still be running when `step` returns.
        title: its name and where it runs, for display.
    """

    lag: int
    title: str

    def step(self) -> None:
        """Begin an iteration, and wait until all but the last `lag` are complete."""

    def settle(self) -> None:
        """Wait until every iteration that was begun is complete."""

    def close(self) -> None:
        """Release its memory, so that the process can run another program."""


class Inference:
    """Forward passes of a network of Table IV, in exactly the requested precision.

    On a GPU the next iteration is queued before the last one is complete, so that the GPU does not wait for the host.
    The host waits for CUDA events without busy waiting, since many workers share its cores.
    """

    def __init__(self, model: str, batch_size: int, precision: str, device: str = "cuda") -> None:
        torch = library("torch")
        self._torch = torch
        self._cuda = device == "cuda"
        if self._cuda and not torch.cuda.is_available():
            raise DeviceError(
                f"PyTorch {torch.__version__} finds no CUDA device for {model}:{batch_size}. Check the driver and "
                "CUDA_VISIBLE_DEVICES, or install a build of PyTorch that fits the driver."
            )
        # Cores belong to all workers; on a GPU one thread launches the kernels.
        torch.set_num_threads(1)
        self._network: Network | None = build(model, batch_size, precision=precision, device=device)
        self.lag = 1 if self._cuda else 0
        self._events: list[Any] = []
        where = torch.cuda.get_device_name() if self._cuda else "CPU"
        self.title = f"{model}:{batch_size} {precision} on {where}, PyTorch {torch.__version__}"

    def step(self) -> None:
        assert self._network is not None, "closed"
        with self._torch.inference_mode():
            self._network()
        if not self._cuda:
            return
        event = self._torch.cuda.Event(blocking=True)
        event.record()
        self._events.append(event)
        if len(self._events) > self.lag:
            self._events.pop(0).synchronize()

    def settle(self) -> None:
        if self._cuda:
            self._torch.cuda.synchronize()
            self._events.clear()

    def close(self) -> None:
        self._network = None
        # Modules have reference cycles, so their memory is released only by the garbage collector.
        gc.collect()
        if self._cuda:
            self._torch.cuda.empty_cache()


Make = Callable[[str, int, str], Program]
"""(model, inference batch size, precision) -> program."""


@dataclass(slots=True)
class StopFlag:
    """Set by a signal or the end of the parent: the program should stop."""

    requested: bool = False
    parent: int = field(default_factory=os.getppid)


def warm_up(program: Program, *, iterations: int, least_s: float) -> float:
    """Run at least this many iterations and seconds; return the time per iteration of those after them, s.

    The first iterations load kernels and choose algorithms, so they are not timed. The timed ones take a tenth of the
    warm-up, so that the wait at the end, which a running task does not have, has little effect.
    """
    count, _ = _steps(program, iterations, least_s)
    program.settle()
    timed, begun = _steps(program, 3 if count > 1 else 1, least_s / 10)
    program.settle()
    return (monotonic() - begun) / timed


def _steps(program: Program, iterations: int, least_s: float) -> tuple[int, float]:
    begun = monotonic()
    count = 0
    while count < iterations or monotonic() - begun < least_s:
        program.step()
        count += 1
    return count, begun


def run(
    program: Program,
    report: Callable[[Message], object],
    *,
    iterations: int | None,
    stop: StopFlag,
    period_s: float = 0.1,
) -> Message:
    """Run a program and report its progress; return the last message, with the exact count, without sending it.

    An iteration longer than `period_s` is reported when it is complete.
    """
    begun = last_s = now = monotonic()
    steps = reported = 0
    while not stop.requested and (iterations is None or steps < iterations):
        program.step()
        steps += 1
        now = monotonic()
        done = steps - program.lag
        if now - last_s >= period_s and done > reported:
            report(Message("progress", done, now, (now - last_s) / (done - reported)))
            stop.requested = stop.requested or os.getppid() != stop.parent
            last_s, reported = now, done
    program.settle()
    now = monotonic()
    return Message("end", steps, now, (now - begun) / steps if steps else math.nan, finished=steps == iterations)
