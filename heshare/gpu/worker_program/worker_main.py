"""The worker's command line, its signals, and how its failures are told."""

import argparse
import gc
import json
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Any

from heshare.gpu.worker_program.inference_program import Inference, Make, StopFlag, run, warm_up
from heshare.gpu.worker_program.worker_messages import Channel, Message
from heshare.gpu.workers.networks import preload
from heshare.world.workload import PRECISIONS

GO = b"go\n"
"""What the parent writes to the worker's standard input when a batch begins."""

STOP = b"stop\n"
"""What it writes to end the task after its iteration; a worker that is kept takes another order then."""

STANDBY = "--standby"
"""The option of a worker that imports everything, makes no CUDA context, and waits for its order."""

KEEP = "--keep"
"""The option of a worker that takes another order when its task is over: its CUDA context and its share stay."""

GRACE_S = 10.0
"""How long an iteration may go on after the parent has gone, s."""


def main(arguments: Sequence[str], make: Make = Inference, prepare: Callable[[], None] = preload) -> int:
    """Run one worker; returns the exit code: 0 after the last word `end`, 1 after `failure`.

    Args:
        arguments: the command line.
        make: makes the program to run; a test's makes one that only counts.
        prepare: what a worker on stand-by does before it knows its task.
    """
    own = [one for one in arguments if one != STANDBY]
    worker = _Worker()
    if STANDBY in arguments:
        worker.follow()
        prepare()
        # What was imported stays: not to look through it again takes a quarter of a second off every change of task.
        gc.freeze()
        given = worker.next_order()
        if given is None:
            return 0
        os.environ.update(given["environment"])
        arguments = [*own, *given["arguments"]]
    asked = _parser().parse_args(arguments)
    worker.heed()
    worker.follow()
    channel = Channel(asked.report_fd)
    while True:
        code = worker.work(channel, make, asked)
        if code or not worker.kept(asked):
            return code
        channel.say(Message("waiting", at_s=monotonic()))
        given = worker.next_order()
        if given is None:
            return 0
        asked = _parser().parse_args(["--report-fd", str(asked.report_fd), *given["arguments"]])


_MEMORY = re.compile(r"CUDA error: out of memory|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""What the libraries below PyTorch's allocator say, and a context that finds no room."""


def describe(error: BaseException) -> str:
    """One line for what went wrong; running out of GPU memory is said first."""
    name = type(error).__name__
    text = " ".join(str(error).split()) or "no message"
    short = "out of GPU memory: " if name == "OutOfMemoryError" or _MEMORY.search(text) else ""
    return f"{short}{text}" if name == "DeviceError" else f"{short}{name}: {text}"


def order(arguments: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """The line on its standard input that tells a worker on stand-by what to do, and in which environment."""
    return json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode("ascii") + b"\n"


class _Worker:
    """The state that signals and the parent's pipe change while programs run."""

    def __init__(self) -> None:
        self._stop = StopFlag()
        self._go = threading.Event()
        self._orders: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._channel: Channel | None = None
        self._lock = threading.RLock()
        self._followed = self._ordered = self._running = self._leaving = False

    def follow(self) -> None:
        """Follow the parent's end of the standard input, which is closed however the parent ends.

        PR_SET_PDEATHSIG would follow the thread that started the worker, not the process, and end workers whose parent
        is well.
        """
        if not self._followed:
            self._followed = True
            threading.Thread(target=self._follow, daemon=True).start()

    def heed(self) -> None:
        """From now on SIGTERM ends a task after its iteration; Ctrl-C in a terminal is the parent's business."""
        signal.signal(signal.SIGTERM, lambda number, frame: self._end(leave=True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._ordered = True

    def next_order(self) -> dict[str, Any] | None:
        """Wait for the next order; None when the parent has no use for this worker."""
        return self._orders.get()

    def kept(self, asked: argparse.Namespace) -> bool:
        """Whether to wait for another order after this one."""
        return bool(asked.keep) and not self._leaving

    def work(self, channel: Channel, make: Make, asked: argparse.Namespace) -> int:
        """Load, warm up, wait for the word to go, run, say the last word, give the memory back."""
        self._channel = channel
        try:
            program = make(asked.model, asked.batch_size, asked.precision, asked.device)
            time_s = warm_up(program, iterations=asked.warmup, least_s=asked.warmup_s)
            channel.say(Message("ready", at_s=monotonic(), time_s=time_s, text=program.title))
            self._go.wait()
            self._running = True
            last = run(program, channel.say, iterations=asked.iterations, stop=self._stop, period_s=asked.period_s)
            channel.say(last)
            if self.kept(asked):
                program.close()
        except BaseException as error:
            # Told whatever it is, MemoryError too: a worker that dies in silence looks like a slow one.
            traceback.print_exc()
            channel.say(Message("failure", text=describe(error)))
            return 1
        with self._lock:
            self._channel, self._running, self._stop = None, False, StopFlag()
            self._go.clear()
        return 0

    def _end(self, *, leave: bool = False) -> None:
        """Stop after the iteration; what is still loading has counted nothing, and goes at once.

        A task may have ended by itself meanwhile: its stop must not end the next one.
        """
        with self._lock:
            self._leaving = self._leaving or leave
            self._stop.asked = self._channel is not None
            if self._running:
                return
            if self._channel is not None:
                self._channel.say(Message("end", at_s=monotonic()))
            if self._channel is not None or leave:
                os._exit(0)

    def _follow(self) -> None:
        """Take the parent's words, line by line, in their order."""
        rest = b""
        while piece := os.read(sys.stdin.fileno(), 4096):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._take(line + b"\n")
        if not self._ordered:
            os._exit(0)
        self._stop.asked = True
        self._orders.put(None)
        threading.Event().wait(GRACE_S if self._running or self._channel is None else 0.0)
        os._exit(1)

    def _take(self, line: bytes) -> None:
        if line == GO:
            self._go.set()
        elif line == STOP:
            self._end()
        else:
            self._orders.put(json.loads(line))


def _parser() -> argparse.ArgumentParser:
    # An internal program that is started for each task: Typer would add its import time to each start.
    parser = argparse.ArgumentParser(prog="heshare.gpu.worker_program", description="One task on a GPU.")
    parser.add_argument("--model", required=True, help="a name of Table IV")
    parser.add_argument("--batch-size", type=int, required=True, help="inference batch size, samples")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--iterations", type=_iterations, default=None, help="a number, or forever (the default)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(KEEP, action="store_true", help="take another order when the task is over")
    parser.add_argument("--report-fd", type=int, required=True, help="file descriptor for the JSON lines")
    parser.add_argument("--period-s", type=float, default=0.1, help="seconds from report to report")
    parser.add_argument("--warmup", type=int, default=5, help="iterations of warm-up, at least")
    parser.add_argument("--warmup-s", type=float, default=1.0, help="seconds of warm-up, at least")
    return parser


def _iterations(text: str) -> int | None:
    if text == "forever":
        return None
    count = int(text)
    if count < 1:
        raise ValueError("at least one iteration")
    return count
