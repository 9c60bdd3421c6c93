"""Checkpoints of a run in virtual time: interrupted at any moment, it goes on from the last one, with the same bytes.

A checkpoint is the whole state between two events (loop, devices, recorder, policy with its randomness, predictor) as
Python pickles it. Read only files that you wrote yourself: unpickling runs what the file says.
"""

from __future__ import annotations

import hashlib
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from types import FrameType

import numpy as np

from heshare import files
from heshare.devices.interrupts import SIGNALS
from heshare.errors import InputError
from heshare.prediction.predictor import Predictor
from heshare.running.accounts import FloatArray
from heshare.running.loop import Loop

EVERY_S = 60.0
"""Wall time from one checkpoint to the next, s."""


@dataclass
class Course:
    """A run on its way: everything that its result is made of.

    Attributes:
        loop: the event loop, with policy, devices, clock and recorder.
        predictor: what the policy believes.
        calls: the predictor's calls when the run began.
        energy_j: the devices' accounts when the run began, J, shape (k,).
        reset_s: wall time that the policy took to get ready, s.
    """

    loop: Loop
    predictor: Predictor
    calls: int
    energy_j: FloatArray
    reset_s: float


class Checkpoints:
    """Saves a course between events, every so often and when a signal asks the run to end.

    Args:
        path: the file.
        key: what tells this run from any other, as `key_of` makes it.
        every_s: wall time between two checkpoints, s.
        every: events between two checkpoints, whatever the time; None for no such limit.
    """

    def __init__(self, path: str | Path, key: str, *, every_s: float = EVERY_S, every: int | None = None) -> None:
        self.path, self._key, self._every_s, self._every = Path(path), key, every_s, every
        self._saved_s, self._count, self._asked = monotonic(), 0, 0

    def load(self) -> Course | None:
        """The course of this very run that the file holds, or None if there is no file.

        Raises:
            InputError: the file holds another run, another version's, or no checkpoint.
        """
        if not self.path.exists():
            return None
        with self.path.open("rb") as stream:
            try:
                found = pickle.load(stream)
                if found == self._head():
                    course: Course = pickle.load(stream)
                    return course
            except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError) as error:
                raise self._bad(f"no checkpoint that can be read ({type(error).__name__})") from error
        raise self._bad("a checkpoint of another run, or of another version of heshare")

    def save(self, course: Course) -> None:
        """Write the course, whole or not at all.

        Raises:
            InputError: something in it cannot be pickled, such as a policy made of a local function.
        """
        try:
            content = pickle.dumps(self._head()) + pickle.dumps(course)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                column="checkpoint",
                found=f"a run that cannot be written down ({error})",
                expected="a policy, a predictor and devices that can be pickled",
                action="Do without a checkpoint, or define them at the top of a module.",
            ) from error
        files.write_atomic(self.path, lambda temporary: temporary.write_bytes(content))
        self._saved_s, self._count = monotonic(), 0

    def between(self, course: Course) -> None:
        """Between two events: save if it is time; end if a signal has asked for it.

        Raises:
            KeyboardInterrupt: after SIGINT or SIGTERM, once the course has been saved.
        """
        self._count += 1
        if self._asked:
            self.save(course)
            raise KeyboardInterrupt(f"{signal.Signals(self._asked).name}; {self.path} goes on from here")
        if self._count == self._every or monotonic() - self._saved_s >= self._every_s:
            self.save(course)

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """While this goes on, a first signal waits for the end of the present event; a second one does not."""
        if current_thread() is not main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def done(self) -> None:
        """The run is over: nothing is left to go on from."""
        self.path.unlink(missing_ok=True)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = number

    def _head(self) -> tuple[str, str, str]:
        return ("heshare checkpoint", str(import_module("heshare").__version__), self._key)

    def _bad(self, found: str) -> InputError:
        return InputError(
            file=self.path,
            found=found,
            expected="a checkpoint of this run: the same tasks, cluster, policy, seed and settings",
            action="Give the settings that it was made with, or another file.",
        )


def key_of(parts: Sequence[object], rng: np.random.Generator) -> str:
    """What tells a run from any other: a hash of what it is made of, randomness included."""
    digest = hashlib.sha256()
    for part in (*parts, sorted(rng.bit_generator.state.items(), key=str)):
        digest.update(repr(part).encode() + b"\n")
    return digest.hexdigest()


def hook(checkpoints: Checkpoints | None, course: Course) -> Callable[[], None] | None:
    """What the loop calls between two events."""
    return None if checkpoints is None else lambda: checkpoints.between(course)
