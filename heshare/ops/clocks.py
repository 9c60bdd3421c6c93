"""Locking of SM clocks, with a state file on disk before each lock, so that a killed process leaves none locked.

NVML does not report whether a clock was locked before, so releasing a clock resets it to the GPU's default.
"""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from heshare.ops.nvml.binding import NoPermissionError, NvmlError, NvmlGpu
from heshare.ops.nvml.card_reader import CardReader
from heshare.ops.state.state_file import FoundStateFile, OwnerStatus, StateFile, open_state_file, state_folder
from heshare.shared.errors import DeviceError

_READ_BACK_S, _TAKE_OVER_S = 1.0, 2.0
RIGHT = (
    "Clocks can be locked here only as root or with CAP_SYS_ADMIN (docker: --cap-add=SYS_ADMIN). Without it plans are "
    "for the GPU's default clock."
)


class ClockLeftLockedError(DeviceError):
    """A clock could not be unlocked."""


class ClockLock:
    """The lock of one GPU's SM clock by this process.

    Its state file is on disk from before the first lock until the clock is unlocked.

    Attributes:
        left_locked: whether `close` could not unlock the clock.
    """

    def __init__(self, card: NvmlGpu, uuid: str) -> None:
        self._card, self._uuid = card, uuid
        self._state_file: StateFile | None = None
        self.left_locked = False

    def lock(self, sm_mhz: int) -> None:
        """Lock the clock, MHz.

        Raises:
            DeviceError: no permission, another process has locked the clock, or the state file cannot be written.
        """
        if self._state_file is None:
            self._state_file = _write_state_file(self._card, self._uuid, sm_mhz)
        try:
            self._card.lock_clock(sm_mhz)
        except NoPermissionError:
            self._remove_state_file()  # nothing was changed
            raise

    def release(self) -> None:
        """Unlock the clock if this process has locked it.

        Raises:
            NvmlError: it could not be unlocked; the state file stays.
        """
        if self._state_file is not None:
            # Without permission to unlock, the lock has failed too: a signal arrived after the state file was written.
            with contextlib.suppress(NoPermissionError):
                self._card.unlock_clock()
            self._remove_state_file()

    def refusal(self, sm_mhz: int) -> str:
        """Try to lock the clock; return why that fails, empty if it does not. The driver has no query for it."""
        try:
            self.lock(sm_mhz)
            self.release()
        except DeviceError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Unlock the clock at the end of its use. Idempotent.

        Raises:
            ClockLeftLockedError: it could not be unlocked; its state file stays for the cleanup process and
                `heshare restore`.
        """
        try:
            self.release()
        except NvmlError as error:
            self.left_locked = True
            raise ClockLeftLockedError(
                f"GPU {self._uuid}: its clock could not be unlocked and may stay locked ({error}) It is tried again "
                "until it succeeds; `heshare restore` tries at once."
            ) from error
        finally:
            if self._state_file is not None:
                self._state_file.close()
                self._state_file = None

    def _remove_state_file(self) -> None:
        if self._state_file is not None:
            self._state_file.remove()
            self._state_file = None


def _write_state_file(card: NvmlGpu, uuid: str, sm_mhz: int) -> StateFile:
    """Write the state file of a clock before it is locked; first unlock one that an ended process left locked."""
    path = state_folder() / f"gpu-{uuid}.json"
    before_mhz = None
    with contextlib.suppress(NvmlError):
        before_mhz = card.sm_mhz()
    try:
        file = StateFile(path, {"uuid": uuid, "sm_mhz": sm_mhz, "before_mhz": before_mhz})
    except OSError as error:
        raise DeviceError(
            f"{path}: the state file of the clock cannot be written ({error.strerror}). Set XDG_STATE_HOME to a "
            "writable folder."
        ) from error

    until_s = time.monotonic() + _TAKE_OVER_S
    try:
        while True:
            try:
                file.publish()
                return file
            except FileExistsError:
                _restore_left(path, until_s)
    except BaseException:
        file.remove()
        raise


def _restore_left(path: Path, until_s: float) -> None:
    try:
        with contextlib.suppress(FileNotFoundError), open_state_file(path) as file:
            if not file.owner_status.has_ended:
                raise DeviceError(_describe(file).text)
            _unlock(file)
    except DeviceError:
        # Another process may unlock the same clock now.
        if time.monotonic() > until_s:
            raise
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class LockedClock:
    """A clock that is locked by its state file; `text` describes it and what to do."""

    uuid: str
    sm_mhz: int
    owner_status: OwnerStatus
    text: str


def locked_clocks() -> list[LockedClock]:
    """Return the clocks that are locked by this user's state files; a damaged file has an empty UUID."""
    found = []
    for path in _state_paths():
        with contextlib.suppress(FileNotFoundError):
            try:
                with open_state_file(path) as file:
                    found.append(_describe(file))
            except DeviceError as error:
                found.append(LockedClock("", 0, OwnerStatus.UNKNOWN, str(error)))
    return found


