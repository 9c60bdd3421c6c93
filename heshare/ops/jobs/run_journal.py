"""Write-ahead journal of a run: decisions and results are synced before they take effect, and read for a resume."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from heshare.ops.jobs.entries import Decision, Entry, Run, Session, decode, encode, entry_time_s
from heshare.ops.jobs.run_state import RunState
from heshare.ops.private_files import make_private_folder, open_private
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.journal import Journal, read_journal
from heshare.shared.version import __version__

NAME = "journal.jsonl"
_REMEDY = "Restore the file from a copy; without one, begin another run with what is left to do."


class RunJournal:
    """The journal of a run, in the run's folder, which must be private to the user (`private_files`).

    `run` describes a new run; None continues the existing one. `entries` are those at the time of opening, the first
    one the description of the run.

    Raises:
        InputError: a new run in the folder of another, no run to continue, or as `make_private_folder` and `Journal`.
        DeviceError: as `append`.
    """

    def __init__(self, folder: Path, run: Run | None) -> None:
        path = folder / NAME
        action = "Name the folder of a run, or start one with its jobs.yaml."
        no_run = InputError("no journal of a run", "the folder of a run", action, file=path)
        if run is None and not (path.exists() and path.stat().st_size > 0):
            raise no_run
        make_private_folder(folder)
        self._lines = Journal(path, "run", opener=open_private, remedy=_REMEDY)
        try:
            self.entries = decoded(self._lines.entries, folder)
            if run is not None:
                self._begin(run)
            elif not self.entries:
                raise no_run
        except BaseException:
            self.close()
            raise

    def append(self, entry: Entry, *, sync: bool = True) -> None:
        """Append an entry, completely or not at all; `sync` flushes it and all entries before it to the disk.

        If it fails, the caller must not carry out the journalled action.

        Raises:
            DeviceError: the disk is full or fails; the run can be resumed later.
        """
        try:
            self._lines.append(encode(entry), sync=sync)
        except OSError as error:
            raise DeviceError(
                f"{self._lines.path}: cannot be written ({error.strerror}). Free disk space, then continue with "
                f"heshare jobs run --resume {self._lines.path.parent}."
            ) from error

    def close(self) -> None:
        self._lines.close()

    def _begin(self, run: Run) -> None:
        refuse_begun(self._lines.path.parent, self.entries)
        self._lines.clear()
        self.append(run)
        self.entries = [run]


def refuse_begun(folder: Path, entries: Sequence[Entry]) -> None:
    """Refuse to begin a run in the folder of another one.

    A run without a decision has started nothing, so it may be begun again.

    Raises:
        InputError: the entries of the journal there have a decision.
    """
    if any(isinstance(entry, Decision) for entry in entries):
        action = f"Continue it: heshare jobs run --resume {folder}; or choose another folder with --out."
        raise InputError("the journal of a run", "a folder for this run", action, file=folder / NAME)


def read(folder: Path) -> list[Entry]:
    """Return the entries of a run's journal without changing it; an incomplete last line is left out.

    Raises:
        InputError: as `read_journal`, or a line that is no valid entry.
    """
    return decoded(read_journal(folder / NAME, "run", remedy=_REMEDY), folder)


def read_state(folder: Path) -> RunState:
    """Return the state of the run in a folder; the journal is read without a lock.

    Raises:
        InputError: no run there, or a damaged journal.
    """
    return folded(read(folder), folder)


def decoded(lines: Sequence[dict[str, Any]], folder: Path) -> list[Entry]:
    """Return the entries of a journal's lines; `InputError` for one that is no entry of this version."""
    version = lines[0].get("run", {}).get("version") if lines else __version__
    try:
        with _made_up(folder):
            return [decode(line) for line in lines]
    except InputError:
        if version == __version__:
            raise
        action = f"Continue it with the version that began it: pip install heshare=={version}."
        expected = f"one of heshare {__version__}, which runs here"
        raise InputError(f"the journal of heshare {version}", expected, action, file=folder / NAME) from None


def folded(entries: Sequence[Entry], folder: Path) -> RunState:
    """Return the state after these entries; `InputError` if they are inconsistent."""
    with _made_up(folder):
        state = RunState()
        for entry in entries:
            state.add(entry)
        return state


@contextmanager
def _made_up(folder: Path) -> Iterator[None]:
    # Checksums detect damage, but not entries that another program wrote with correct checksums.
    try:
        yield
    except (msgspec.ValidationError, LookupError, ValueError) as error:
        found = f"an entry that no run writes ({error})"
        raise InputError(found, "the journal of a run", _REMEDY, file=folder / NAME) from error


def session_start(entries: Sequence[Entry]) -> tuple[float, float]:
    """Return the start of a session that begins now: the wall clock's time, but not before the last entry of the run.

    Returns:
        The start as a Unix time, s; and how far the wall clock was set back, s, 0 for less than a second, which may be
        clock drift.
    """
    now, last, began = time.time(), -math.inf, -math.inf
    for entry in entries:
        began = entry.at if isinstance(entry, Session) else began
        last = max(last, began + entry_time_s(entry))
    return max(now, last), last - now if last - now > 1.0 else 0.0
