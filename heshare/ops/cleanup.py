"""Cleanup after a process that used GPUs: `restore`, and a child process that calls it when its parent has ended.

The child, `python -m heshare.ops.cleanup`, waits for the end of its stdin, which closes however the parent ends. It
inherits the locks of the parent's GPUs, so that no other run uses them before the cleanup.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from heshare.ops.state.run_state_file import RunStateFile, find_runs, run_state_paths
from heshare.ops.state.state_file import delete_unpublished, has_state_file, open_state_file, state_folder
from heshare.shared import signals
from heshare.shared.errors import DeviceError, HeShareError
from heshare.shared.processes import alive, end_marked, exit_text, start_module, started_at

# MPS and NVML are imported in `restore`, not here: a run waits until its cleanup process has started.

_DONE, _LEFT = b"done\n", b"left\n"
"""Messages of a parent that has released everything, and of one that could not."""
_STARTS = 3
_FIRST_S, _AGAIN_S, _LONGEST_S = 0.01, 0.2, 60.0


@dataclass(frozen=True, slots=True)
class CleanedRun:
    """A killed run after its cleanup: its folder, and the number of its processes that were ended."""

    folder: str
    ended: int


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a cleanup: runs and UUIDs of unlocked clocks; texts on what failed and on what was left unchanged."""

    runs: tuple[CleanedRun, ...] = ()
    unlocked: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    left: tuple[str, ...] = field(default=())


def restore() -> Restored:
    """Clean up after ended processes of this user: end their child processes and MPS daemons, unlock their clocks.

    Running processes and those of other hosts and containers are left unchanged. Idempotent; several processes may
    call it at the same time.
    """
    from heshare.ops import clocks, mps

    runs, refused = [], []
    for path in run_state_paths():
        try:
            with open_state_file(path) as found:
                if found.owner_status.cleanable:
                    runs.append(_clean_up(RunStateFile.of(found)))
        except FileNotFoundError:
            continue
        except (DeviceError, OSError) as error:
            refused.append(str(error))

    mps.sweep()
    restored = clocks.restore_clocks()
    delete_unpublished(state_folder())
    return Restored(tuple(runs), restored.unlocked, (*refused, *restored.refused), restored.left)


def _clean_up(run: RunStateFile) -> CleanedRun:
    from heshare.ops import mps

    ended = end_marked(run.token)
    mps.sweep()
    # Last, so that a cleanup that is killed itself is repeated.
    run.path.unlink(missing_ok=True)
    return CleanedRun(run.folder, ended)


class CleanupProcess:
    """The cleanup process of this process: started here, and restarted whenever it ends before `dismiss`.

    It inherits the descriptors `locks`. `report` is called, in another thread, with a text about each restart.

    Raises:
        DeviceError: it does not start.
    """

    def __init__(self, locks: Sequence[int] = (), *, report: Callable[[str], object] = lambda text: None) -> None:
        self._locks = tuple(locks)
        self._report = report
        self._turn, self._dismissed = threading.Lock(), False
        self._process = self._start_surely()
        threading.Thread(target=self._restart, name="restart-cleanup-process", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self, *, all_released: bool = True) -> None:
        """End it at once, or, if something could not be released, after it has released that. Idempotent."""
        with self._turn:
            self._dismissed = True
            stdin = self._process.stdin
            assert stdin is not None
            if stdin.closed:
                return
            with contextlib.suppress(BrokenPipeError), stdin:
                stdin.write(_DONE if all_released else _LEFT)
        if all_released:
            self._process.wait()

    def _start_surely(self) -> subprocess.Popen[bytes]:
        for _ in range(_STARTS - 1):
            with contextlib.suppress(DeviceError):
                return self._start()
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        pid = os.getpid()
        process = start_module(
            "heshare.ops.cleanup",
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
                raise DeviceError(f"The cleanup process of the GPUs does not start ({ending}). Check this Python.")
        return process

    def _restart(self) -> None:
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
                    self._report(f"the cleanup process ended ({ending}) and cannot be restarted: {error}")
                else:
                    self._report(f"the cleanup process ended ({ending}) and was restarted")


def pauses_s(first_s: float) -> Iterator[float]:
    """Yield doubling pauses between attempts, at most `_LONGEST_S`, without end, s."""
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
        # The pipe closes a moment before the process has ended and released its state files.
        time.sleep(pause_s)
        if order != _LEFT and alive(pid, started):
            continue
        with contextlib.suppress(HeShareError, OSError):
            # Another process may restore at the same time, have a state file locked, and fail.
            if not restore().refused and not has_state_file(pid, started):
                return
            if not any(run.owner_status.cleanable for run in find_runs()):
                _close(locks)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed before
            os.close(descriptor)


if __name__ == "__main__":
    process, start, *inherited = map(int, sys.argv[1:])
    main(process, start, inherited)