@dataclass(frozen=True, slots=True)
class RestoredClocks:
    """UUIDs that were unlocked; texts on those that could not be, and on those in use or of other hosts (`left`)."""

    unlocked: tuple[str, ...]
    refused: tuple[str, ...]
    left: tuple[str, ...]


def restore_clocks() -> RestoredClocks:
    """Unlock the clocks that ended processes of this user left locked, and verify that they are unlocked."""
    unlocked: list[str] = []
    refused: list[str] = []
    left: list[str] = []
    for path in _state_paths():
        try:
            with open_state_file(path) as file:
                if file.owner_status.has_ended:
                    unlocked.append(_unlock(file))
                else:
                    left.append(_describe(file).text)
        except FileNotFoundError:
            continue
        except DeviceError as error:
            refused.append(str(error))
    return RestoredClocks(tuple(unlocked), tuple(refused), tuple(left))


def _state_paths() -> list[Path]:
    return sorted(state_folder().glob("gpu-*.json"))


def _describe(file: FoundStateFile) -> LockedClock:
    uuid, sm_mhz = str(file.facts.get("uuid")), int(file.facts.get("sm_mhz") or 0)
    if file.owner_status is OwnerStatus.RUNNING:
        text = (
            f"GPU {uuid}: its clock is locked at {sm_mhz} MHz by process {file.pid} ({file.location.host}), which runs."
        )
    elif file.owner_status.has_ended:
        text = f"GPU {uuid}: a run that ended left its clock locked at {sm_mhz} MHz. Run `heshare restore`."
    else:
        text = f"GPU {uuid}, locked at {sm_mhz} MHz: {file.elsewhere()}"
    return LockedClock(uuid, sm_mhz, file.owner_status, text)


def _unlock(file: FoundStateFile) -> str:
    uuid = str(file.facts.get("uuid"))
    with CardReader() as reader:
        card = reader.card(uuid)
        try:
            card.unlock_clock()
        except NoPermissionError:
            # If the clock is not locked, a process without permission was killed before NVML refused its lock.
            if card.sm_mhz() == file.facts.get("sm_mhz"):
                raise
        _read_back(card, file)
    file.path.unlink()
    return uuid


def _read_back(card: NvmlGpu, file: FoundStateFile) -> None:
    """Raise `DeviceError` if the GPU still runs at exactly the locked clock, unless it did so before the lock."""
    locked_mhz = file.facts.get("sm_mhz")
    if locked_mhz == file.facts.get("before_mhz"):
        return
    until_s = time.monotonic() + _READ_BACK_S
    with contextlib.suppress(NvmlError):
        while card.sm_mhz() == locked_mhz:
            if time.monotonic() >= until_s:
                found = f"GPU {file.facts.get('uuid')}: its clock was unlocked, but it still reads {locked_mhz} MHz"
                raise DeviceError(f"{found}. See `nvidia-smi -q -d CLOCK`.")
            time.sleep(0.05)
