"""Notes of what a process holds: JSON files under a file lock (flock) that lasts as long as the process.

The lock shows whether the process still runs, also from another container or over NFS. A process id shows that only in
its own pid namespace and until the host is started again. `judged` is the one place that decides it.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from heshare.shared.errors import DeviceError
from heshare.shared.file_lock import take
from heshare.shared.processes import alive, started_at

_PART = ".part"
_OLD_PART_S = 60.0
_LOOK_S = 0.05
"""Who only looks at a note has its lock for a moment, at most so long, s."""


def state_folder() -> Path:
    """Return the folder of the notes (`$XDG_STATE_HOME/heshare`, or `~/.local/state/heshare`)."""
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "heshare"
    try:
        return Path.home() / ".local" / "state" / "heshare"
    except (RuntimeError, KeyError):
        raise DeviceError(
            f"User {os.getuid()} has no home folder, so there is no place for notes of changed GPUs. Set "
            "XDG_STATE_HOME to a folder that it can write, such as /var/lib/heshare, which stays when the machine is "
            "started again."
        ) from None


@dataclass(frozen=True, slots=True)
class MachinePlace:
    """Where a process runs. Its process id means something only at the same place.

    Attributes:
        host: the name of the host, or of the container.
        machine: the id of the installed system; empty where it has none.
        boot: the id of the host's start; containers share it with their host.
        pids: the number of the pid namespace.
    """

    host: str
    machine: str
    boot: str
    pids: str

    @classmethod
    def here(cls) -> "MachinePlace":
        try:
            pids = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
        except OSError:
            pids = ""
        boot = _text("/proc/sys/kernel/random/boot_id")
        return cls(os.uname().nodename, _text("/etc/machine-id"), boot, pids)

    def same_processes(self, other: "MachinePlace") -> bool:
        return (self.boot, self.pids) == (other.boot, other.pids)

    def __str__(self) -> str:
        return f"host {self.host}, pid namespace {self.pids or 'unknown'}"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


class Life(Enum):
    """Whether the process that wrote a note still runs.

    Attributes:
        RUNS: it runs, or another process cleans up after it at this moment.
        ENDED: it has ended; its process ids are those of this pid namespace.
        REBOOTED: it ran before this host was started again: its processes are gone, and their ids mean nothing.
        HIDDEN: it has ended, but ran in another container of this host: processes that it left cannot be seen.
        UNKNOWN: it ran on another host, or where file locks are not supported: nothing can be said.
    """

    RUNS = "runs"
    ENDED = "ended"
    REBOOTED = "rebooted"
    HIDDEN = "hidden"
    UNKNOWN = "unknown"

    @property
    def over(self) -> bool:
        """Whether the process has ended for certain."""
        return self in (Life.ENDED, Life.REBOOTED, Life.HIDDEN)

    @property
    def cleanable(self) -> bool:
        """Whether the process has ended, and all that it may have left can be seen from here."""
        return self in (Life.ENDED, Life.REBOOTED)


class HeldNote:
    """A note of this process, locked before it can be seen; it stays until `remove`, also if the process is killed.

    Raises OSError where the folder cannot be written.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path, self._part = path, path.with_name(f"{path.name}.{secrets.token_hex(4)}{_PART}")
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.descriptor = os.open(self._part, flags, 0o600)
        try:
            pid, locks = os.getpid(), _lock(self.descriptor)
            process = {"pid": pid, "started": started_at(pid), "place": asdict(MachinePlace.here())}
            text = json.dumps({**facts, **process, "locks": locks is not None})
            with open(self.descriptor, "w", encoding="utf-8", closefd=False) as stream:
                stream.write(text)
            os.fsync(self.descriptor)
        except BaseException:
            self.remove()
            raise

    def publish(self) -> None:
        # A link is made whole or not at all, and never replaces another note.
        os.link(self._part, self.path)
        self._part.unlink()

    def remove(self) -> None:
        """Delete the note, and with it release its lock. May be repeated."""
        if self.descriptor >= 0:
            with contextlib.suppress(FileNotFoundError):
                if _is_at(self.descriptor, self.path):
                    self.path.unlink()
            self._part.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Release the lock and leave the note: to others this process counts as ended. May be repeated."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True, slots=True)
class FoundNote:
    """A note that was found on disk: what it says, whether its process still runs, and where (and as what) that ran."""

    path: Path
    facts: Mapping[str, Any]
    life: Life
    place: MachinePlace
    pid: int

    def elsewhere(self) -> str:
        """Return what to do about a note that cannot be judged or cleaned up from here."""
        why = "file locks do not work there" if not self.facts.get("locks") else f"it is of {self.place}"
        return (
            f"{self.path}: left alone, since {why} (process {self.pid}, {self.place.host}). Run `heshare restore` "
            "there; delete the note if that host or container no longer exists."
        )


@contextlib.contextmanager
def found_note(path: Path) -> Iterator[FoundNote]:
    """Open a note and judge it; if its process has ended, nobody else can clean up after it within the `with`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DeviceError(f"{path}: this note cannot be read ({error.strerror}). Run as its owner.") from error
    try:
        try:
            with open(descriptor, encoding="utf-8", closefd=False) as stream:
                facts = json.load(stream)
            place, pid, started = MachinePlace(**facts["place"]), int(facts["pid"]), int(facts["started"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DeviceError(f"{path}: not a note of heshare ({error!r}). Delete it.") from error
        life = judged(descriptor, place, pid, started, locks=bool(facts.get("locks")))
        if not _is_at(descriptor, path):
            raise FileNotFoundError(path)
        yield FoundNote(path, facts, life, place, pid)
    finally:
        os.close(descriptor)


def judged(descriptor: int, place: MachinePlace, pid: int, started: int, *, locks: bool) -> Life:
    """Return whether the process that wrote a file still runs; if it has ended, the file's lock is taken.

    The file is open for writing (over NFS a lock needs that); `started` is as of `processes.started_at`.
    """
    here = MachinePlace.here()
    free = _lock(descriptor) if locks else None
    if free is False:
        return Life.RUNS
    if place.same_processes(here):
        return Life.ENDED if free or not alive(pid, started) else Life.RUNS
    if place.boot != here.boot and (place.host, place.machine) == (here.host, here.machine):
        return Life.REBOOTED
    return Life.HIDDEN if free and place.boot == here.boot else Life.UNKNOWN


def noted_by(pid: int, started: int) -> bool:
    """Return whether there is a note of this process, whoever has it locked."""
    for path in state_folder().glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            facts = json.loads(path.read_text(encoding="utf-8"))
            if (facts["pid"], facts["started"]) == (pid, started):
                return True
    return False


def discard_parts(folder: Path) -> None:
    """Delete notes and files that were never given their name, since their process was killed in between."""
    for path in (*folder.glob(f"*.json.*{_PART}"), *folder.glob(".*-*.json")):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _OLD_PART_S:
                path.unlink()


def _lock(descriptor: int) -> bool | None:
    try:
        return take(descriptor, _LOOK_S)
    except OSError:
        return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False
