"""What a worker process says to its parent: one JSON object a line, each line whole or not at all."""

import json
import math
import os
import select
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["ready", "progress", "end", "failure", "waiting"]
KINDS = ("ready", "progress", "end", "failure", "waiting")
LONGEST = 4096
"""Bytes of the longest line: what a pipe takes in one piece (PIPE_BUF on Linux)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One line.

    Attributes:
        kind: `ready` after warm-up, `progress` about every 100 ms, then `end` or `failure`, once; `waiting` when a
            worker that is kept has given its memory back and takes the next order.
        done: iterations completed, after warm-up.
        at_s: when the last of them was completed, s of the system's monotonic clock, which parent and child share.
        time_s: seconds per iteration: of the warm-up's last iterations in `ready`, since the last message in
            `progress`, since the beginning in `end`; NaN where none was completed.
        finished: whether all that were asked for are done.
        text: what the worker runs on (`ready`) or what went wrong (`failure`).
    """

    kind: Kind
    done: int = 0
    at_s: float = 0.0
    time_s: float = math.nan
    finished: bool = False
    text: str = ""

    def line(self) -> bytes:
        """The message as a line of at most `LONGEST` bytes; a longer text is cut."""
        facts = asdict(self)
        facts["time_s"] = None if math.isnan(self.time_s) else self.time_s
        facts["text"] = " ".join(self.text.split())[: LONGEST // 14]
        return json.dumps(facts).encode("ascii") + b"\n"


def parse(line: bytes) -> Message:
    """Read one line.

    Raises:
        ValueError: it is no message.
    """
    facts = json.loads(line)
    if not isinstance(facts, dict) or facts.get("kind") not in KINDS:
        raise ValueError(f"no message of a worker: {line[:80]!r}")
    time_s = facts.get("time_s")
    try:
        return Message(
            kind=facts["kind"],
            done=int(facts["done"]),
            at_s=float(facts["at_s"]),
            time_s=math.nan if time_s is None else float(time_s),
            finished=bool(facts["finished"]),
            text=str(facts["text"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no message of a worker: {line[:80]!r}") from error


class Channel:
    """The writing end of the pipe.

    Counts are totals, so a `progress` that finds the pipe full is left out and nothing is lost; the worker never waits
    for a parent that does not read, apart from its last word.

    Args:
        descriptor: the pipe's file descriptor, inherited from the parent.
        patience_s: how long the last word waits for room in the pipe, s.
    """

    def __init__(self, descriptor: int, *, patience_s: float = 5.0) -> None:
        self._descriptor = descriptor
        self._patience_s = patience_s
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)

    def say(self, message: Message) -> bool:
        """Write a message; whether it was written.

        All but `progress` wait for room; nobody is there to read them once the parent has gone.
        """
        line = message.line()
        patience_s = 0.0 if message.kind == "progress" else self._patience_s
        try:
            _, room, _ = select.select([], [self._descriptor], [], patience_s)
            return bool(room) and os.write(self._descriptor, line) == len(line)
        except (BlockingIOError, BrokenPipeError):
            return False
