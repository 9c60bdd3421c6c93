"""A card whose clock the clock service sets: held by one client at a time, noted on disk while it is locked."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from heshare.ops.clocks.clock_notes import claim, is_left, note_of, restore_note, unlock
from heshare.ops.nvml.binding import NoPermissionError, NvmlError, NvmlGpu
from heshare.ops.state.held_note import HeldNote
from heshare.shared.errors import DeviceError

_TURN_S = 3.0


class RefusedError(DeviceError):
    """A request that the clock service refuses; `kind` is `permission`, `busy`, `request` or `card`."""

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        super().__init__(why)


class ServedCard:
    """A card of the clock service. Its methods may be called by several threads.

    NVML does not report which clocks were locked before, so giving back leaves the clock to the card, or returns it to
    `site_mhz`. A note is in `folder` as long as the clock may be locked, so that others can unlock it. `open_card` is
    asked again at every call, since a GPU may be away for a while.
    """

    def __init__(
        self, uuid: str, open_card: Callable[[str], NvmlGpu], folder: Path, site_mhz: int | None = None
    ) -> None:
        self._uuid, self._open_card, self._path = uuid, open_card, note_of(uuid, folder)
        self._site_mhz = site_mhz
        self._turn = threading.Lock()
        self._holder: object = None
        self._note: HeldNote | None = None
        self._left = _status(self._path) if is_left(self._path) else None
        self.sm_mhz: int | None = None

    @property
    def held(self) -> bool:
        return self._holder is not None

    def is_of(self, client: object) -> bool:
        return self._holder is client

    def lock(self, client: object, sm_mhz: int) -> None:
        with self._turn_of(client):
            before, first = self._holder, self._note is None
            if first:
                self._note = self._claim(client, sm_mhz)
            try:
                self._holder = client
                self._call(lambda card: card.lock_clock(sm_mhz))
                self.sm_mhz = sm_mhz
            except RefusedError as error:
                self._holder = before
                if first and error.kind == "permission":
                    self._forget()  # nothing was changed
                elif first:
                    self._give_up()
                raise

    def unlock(self, client: object) -> None:
        with self._turn_of(client):
            if self._holder is not client and self._left is None:
                raise RefusedError("request", "this client does not have the card")
            self._unlock()
            if not self.retry():
                raise RefusedError("card", "its clock was left locked, and cannot be unlocked now")

    def give_back(self, client: object) -> None:
        """Take the card from a client that has gone, if it has it, and unlock its clock; see `retry`."""
        if self._holder is client:
            with self._turn:
                self._holder = None
                self._give_up()

    def retry(self) -> bool:
        """Unlock its clock if that was left locked; return whether it no longer is, or another service has it."""
        if self._left is not None:
            with contextlib.suppress(DeviceError):
                restore_note(self._path)
            now = _status(self._path)
            if now is None or not os.path.samestat(now, self._left):
                self._left = None
        return self._left is None

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

    def _claim(self, client: object, sm_mhz: int) -> HeldNote:
        try:
            card = self._open_card(self._uuid)
            return claim(card, self._uuid, sm_mhz, client=str(client), path=self._path, site_mhz=self._site_mhz)
        except OSError as error:
            found = f"the lock cannot be noted in {self._path} ({error.strerror})"
            raise RefusedError("card", f"{found}. Set XDG_STATE_HOME to a folder that can be written") from error
        except NvmlError as error:
            raise RefusedError("card", str(error)) from error
        except DeviceError as error:
            raise RefusedError("busy", str(error)) from error

    def _unlock(self) -> None:
        if self._note is not None:
            self._call(lambda card: unlock(card, self._site_mhz))
            self._forget()

    def _give_up(self) -> None:
        """Unlock its clock, or else leave its note to `retry`, to the next run and to `heshare restore`."""
        try:
            self._unlock()
        except RefusedError:
            if self._note is not None:
                self._note.close()
            self._note, self._left = None, _status(self._path)
            self.sm_mhz = None

    def _forget(self) -> None:
        if self._note is not None:
            self._note.remove()
        self._note, self.sm_mhz = None, None

    def _call(self, do: Callable[[NvmlGpu], None]) -> None:
        try:
            do(self._open_card(self._uuid))
        except NvmlError as error:
            kind = "permission" if isinstance(error, NoPermissionError) else "card"
            raise RefusedError(kind, str(error)) from error


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
