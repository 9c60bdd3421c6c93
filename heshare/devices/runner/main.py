"""The worker's command line, its signals, and how its failures are told."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from heshare.devices.networks import preload
from heshare.devices.runner.loop import Stop, run, warm_up
from heshare.devices.runner.messages import Channel, Message
from heshare.devices.runner.program import Inference, Make, Program
from heshare.world.workload import PRECISIONS

GO = b"g"
"""What the parent writes to the worker's standard input when a batch begins."""

STANDBY = "--standby"
"""The option of a worker that imports everything, makes no CUDA context, and waits for its order."""

GRACE_S = 10.0
"""How long an iteration may go on after the parent has gone, s."""


def main(arguments: Sequence[str], make: Make = Inference, prepare: Callable[[], None] = preload) -> int:
    """Run one worker; returns the exit code: 0 after the last word `end`, 1 after `failure`.

    Args:
        arguments: the command line.
        make: makes the program to run; a test's makes one that only counts.
        prepare: what a worker on stand-by does before it knows its task.
    """
    if STANDBY in arguments:
        prepare()
        given = _await_order()
        if given is None:
            return 0
        os.environ.update(given["environment"])
        arguments = [*(one for one in arguments if one != STANDBY), *given["arguments"]]
    asked = _parser().parse_args(arguments)
    channel = Channel(asked.report_fd)
    worker = _Worker(channel)
    worker.listen()
    try:
        program = make(asked.model, asked.batch_size, asked.precision, asked.device)
        return worker.work(program, asked)
    except BaseException as error:
        # Told whatever it is, MemoryError too: a worker that dies in silence looks like a slow one.
        traceback.print_exc()
        channel.say(Message("failure", text=describe(error)))
        return 1


def describe(error: BaseException) -> str:
    """One line for what went wrong; running out of GPU memory is said first."""
    name = type(error).__name__
    text = " ".join(str(error).split()) or "no message"
    short = "out of GPU memory: " if name == "OutOfMemoryError" else ""
    return f"{short}{text}" if name == "DeviceError" else f"{short}{name}: {text}"


def order(arguments: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """The line on its standard input that tells a worker on stand-by what to do, and in which environment."""
    return json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode("ascii") + b"\n"


def _await_order() -> dict[str, Any] | None:
    """The order, or None when the parent has no use for this worker; not a byte more is read than the line."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 1)
        if not piece:
            return None
        line += piece
    found: dict[str, Any] = json.loads(line)
    return found


class _Worker:
    """The state that signals and the parent's pipe change while the program runs."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stop = Stop()
        self._go = threading.Event()
        self._running = False

    def listen(self) -> None:
        """Follow the parent: SIGTERM, and its end of the standard input.

        A pipe's end is closed however the parent ends. PR_SET_PDEATHSIG would follow the thread that started the
        worker, not the process, and end workers whose parent is well.
        """
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._follow, daemon=True).start()

    def work(self, program: Program, asked: argparse.Namespace) -> int:
        """Warm up, wait for the word to go, run, say the last word."""
        time_s = warm_up(program, iterations=asked.warmup, least_s=asked.warmup_s)
        self._channel.say(Message("ready", at_s=monotonic(), time_s=time_s, text=program.title))
        self._go.wait()
        self._running = True
        last = run(program, self._channel.say, iterations=asked.iterations, stop=self._stop, period_s=asked.period_s)
        self._channel.say(last)
        return 0

    def _terminate(self, number: int, frame: object) -> None:
        self._stop.asked = True
        if not self._running:
            # Nothing has been counted, and loading or warming up may take long yet.
            self._channel.say(Message("end", at_s=monotonic()))
            os._exit(0)

    def _follow(self) -> None:
        while True:
            said = os.read(sys.stdin.fileno(), 16)
            if said:
                self._go.set()
                continue
            self._stop.asked = True
            if self._running:
                threading.Event().wait(GRACE_S)
            os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heshare.devices.runner", description="One task on a GPU.")
    parser.add_argument("--model", required=True, help="a name of Table IV")
    parser.add_argument("--batch-size", type=int, required=True, help="inference batch size, samples")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--iterations", type=_iterations, default=None, help="a number, or forever (the default)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
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
