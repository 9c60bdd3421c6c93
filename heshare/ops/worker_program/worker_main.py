"""Main loop of a worker process: orders of its parent, signals, and reports of failures."""

import argparse
import gc
import json
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import monotonic

from heshare.ops.worker_program.inference_program import Inference, Make, StopFlag, run, warm_up
from heshare.ops.worker_program.networks import preload
from heshare.ops.worker_program.worker_messages import GO, STOP, Channel, Message, Order

STANDBY = "--standby"
"""Option of a worker that imports all libraries before its first order, without a CUDA context."""

GRACE_S = 10.0
"""Time for an iteration to end after the end of the parent, s."""

_MEMORY = re.compile(r"CUDA error: out of memory|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""Out-of-memory errors of CUDA libraries and of context creation, which PyTorch does not classify."""


def main(arguments: Sequence[str], make: Make = Inference, prepare: Callable[[], None] = preload) -> int:
    """Run one worker; return the exit code: 0 after the last message `end`, 1 after `failure`."""
    # argparse, since Typer would add its import time to the start of each task.
    parser = argparse.ArgumentParser(prog="heshare.ops.worker_program", description="Tasks on a GPU.")
    parser.add_argument("--report-fd", type=int, required=True, help="file descriptor for the JSON lines")
    parser.add_argument(STANDBY, action="store_true", help="import everything before the first order")
    options = parser.parse_args(arguments)
    channel = Channel(options.report_fd)
    worker = _Worker(channel)
    if options.standby:
        prepare()
        # Imported objects live until the end: freezing them saves 0.25 s of garbage collection at each change of task.
        gc.freeze()
    while (order := worker.next_order()) is not None:
        code = worker.work(make, order)
        if code or not worker.is_kept(order):
            return code
        channel.send(Message("waiting", at_s=monotonic()))
    return 0


def describe(error: BaseException) -> str:
    """Return one line for an error; out of GPU memory is stated first."""
    name = type(error).__name__
    text = " ".join(str(error).split()) or "no message"
    short = "out of GPU memory: " if name == "OutOfMemoryError" or _MEMORY.search(text) else ""
    return f"{short}{text}" if name == "DeviceError" else f"{short}{name}: {text}"


class _Worker:
    """State of a worker that signals and messages of the parent change while programs run.

    A thread reads stdin, which closes however the parent ends. PR_SET_PDEATHSIG would follow the thread that started
    the worker, not the process, and end workers whose parent still runs.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stop = StopFlag()
        self._go = threading.Event()
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._lock = threading.RLock()
        # Ordered: the main thread has taken an order. Has task: an order was read and its task is not over, so a STOP
        # behind the order ends it even before the main thread takes the order. Running: the task's iterations run.
        self._ordered = self._has_task = self._running = self._leaving = False
        threading.Thread(target=self._read_parent, daemon=True).start()

    def next_order(self) -> Order | None:
        """Wait for the next order; None when the parent no longer needs this worker."""
        order = self._orders.get()
        if order is not None and not self._ordered:
            # From now on SIGTERM ends a task after its iteration; Ctrl-C in a terminal is handled by the parent.
            signal.signal(signal.SIGTERM, lambda number, frame: self._end(leave=True))
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._ordered = True
        return order

    def is_kept(self, order: Order) -> bool:
        """Return whether to wait for another order after this one."""
        return order.keep and not self._leaving

    def work(self, make: Make, order: Order) -> int:
        """Load, warm up, wait for `GO`, run, report the end, release the memory; return the exit code."""
        try:
            os.environ.update(order.environment or {})
            program = make(order.model, order.batch_size, order.precision)
            time_s = warm_up(program, iterations=order.warmup, least_s=order.warmup_s)
            self._channel.send(Message("ready", at_s=monotonic(), time_s=time_s, text=program.title))
            self._go.wait()
            self._running = True
            report, stop = self._channel.send, self._stop
            self._channel.send(run(program, report, iterations=order.iterations, stop=stop, period_s=order.period_s))
            if self.is_kept(order):
                program.close()
        except BaseException as error:
            # Every error is reported, MemoryError too: the parent waits for a message until its timeout.
            traceback.print_exc()
            self._channel.send(Message("failure", text=describe(error)))
            return 1
        with self._lock:
            self._has_task, self._running, self._stop = False, False, StopFlag()
            self._go.clear()
        return 0

    def _end(self, *, leave: bool = False) -> None:
        """Stop after the iteration; the process of a task that still loads ends at once.

        The task may have ended by itself, so a late stop must not end the next task.
        """
        with self._lock:
            self._leaving = self._leaving or leave
            self._stop.requested = self._has_task
            if self._running:
                return
            if self._has_task:
                self._channel.send(Message("end", at_s=monotonic()))
            if self._has_task or leave:
                os._exit(0)

    def _read_parent(self) -> None:
        rest = b""
        while piece := os.read(sys.stdin.fileno(), 4096):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._take(line + b"\n")
        if not self._ordered:
            os._exit(0)
        self._stop.requested = True
        self._orders.put(None)
        threading.Event().wait(GRACE_S if self._running or not self._has_task else 0.0)
        os._exit(1)

    def _take(self, line: bytes) -> None:
        if line == GO:
            self._go.set()
        elif line == STOP:
            self._end()
        else:
            self._has_task = True
            self._orders.put(Order(**json.loads(line)))
