"""Checkpoints of a run in virtual time: an interrupted run continues from the last one and ends with the same bytes.

A checkpoint is the pickled state between two events: event loop, devices, recorder, policy with its random generator,
and predictor. Read only files that you wrote yourself: unpickling can execute code of the file.
"""

import hashlib
import pickle
import signal
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np

from heshare import __version__, files
from heshare.errors import InputError
from heshare.running.run import RunState

EVERY_S = 60.0
"""Wall time from one checkpoint to the next, s."""


class Checkpoints:
    """The checkpoint file of a run: written between events, after an interval and when a signal ends the run.

    Args:
        path: the file.
        key: identifies the run; see `run_key`.
        every_s: wall time between two checkpoints, s.
        every: events between two checkpoints, whatever the time; None for no such limit.
    """

    def __init__(self, path: str | Path, key: str, *, every_s: float = EVERY_S, every: int | None = None) -> None:
        self.path, self._key, self._every_s, self._every = Path(path), key, every_s, every
        self._saved_s, self._count, self._signal = monotonic(), 0, 0

    def load(self) -> RunState | None:
        """Return the state of this run in the file, or None if there is no file.

        Raises:
            InputError: the file holds another run, a run of another version, or no checkpoint.
        """
        if not self.path.exists():
            return None
        with self.path.open("rb") as stream:
            try:
                # The header is a pickle of its own: a state of another version is never unpickled.
                if pickle.load(stream) == self._header():
                    state: RunState = pickle.load(stream)
                    return state
            except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError) as error:
                raise self._error(f"no checkpoint that can be read ({type(error).__name__})") from error
        raise self._error("a checkpoint of another run, or of another version of heshare")

    def save(self, state: RunState) -> None:
        """Write the state, whole or not at all.

        Raises:
            InputError: a part of it cannot be pickled, such as a policy made of a local function.
        """
        try:
            content = pickle.dumps(self._header()) + pickle.dumps(state)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"a run that cannot be pickled ({error})",
                "a policy, a predictor and devices that can be pickled",
                "Do without a checkpoint, or define them at the top of a module.",
                column="checkpoint",
            ) from error
        files.write_atomic(self.path, lambda temporary: temporary.write_bytes(content))
        self._saved_s, self._count = monotonic(), 0

    def after_event(self, state: RunState) -> None:
        """Save the state if the interval is over or a signal has come.

        Raises:
            KeyboardInterrupt: a signal has come; the state has been saved.
        """
        self._count += 1
        if self._signal:
            self.save(state)
            raise KeyboardInterrupt(f"{signal.Signals(self._signal).name}; {self.path} continues from here")
        if self._count == self._every or monotonic() - self._saved_s >= self._every_s:
            self.save(state)

    def request_end(self, number: int) -> None:
        """Handle a signal: the first one ends the run after the present event.

        Raises:
            KeyboardInterrupt: it is the second signal.
        """
        if self._signal:
            raise KeyboardInterrupt
        self._signal = number

    def remove(self) -> None:
        """Remove the file of a run that has completed."""
        self.path.unlink(missing_ok=True)

    def _header(self) -> tuple[str, str, str]:
        return ("heshare checkpoint", __version__, self._key)

    def _error(self, found: str) -> InputError:
        return InputError(
            found,
            "a checkpoint of this run: the same tasks, cluster, policy, seed and settings",
            "Give the settings that it was made with, or another file.",
            file=self.path,
        )


def run_key(parts: Sequence[object], rng: np.random.Generator) -> str:
    """Return a hash that identifies a run: of its parts and of the state of its random generator."""
    digest = hashlib.sha256()
    for part in (*parts, sorted(rng.bit_generator.state.items(), key=str)):
        digest.update(repr(part).encode() + b"\n")
    return digest.hexdigest()
