"""SM clocks of this machine's cards: noted on disk before they are locked, so that a kill leaves none locked.

A note is a file in the state folder, locked (flock) as long as the process that wrote it lives. NVML does not report
whether a clock was locked before, so giving a clock back means leaving it to the card.
"""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from heshare.ops.nvml.binding import NoPermissionError, NvmlError, NvmlGpu
from heshare.ops.nvml.card_reader import CardReader
from heshare.ops.state.held_note import FoundNote, HeldNote, Life, found_note, state_folder
from heshare.shared.errors import DeviceError

_READ_BACK_S, _TAKE_OVER_S = 1.0, 2.0
RIGHT = (
    "Clocks can be locked here only as root or with CAP_SYS_ADMIN (docker: --cap-add=SYS_ADMIN). Without it plans are "
    "for the card's own clock."
)


class ClockLeftLockedError(DeviceError):
    """A clock could not be given back."""


class HeldClock:
    """The SM clock of one card, as far as this process locks it.

    A note is on disk from before the first lock until the clock is given back.

    Attributes:
        left_locked: whether `close` could not give it back.
    """

    def __init__(self, card: NvmlGpu, uuid: str) -> None:
        self._card, self._uuid = card, uuid
        self._note: HeldNote | None = None
        self.left_locked = False

    def lock(self, sm_mhz: int) -> None:
        """Lock the clock, MHz.

        Raises:
            DeviceError: no right, another process has the clock, or it cannot be noted.
        """
        if self._note is None:
            self._note = _claim(self._card, self._uuid, sm_mhz)
        try:
            self._card.lock_clock(sm_mhz)
        except NoPermissionError:
            self._forget()  # nothing was changed
            raise

    def release(self) -> None:
        """Leave the clock to the card, if this process has locked it.

        Raises:
            NvmlError: it could not be given back; the note stays.
        """
        if self._note is not None:
            # Who has no right to unlock it has never locked it: a signal came between the note and the refusal.
            with contextlib.suppress(NoPermissionError):
                self._card.unlock_clock()
            self._forget()

    def refusal(self, sm_mhz: int) -> str:
        """Return why the clock cannot be set, empty if it can: the driver reveals that only when one is set."""
        try:
            self.lock(sm_mhz)
            self.release()
        except DeviceError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Leave the clock to the card for good. May be repeated.

        Raises:
            ClockLeftLockedError: it could not be given back; its note stays for the keeper and `heshare restore`.
        """
        try:
            self.release()
        except NvmlError as error:
            self.left_locked = True
            raise ClockLeftLockedError(
                f"GPU {self._uuid}: its clock could not be given back and may stay locked ({error}) It is tried again "
                "until it can be; `heshare restore` does so at once."
            ) from error
        finally:
            if self._note is not None:
                self._note.close()
                self._note = None

    def _forget(self) -> None:
        if self._note is not None:
            self._note.remove()
            self._note = None


def _claim(card: NvmlGpu, uuid: str, sm_mhz: int) -> HeldNote:
    """Note that a clock is going to be locked; first undo what an ended process has left of this card."""
    path = state_folder() / f"gpu-{uuid}.json"
    before_mhz = None
    with contextlib.suppress(NvmlError):
        before_mhz = card.sm_mhz()
    try:
        note = HeldNote(path, {"uuid": uuid, "sm_mhz": sm_mhz, "before_mhz": before_mhz})
    except OSError as error:
        raise DeviceError(
            f"{path}: the lock of a clock cannot be noted there ({error.strerror}). Set XDG_STATE_HOME to a folder "
            "that can be written."
        ) from error

    until_s = time.monotonic() + _TAKE_OVER_S
    try:
        while True:
            try:
                note.publish()
                return note
            except FileExistsError:
                _restore_left(path, until_s)
    except BaseException:
        note.remove()
        raise


def _restore_left(path: Path, until_s: float) -> None:
    try:
        with contextlib.suppress(FileNotFoundError), found_note(path) as note:
            if not note.life.over:
                raise DeviceError(_described(note).text)
            _unlock(note)
    except DeviceError:
        # Another process may be undoing the same at this moment.
        if time.monotonic() > until_s:
            raise
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class LockedClock:
    """A clock that a note says is locked; `text` is the note in words, with what to do."""

    uuid: str
    sm_mhz: int
    life: Life
    text: str


def locked_clocks() -> list[LockedClock]:
    """Return the clocks that the notes of this user say are locked; a damaged note has no UUID."""
    found = []
    for path in _notes():
        with contextlib.suppress(FileNotFoundError):
            try:
                with found_note(path) as note:
                    found.append(_described(note))
            except DeviceError as error:
                found.append(LockedClock("", 0, Life.UNKNOWN, str(error)))
    return found


@dataclass(frozen=True, slots=True)
class RestoredClocks:
    """The UUIDs that were unlocked, why others could not be, and what was left alone: in use, or of other hosts."""

    unlocked: tuple[str, ...]
    refused: tuple[str, ...]
    left: tuple[str, ...]


def restore_clocks() -> RestoredClocks:
    """Unlock the clocks that ended processes of this user left locked, and check that they are unlocked."""
    unlocked: list[str] = []
    refused: list[str] = []
    left: list[str] = []
    for path in _notes():
        try:
            with found_note(path) as note:
                if note.life.over:
                    unlocked.append(_unlock(note))
                else:
                    left.append(_described(note).text)
        except FileNotFoundError:
            continue
        except DeviceError as error:
            refused.append(str(error))
    return RestoredClocks(tuple(unlocked), tuple(refused), tuple(left))


def _notes() -> list[Path]:
    return sorted(state_folder().glob("gpu-*.json"))


def _described(note: FoundNote) -> LockedClock:
    uuid, sm_mhz = str(note.facts.get("uuid")), int(note.facts.get("sm_mhz") or 0)
    if note.life is Life.RUNS:
        text = f"GPU {uuid}: its clock is locked at {sm_mhz} MHz by process {note.pid} ({note.place.host}), which runs."
    elif note.life.over:
        text = f"GPU {uuid}: a run that ended left its clock locked at {sm_mhz} MHz. Run `heshare restore`."
    else:
        text = f"GPU {uuid}, locked at {sm_mhz} MHz: {note.elsewhere()}"
    return LockedClock(uuid, sm_mhz, note.life, text)


def _unlock(note: FoundNote) -> str:
    uuid = str(note.facts.get("uuid"))
    with CardReader() as reader:
        card = reader.card(uuid)
        try:
            card.unlock_clock()
        except NoPermissionError:
            # A process without the right was killed between the note and the refusal, unless the clock says otherwise.
            if card.sm_mhz() == note.facts.get("sm_mhz"):
                raise
        _read_back(card, note)
    note.path.unlink()
    return uuid


def _read_back(card: NvmlGpu, note: FoundNote) -> None:
    """Raise `DeviceError` if the card still runs at exactly the locked clock, which it did not have before."""
    locked_mhz = note.facts.get("sm_mhz")
    if locked_mhz == note.facts.get("before_mhz"):
        return
    until_s = time.monotonic() + _READ_BACK_S
    with contextlib.suppress(NvmlError):
        while card.sm_mhz() == locked_mhz:
            if time.monotonic() >= until_s:
                found = f"GPU {note.facts.get('uuid')}: its clock was unlocked, but it still reads {locked_mhz} MHz"
                raise DeviceError(f"{found}. See `nvidia-smi -q -d CLOCK`.")
            time.sleep(0.05)
