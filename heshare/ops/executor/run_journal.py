"""The executor's journal: every decision and result, appended and synced before it counts, and read to resume."""

import errno
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heshare.ops.private_files import make_private_folder, open_private
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.journal import Journal, read_journal, salvage_journal

NAME = "journal.jsonl"
FULL_DISK_S = 60.0
"""How long to wait for room on a full disk, s."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RunJournal(Journal):
    """The journal of a run, in the run's folder, which no other user may own, write or have prepared.

    Args:
        folder: the run's folder.
        run: the description of a new run; None to continue the one that is there.
        full_disk_s: how long to wait for room on a full disk, s.
        salvage: leave damaged lines out, and continue (`salvage_journal`).

    Attributes:
        entries: the entries that it had when it was opened, the description of the run first.
        on_full_disk: is called while it waits, with how long it will wait, s; with 0 once there is room again.

    Raises:
        InputError: a new run where there is one already, none to continue, or as `make_private_folder` and `Journal`.
        DeviceError: as `append`.
    """

    def __init__(
        self,
        folder: Path,
        run: Mapping[str, Any] | None,
        *,
        full_disk_s: float = FULL_DISK_S,
        salvage: bool = False,
    ) -> None:
        path = folder / NAME
        action = "Name the folder of a run, or start one with its jobs.yaml."
        no_run = InputError("no journal of a run", "the folder of a run", action, file=path)
        if run is None and not (path.exists() and path.stat().st_size > 0):
            raise no_run
        self._full_disk_s = full_disk_s
        self.on_full_disk: Callable[[float], None] = lambda left_s: None
        self._on_entry: Callable[[Mapping[str, Any]], object] = lambda entry: None
        make_private_folder(folder)
        if salvage:
            try:
                salvage_journal(path, "run", opener=open_private)
            except OSError as error:
                raise DeviceError(f"{path}: cannot be salvaged ({error.strerror}). Make room beside it.") from error
        super().__init__(path, "run", opener=open_private, remedy=_remedy(folder))
        try:
            if run is not None:
                self._begin(run)
            elif not self.entries:
                raise no_run
        except BaseException:
            self.close()
            raise

    def append(self, entry: Mapping[str, Any], *, sync: bool = True) -> None:
        """Write an entry, whole or not at all; with `sync` it is on disk when this returns, with all before it.

        Wait while the disk is full: what cannot be noted must not be done.

        Raises:
            DeviceError: the disk stays full, or fails; the run can be resumed later.
        """
        until, waited = time.monotonic() + self._full_disk_s, False
        while True:
            try:
                super().append(entry, sync=sync)
                if waited:
                    self.on_full_disk(0.0)
                break
            except OSError as error:
                left_s = until - time.monotonic()
                if error.errno not in _FULL or left_s <= 0:
                    self._full_disk_s = 0.0  # the run ends now: its last accounts do not wait as long again
                    raise DeviceError(
                        f"{self.path}: cannot be written ({error.strerror}). Make room, then continue with "
                        f"heshare run --resume {self.path.parent}."
                    ) from error
            waited = True
            self.on_full_disk(left_s)
            time.sleep(min(0.5, self._full_disk_s / 4))
        self._on_entry(entry)

    def follow(self, on_entry: Callable[[Mapping[str, Any]], object]) -> None:
        """Call `on_entry` with every entry: with those that it had when it was opened now, with others once written."""
        for entry in self.entries:
            on_entry(entry)
        self._on_entry = on_entry

    def _begin(self, run: Mapping[str, Any]) -> None:
        refuse_begun(self.path.parent, self.entries)
        self.clear()
        self.append({"run": run})
        self.entries = [{"run": json.loads(json.dumps(run))}]


def refuse_begun(folder: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to begin a run in the folder of another.

    Without a decision nothing was started: a run that was refused may begin again.

    Raises:
        InputError: the entries of the journal there have a decision.
    """
    if any("decision" in entry for entry in entries):
        action = f"Continue it: heshare run --resume {folder}; or choose another folder with --out."
        raise InputError("the journal of a run", "a folder for this run", action, file=folder / NAME)


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of a run's journal without changing it; a torn last line is left out.

    Raises:
        InputError: as `read_journal`.
    """
    return read_journal(folder / NAME, "run", remedy=_remedy(folder))


def _remedy(folder: Path) -> str:
    return f"Restore the file, or continue without its damaged lines: heshare run --resume {folder} --salvage."


@contextmanager
def reading_entries(folder: Path) -> Iterator[None]:
    """Turn what a made-up entry of a run's journal causes within the `with` into an `InputError`.

    Checksums tell damage from what a run wrote, not what somebody else wrote with right checksums.
    """
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        found = f"an entry that no run writes ({type(error).__name__}: {error})"
        action = "Restore the file from a copy; without one, begin another run."
        raise InputError(found, "the journal of a run", action, file=folder / NAME) from error


def entry_time_s(entry: Mapping[str, Any]) -> float:
    """Return the time of an entry, s since its session's start; 0 where it has none."""
    for kind, name in (("decision", "t"), ("sample", "t"), ("end", "end_s")):
        if kind in entry:
            return float(entry[kind][name])
    return 0.0


def session_start(entries: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return when a session that begins now starts: by the wall clock, but never before the last entry of the run.

    Returns:
        The start as a Unix time, s; and how far the wall clock is behind it since somebody has set it back, s, 0 where
        that is less than the second by which clocks drift apart.
    """
    now, last, began = time.time(), -math.inf, -math.inf
    for entry in entries:
        began = entry["session"]["at"] if "session" in entry else began
        last = max(last, began + entry_time_s(entry))
    return max(now, last), last - now if last - now > 1.0 else 0.0
