"""A card whose clock the clock service sets: held by one client at a time, noted on disk while it is locked."""

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from heshare.ops.nvml.binding import NoPermissionError, NvmlError, NvmlGpu
from heshare.shared.errors import DeviceError
from heshare.shared.file_lock import FileLock, hold

_TURN_S = 3.0


class RefusedError(DeviceError):
    """A request that the clock service refuses.

    Attributes:
        kind: `permission`, `busy`, `request` or `card`.
    """

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        super().__init__(why)


class ServedCard:
    """A card of the clock service. Its methods may be called by several threads.

    Args:
        card: returns the GPU; it is asked again at every call, since a GPU may be away for a while.
        note: the file that is there as long as its clock may be locked, so that the next service unlocks it.
    """

    def __init__(self, card: Callable[[], NvmlGpu], note: Path) -> None:
        self._card, self._note = card, note
        self._turn = threading.Lock()
        self._holder: object = None
        self.sm_mhz: int | None = None
        self.changed = note.exists()

    @property
    def held(self) -> bool:
        """Whether a client has it."""
        return self._holder is not None

    def is_of(self, client: object) -> bool:
        """Return whether a client has it."""
        return self._holder is client

    def lock(self, client: object, sm_mhz: int) -> None:
        """Lock its clock for a client, MHz, who has the card from now on.

        Raises:
            RefusedError: another client has it, or the card refuses.
        """
        with self._turn_of(client):
            before, changed = self._holder, self.changed
            try:
                self._note.write_text(f"{sm_mhz}\n", encoding="utf-8")
                self._holder, self.changed = client, True
                self._call(lambda card: card.lock_clock(sm_mhz))
                self.sm_mhz = sm_mhz
            except OSError as error:
                raise RefusedError("card", f"the lock cannot be noted: {error.strerror}") from error
            except RefusedError as error:
                self._holder = before
                if error.kind == "permission" and not changed:
                    self._forget()
                elif not changed:
                    with contextlib.suppress(RefusedError):
                        self._unlock()
                raise

    def unlock(self, client: object) -> None:
        """Leave its clock to the card.

        Raises:
            RefusedError: another client has it, or the card refuses.
        """
        with self._turn_of(client):
            self._unlock()

    def give_back(self, client: object) -> None:
        """Take the card from a client that has gone, if it has it, and unlock its clock; see `retry`."""
        if self._holder is client:
            with self._turn:
                self._holder = None
                with contextlib.suppress(RefusedError):
                    self._unlock()

    def retry(self) -> bool:
        """Unlock its clock if nobody has the card and it may still be locked; return whether that is in order now."""
        if self._holder is None and self.changed and self._turn.acquire(blocking=False):
            try:
                if self._holder is None:
                    self._unlock()
            except RefusedError:
                return False
            finally:
                self._turn.release()
        return not self.changed

    @contextlib.contextmanager
    def _turn_of(self, client: object) -> Iterator[None]:
        if not self._turn.acquire(timeout=_TURN_S):
            raise RefusedError("card", "the card does not reply")
        try:
            if self._holder not in (None, client):
                raise RefusedError("busy", "another client has this card")
            yield
        finally:
            self._turn.release()

    def _unlock(self) -> None:
        self._call(lambda card: card.unlock_clock())
        self._forget()

    def _forget(self) -> None:
        self._note.unlink(missing_ok=True)
        self.sm_mhz, self.changed = None, False

    def _call(self, do: Callable[[NvmlGpu], None]) -> None:
        try:
            do(self._card())
        except NvmlError as error:
            kind = "permission" if isinstance(error, NoPermissionError) else "card"
            raise RefusedError(kind, str(error)) from error


def lock_notes(folder: Path) -> FileLock:
    """Make the folder of the notes and lock it for this process.

    Raises:
        DeviceError: another service has it, or it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            raise DeviceError(f"{folder}: another user can write here. Choose another --state, with mode 700.")
        return hold(folder / "lock")
    except BlockingIOError as error:
        raise DeviceError(f"{folder}: another clock service uses this folder. End it first.") from error
    except OSError as error:
        raise DeviceError(f"{folder}: cannot be used for notes ({error.strerror}). Choose another --state.") from error
