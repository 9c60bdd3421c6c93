"""State files: JSON files on what a process has changed on GPUs, each locked (flock) by its owner while that runs.

The lock shows whether the owner still runs, also from another container or over NFS; a process id shows that only in
the same pid namespace and until the next boot. `find_owner_status` decides it.
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
"""How long a process that only reads a state file may hold its lock, s."""


def state_folder() -> Path:
    """Return the folder of the state files (`$XDG_STATE_HOME/heshare`, or `~/.local/state/heshare`)."""
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "heshare"
    try:
        return Path.home() / ".local" / "state" / "heshare"
    except (RuntimeError, KeyError):
        raise DeviceError(
            f"User {os.getuid()} has no home folder for the state files of changed GPUs. Set XDG_STATE_HOME to a "
            "writable folder that survives a reboot, such as /var/lib/heshare."
        ) from None


@dataclass(frozen=True, slots=True)
class ProcessLocation:
    """Host, boot and pid namespace of a process, within which its process id is valid.

    Attributes:
        host: the name of the host, or of the container.
        machine: the machine id of the installed system; empty if it has none.
        boot: the boot id of the host; containers share it with their host.
        pids: the number of the pid namespace.
    """

    host: str
    machine: str
    boot: str
    pids: str

    @classmethod
    def here(cls) -> "ProcessLocation":
        try:
            pids = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
        except OSError:
            pids = ""
        boot = _text("/proc/sys/kernel/random/boot_id")
        return cls(os.uname().nodename, _text("/etc/machine-id"), boot, pids)

    def same_processes(self, other: "ProcessLocation") -> bool:
        return (self.boot, self.pids) == (other.boot, other.pids)

    def __str__(self) -> str:
        return f"host {self.host}, pid namespace {self.pids or 'unknown'}"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


class OwnerStatus(Enum):
    """Whether the owner of a state file, the process that wrote it, still runs.

    Attributes:
        RUNNING: it runs, or another process cleans up after it now.
        ENDED: it has ended, and its process ids are those of this pid namespace.
        REBOOTED: it ran before the last boot of this host, so its processes no longer exist and their ids are invalid.
        HIDDEN: it has ended, but ran in another container of this host, whose processes are not visible.
        UNKNOWN: it ran on another host, or file locks are not supported there.
    """

    RUNNING = "runs"
    ENDED = "ended"
    REBOOTED = "rebooted"
    HIDDEN = "hidden"
    UNKNOWN = "unknown"

    @property
    def has_ended(self) -> bool:
        """Whether the owner has certainly ended."""
        return self in (OwnerStatus.ENDED, OwnerStatus.REBOOTED, OwnerStatus.HIDDEN)

    @property
    def cleanable(self) -> bool:
        """Whether the owner has ended, and all processes that it may have left are visible to this one."""
        return self in (OwnerStatus.ENDED, OwnerStatus.REBOOTED)


class StateFile:
    """A state file of this process, locked before others can see it; it stays until `remove`, also after a kill.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path, self._part = path, path.with_name(f"{path.name}.{secrets.token_hex(4)}{_PART}")
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.descriptor = os.open(self._part, flags, 0o600)
        try:
            pid, locks = os.getpid(), _lock(self.descriptor)
            process = {"pid": pid, "started": started_at(pid), "place": asdict(ProcessLocation.here())}
            text = json.dumps({**facts, **process, "locks": locks is not None})
            with open(self.descriptor, "w", encoding="utf-8", closefd=False) as stream:
                stream.write(text)
            os.fsync(self.descriptor)
        except BaseException:
            self.remove()
            raise

    def publish(self) -> None:
        # A hard link appears atomically and never replaces another state file.
        os.link(self._part, self.path)
        self._part.unlink()

    def remove(self) -> None:
        """Delete the file and release its lock. Idempotent."""
        if self.descriptor >= 0:
            with contextlib.suppress(FileNotFoundError):
                if _is_at(self.descriptor, self.path):
                    self.path.unlink()
            self._part.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Release the lock but leave the file: for others the owner counts as ended. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True, slots=True)
class FoundStateFile:
    """A state file read from disk: its content (`facts`), and the status, location and process id of its owner."""

    path: Path
    facts: Mapping[str, Any]
    owner_status: OwnerStatus
    location: ProcessLocation
    pid: int

    def elsewhere(self) -> str:
        """Return what to do about a state file whose owner this process cannot check or clean up after."""
        why = "file locks do not work there" if not self.facts.get("locks") else f"it is of {self.location}"
        return (
            f"{self.path}: left alone, since {why} (process {self.pid}, {self.location.host}). Run `heshare restore` "
            "there; delete the file if that host or container no longer exists."
        )


@contextlib.contextmanager
def open_state_file(path: Path) -> Iterator[FoundStateFile]:
    """Open a state file and find the status of its owner; if that has ended, the file is locked within the `with`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DeviceError(f"{path}: this state file cannot be read ({error.strerror}). Run as its owner.") from error
    try:
        try:
            with open(descriptor, encoding="utf-8", closefd=False) as stream:
                facts = json.load(stream)
            location = ProcessLocation(**facts["place"])
            pid = int(facts["pid"])
            started = int(facts["started"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DeviceError(f"{path}: not a state file of heshare ({error!r}). Delete it.") from error

        status = find_owner_status(descriptor, location, pid, started, locks=bool(facts.get("locks")))
        if not _is_at(descriptor, path):
            raise FileNotFoundError(path)
        yield FoundStateFile(path, facts, status, location, pid)
    finally:
        os.close(descriptor)


def find_owner_status(
    descriptor: int, location: ProcessLocation, pid: int, started: int, *, locks: bool
) -> OwnerStatus:
    """Return whether the owner of a state file still runs; if it has ended, take the file's lock.

    The file must be open for writing (NFS requires that for a lock); `started` is as of `processes.started_at`.
    """
    here = ProcessLocation.here()
    free = _lock(descriptor) if locks else None
    if free is False:
        return OwnerStatus.RUNNING
    if location.same_processes(here):
        return OwnerStatus.ENDED if free or not alive(pid, started) else OwnerStatus.RUNNING
    if location.boot != here.boot and (location.host, location.machine) == (here.host, here.machine):
        return OwnerStatus.REBOOTED
    return OwnerStatus.HIDDEN if free and location.boot == here.boot else OwnerStatus.UNKNOWN


def has_state_file(pid: int, started: int) -> bool:
    """Return whether a state file of this process exists, whichever process has locked it."""
    for path in state_folder().glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            facts = json.loads(path.read_text(encoding="utf-8"))
            if (facts["pid"], facts["started"]) == (pid, started):
                return True
    return False


def delete_unpublished(folder: Path) -> None:
    """Delete temporary files of processes that were killed before they had published them."""
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
