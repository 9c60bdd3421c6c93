"""Messages between a worker process and its parent, lines that a pipe takes atomically, most of them JSON.

The parent writes an `Order` for each task, `GO` and `STOP` to the worker's stdin; the worker writes one `Message` a
line to its report pipe.
"""

import json
import math
import os
import select
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Literal, get_args

GO = b"go\n"
"""From the parent: begin the first iteration."""
STOP = b"stop\n"
"""From the parent: end the task after its iteration; a reusable worker then takes another order."""
LONGEST = 4096
"""Longest line of a worker, bytes: what a pipe takes atomically (PIPE_BUF on Linux)."""

Kind = Literal["ready", "progress", "end", "failure", "waiting"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Order:
    """Task for a worker process: a workload, its batch size, precision and iterations.

    Attributes:
        iterations: number of iterations; None runs until it is stopped.
        environment: variables to set before the process has a CUDA context, such as the GPU and the share.
        keep: whether the process takes another order after the task, with the same CUDA context and share.
        period_s: interval of reports, s; a longer iteration is reported when it is complete.
        warmup_s: least time of warm-up, s.
    """

    model: str
    batch_size: int
    precision: str = "mixed"
    iterations: int | None = None
    environment: Mapping[str, str] | None = None
    keep: bool = False
    period_s: float = 0.1
    warmup: int = 5
    warmup_s: float = 1.0

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Message:
    """Report of a worker process, one line of text.

    Attributes:
        kind: `ready` after warm-up, `progress` about every 100 ms, then `end` or `failure`, once; `waiting` when a
            reusable worker has released its memory and takes the next order.
        done: iterations completed, after warm-up.
        at_s: time at which the last of them was completed, s of the monotonic clock, the same in parent and child.
        time_s: seconds per iteration: of the warm-up's last iterations in `ready`, since the last message in
            `progress`, since the beginning in `end`; NaN if none was completed.
        finished: whether all requested iterations are done.
        text: what the worker runs on (`ready`), or the error (`failure`).
    """

    kind: Kind
    done: int = 0
    at_s: float = 0.0
    time_s: float = math.nan
    finished: bool = False
    text: str = ""

    def line(self) -> bytes:
        """Return the message as a line of at most `LONGEST` bytes; a longer text is cut."""
        text = " ".join(self.text.split())[: LONGEST // 14]
        return json.dumps({**asdict(self), "text": text}).encode("ascii") + b"\n"


def parse(line: bytes) -> Message:
    content = json.loads(line)
    names = {field.name for field in fields(Message)}
    if not isinstance(content, dict) or content.keys() != names or content["kind"] not in KINDS:
        raise ValueError(f"no message of a worker: {line[:80]!r}")
    return Message(**content)


class Channel:
    """Writing end of the pipe on which a worker reports.

    Counts are totals, so a `progress` message can be dropped if the pipe is full. Other messages wait at most
    `patience_s` for a parent that does not read. The descriptor is inherited from the parent.
    """

    def __init__(self, descriptor: int, *, patience_s: float = 5.0) -> None:
        self._descriptor, self._patience_s = descriptor, patience_s
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)

    def send(self, message: Message) -> bool:
        """Write a message; return whether it was written, which fails once the parent has ended.

        All but `progress` wait if the pipe is full.
        """
        line = message.line()
        patience_s = 0.0 if message.kind == "progress" else self._patience_s
        try:
            _, room, _ = select.select([], [self._descriptor], [], patience_s)
            return bool(room) and os.write(self._descriptor, line) == len(line)
        except (BlockingIOError, BrokenPipeError):
            return False
