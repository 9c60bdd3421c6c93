"""Cleanup after a process that used GPUs: `restore`, and the child that calls it, `python -m heshare.ops.keeper`.

A process that changes a card starts a keeper first. The keeper waits for the end of its standard input, whose other end
only its parent holds: that end comes however the parent ends. Then it ends the processes that the parent left, its MPS
daemons, and unlocks the clocks. It has inherited the locks of the parent's GPUs, so that no other run gets them while
anything of this one runs there. A clock that cannot be unlocked, such as that of a lost GPU, keeps no other GPU from
being used.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from heshare.ops.state.held_note import discard_parts, found_note, noted_by, state_folder
from heshare.ops.state.run_note import RunNote, noted_runs, run_notes
from heshare.shared import signals
from heshare.shared.errors import DeviceError, HeShareError
from heshare.shared.processes import alive, end_marked, exit_text, start_module, started_at

# What a cleanup needs of MPS and NVML is imported in `restore`: a run waits until its keeper has started.

_DONE, _LEFT = b"done\n", b"left\n"
"""The orders of a parent that has given everything back, and of one that could not."""
_STARTS = 3
_FIRST_S, _AGAIN_S, _LONGEST_S = 0.01, 0.2, 60.0


@dataclass(frozen=True, slots=True)
class CleanedRun:
    """A run that was killed and is cleaned up: its folder, and how many processes it had left."""

    folder: str
    ended: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What was given back: runs, UUIDs of unlocked clocks; what could not be, and what was left alone, in words."""

    runs: tuple[CleanedRun, ...] = ()
    unlocked: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    left: tuple[str, ...] = field(default=())


def restore() -> Restored:
    """Give back what ended processes of this user hold: end their processes and MPS daemons, unlock their clocks.

    What runs, or belongs to other hosts and containers, is left alone. May be repeated, also by several processes.
    """
    from heshare.ops import clocks, mps

    runs, refused = [], []
    for path in run_notes():
        try:
            with found_note(path) as found:
                if found.life.cleanable:
                    runs.append(_clean_up(RunNote.of(found)))
        except FileNotFoundError:
            continue
        except (DeviceError, OSError) as error:
            refused.append(str(error))

    mps.sweep()
    restored = clocks.restore_clocks()
    discard_parts(state_folder())
    return Restored(tuple(runs), restored.unlocked, (*refused, *restored.refused), restored.left)


def _clean_up(note: RunNote) -> CleanedRun:
    from heshare.ops import mps

    ended = end_marked(note.token)
    mps.sweep()
    # Last, so that a cleanup that is killed itself is done again.
    note.path.unlink(missing_ok=True)
    return CleanedRun(note.folder, ended)


class Keeper:
    """The keeper of this process, started with this object, and again whenever it ends before `dismiss`.

    It keeps the descriptors `locks` open. `tell` is called, in another thread, with a text about a keeper that ended.

    Raises:
        DeviceError: it does not start.
    """

    def __init__(self, locks: Sequence[int] = (), *, tell: Callable[[str], object] = lambda text: None) -> None:
        self._locks, self._tell = tuple(locks), tell
        self._turn, self._dismissed = threading.Lock(), False
        self._process = self._start_surely()
        threading.Thread(target=self._replace, name="replaces the keeper", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self, *, all_given_back: bool = True) -> None:
        """End it: at once, or, where something could not be given back, once it has done that. May be repeated."""
        with self._turn:
            self._dismissed = True
            stdin = self._process.stdin
            assert stdin is not None
            if stdin.closed:
                return
            with contextlib.suppress(BrokenPipeError), stdin:
                stdin.write(_DONE if all_given_back else _LEFT)
        if all_given_back:
            self._process.wait()

    def _start_surely(self) -> subprocess.Popen[bytes]:
        for _ in range(_STARTS - 1):
            with contextlib.suppress(DeviceError):
                return self._start()
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        pid = os.getpid()
        process = start_module(
            "heshare.ops.keeper",
            str(pid),
            str(started_at(pid)),
            *map(str, self._locks),
            inherited=self._locks,
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
                    f"The process that would give the GPUs back does not start ({ending}). Check this Python."
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
                    self._tell(f"the keeper ended ({ending}) and cannot be started again: {error}")
                else:
                    self._tell(f"the keeper ended ({ending}) and was started again")


def pauses_s(first_s: float) -> Iterator[float]:
    """Yield growing pauses between tries, without end, s."""
    while True:
        yield first_s
        first_s = min(2.0 * first_s, _LONGEST_S)


def main(pid: int, started: int, locks: Sequence[int]) -> None:
    signals.ignore()
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    order = sys.stdin.buffer.read()
    if order == _DONE:
        return

    for pause_s in pauses_s(_FIRST_S):
        # The end of the pipe comes a moment before the end of the process, which may hold its notes until then.
        time.sleep(pause_s)
        if order != _LEFT and alive(pid, started):
            continue
        with contextlib.suppress(HeShareError, OSError):
            # Another process that restores at this moment may have a note, and not succeed with it.
            if not restore().refused and not noted_by(pid, started):
                return
            if not any(run.life.cleanable for run in noted_runs()):
                _close(locks)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed before
            os.close(descriptor)


if __name__ == "__main__":
    process, start, *inherited = map(int, sys.argv[1:])
    main(process, start, inherited)
