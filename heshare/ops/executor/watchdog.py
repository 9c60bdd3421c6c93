"""Cleanup after runs that were killed: a note on disk, and a watchdog, `python -m heshare.ops.executor.watchdog`.

The watchdog waits for the end of its standard input, whose other end only the run holds: that end comes however the
run ends. It has inherited the locks of the run's GPUs and of its note, so that no other run gets the GPUs before it is
done, and none takes the note for that of a killed run. Clocks are given back by the clock service.
"""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from heshare.ops.state.held_note import discard_parts, found_note, state_folder
from heshare.ops.state.run_note import RunNote, run_notes
from heshare.shared import signals
from heshare.shared.errors import DeviceError, HeShareError
from heshare.shared.processes import alive, end_marked, exit_text, start_module

# What a cleanup needs of MPS is imported in the functions: a run waits until its watchdog has started.

_DONE = b"done\n"
_STARTS = 3
_FIRST_S, _AGAIN_S, _LONGEST_S = 0.01, 0.2, 60.0


class Watchdog:
    """The watchdog process of a run, started with this object, and again whenever it ends before `dismiss`.

    The note need not be on disk: a run that is killed before it is has changed nothing. It keeps the descriptors of the
    locks open. `tell` is called, in another thread, with a text about a watchdog that ended.
    """

    def __init__(
        self,
        note: RunNote,
        locks: Sequence[int],
        lock_of_note: int,
        *,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._note, self._inherited, self._tell = note, (*locks, lock_of_note), tell
        self._turn, self._dismissed = threading.Lock(), False
        self._process = self._start_surely()
        threading.Thread(target=self._replace, name="watchdog of the watchdog", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self) -> None:
        """End it without a cleanup: the run has done that itself. May be repeated."""
        with self._turn:
            self._dismissed = True
            stdin = self._process.stdin
            assert stdin is not None
            if stdin.closed:
                return
            with contextlib.suppress(BrokenPipeError), stdin:
                stdin.write(_DONE)
        self._process.wait()

    def _start_surely(self) -> subprocess.Popen[bytes]:
        for _ in range(_STARTS - 1):
            with contextlib.suppress(DeviceError):
                return self._start()
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        process = start_module(
            "heshare.ops.executor.watchdog",
            self._note.as_json(),
            inherited=self._inherited,
            marked=False,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        with process.stdout as stdout:
            if stdout.readline() != b"watching\n":
                process.stdin.close()
                ending = exit_text(process.wait())
                raise DeviceError(
                    f"The watchdog that would put the GPUs back does not start ({ending}). Check this Python."
                )
        return process

    def _replace(self) -> None:
        pauses, begun_s = pauses_s(_AGAIN_S), time.monotonic()
        while True:
            ending = exit_text(self._process.wait())
            if self._dismissed:
                return
            if time.monotonic() - begun_s > _LONGEST_S:
                pauses = pauses_s(_AGAIN_S)
            time.sleep(next(pauses))
            begun_s = time.monotonic()
            with self._turn:
                if self._dismissed:
                    return
                assert self._process.stdin is not None
                self._process.stdin.close()
                try:
                    self._process = self._start()
                except (OSError, DeviceError) as error:
                    self._tell(f"the watchdog ended ({ending}) and cannot be started again: {error}")
                else:
                    self._tell(f"the watchdog ended ({ending}) and was started again")


def pauses_s(first_s: float) -> Iterator[float]:
    """Yield growing pauses between tries, without end, s."""
    while True:
        yield first_s
        first_s = min(2.0 * first_s, _LONGEST_S)


@dataclass(frozen=True, slots=True)
class CleanupReport:
    folder: str
    ended: int


def clean_up(note: RunNote) -> CleanupReport:
    """End the processes that an ended run left, then its MPS daemons; delete its note."""
    from heshare.ops import mps

    ended = end_marked(note.token)
    mps.sweep()
    # Last, so that a cleanup that is killed itself is done again.
    note.path.unlink(missing_ok=True)
    return CleanupReport(note.folder, ended)


def clean_up_killed_runs() -> list[CleanupReport]:
    """Clean up after every run that was killed, where its watchdog could not; notes that cannot be used are left."""
    reports = []
    for path in run_notes():
        with contextlib.suppress(DeviceError, FileNotFoundError), found_note(path) as found:
            if found.life.cleanable:
                reports.append(clean_up(RunNote.of(found)))
    discard_parts(state_folder())
    return reports


def main(note_text: str) -> None:
    signals.ignore()
    note = RunNote.parse(note_text)
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    if sys.stdin.buffer.read() == _DONE:
        return
    for pause_s in pauses_s(_FIRST_S):
        # The end of the pipe comes a moment before the end of the process.
        time.sleep(pause_s)
        with contextlib.suppress(HeShareError, OSError):
            if not alive(note.pid, note.started):
                clean_up(note)
                return


if __name__ == "__main__":
    main(sys.argv[1])
