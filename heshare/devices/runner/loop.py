"""Iterations until enough are done or somebody says stop, with a report about every 100 ms."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from heshare.devices.runner.messages import Message
from heshare.devices.runner.program import Program


@dataclass(slots=True)
class Stop:
    """Whether somebody said stop: a signal, or a parent that has gone.

    Attributes:
        asked: whether to stop after the iteration under way.
        parent: the parent's process id when the worker began.
    """

    asked: bool = False
    parent: int = field(default_factory=os.getppid)

    def orphaned(self) -> bool:
        """Whether the parent has gone."""
        return os.getppid() != self.parent


def warm_up(program: Program, *, iterations: int, least_s: float) -> float:
    """Run until at least so many iterations and seconds have gone by; returns seconds per iteration of a last few.

    The first iterations load kernels and choose algorithms; what is timed comes after them.
    """
    begun = monotonic()
    count = 0
    while count < iterations or monotonic() - begun < least_s:
        program.step()
        count += 1
    program.settle()
    begun = monotonic()
    few = 3 if count > 1 else 1
    for _ in range(few):
        program.step()
    program.settle()
    return (monotonic() - begun) / few


def run(
    program: Program,
    say: Callable[[Message], object],
    *,
    iterations: int | None,
    stop: Stop,
    period_s: float = 0.1,
) -> Message:
    """Run a program, and say how far it is; returns the last word, with the exact count, which is not said here.

    Args:
        program: what to run.
        say: takes each `progress`.
        iterations: how many; None runs until `stop`.
        stop: looked at between iterations.
        period_s: seconds from report to report; a longer iteration is reported when it is complete.
    """
    begun = last_s = now = monotonic()
    steps = told = 0
    while not stop.asked and (iterations is None or steps < iterations):
        program.step()
        steps += 1
        now = monotonic()
        done = steps - program.lag
        if now - last_s >= period_s and done > told:
            say(Message("progress", done, now, (now - last_s) / (done - told)))
            stop.asked = stop.asked or stop.orphaned()
            last_s, told = now, done
    program.settle()
    now = monotonic()
    return Message("end", steps, now, (now - begun) / steps if steps else math.nan, finished=steps == iterations)
