"""Locks of SM clocks, each noted in a file before it is made, so that a lock of a killed process can be undone."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heshare.ops.clocks.clock_route import service_clock
from heshare.ops.clocks.service_clock import ServiceClock
from heshare.ops.nvml.binding import NoReplyError, NvmlError, NvmlGpu
from heshare.ops.nvml.guarded_gpu import GuardedGpu
from heshare.ops.state.held_note import FoundNote, HeldNote, Life, found_note
from heshare.ops.state.state_folder import state_folder
from heshare.shared.errors import DeviceError
from heshare.shared.processes import MARK
from heshare.shared.signals import at_end

_READ_BACK_S, _TAKE_OVER_S = 1.0, 2.0
_RELEASE_PAUSES_S = (0.1, 0.3, 1.0)


class ClockLeftLockedError(DeviceError):
    """A clock could not be given back; its note stays."""


def notes(*, of: str | None = None) -> list[Path]:
    """Return the notes of GPUs whose clocks are locked.

    Args:
        of: only those of the run with this mark (`processes.MARK`).
    """
    found = sorted(state_folder().glob("gpu-*.json"))
    return found if of is None else [path for path in found if _run(path) == of]


class ClockLock:
    """The SM clock of one GPU, locked by this process alone and unlocked at its end, whatever the end.

    NVML does not report which clocks were locked before, so the end leaves the clock to the card.

    Args:
        card: the GPU.
        uuid: its UUID.
    """

    def __init__(self, card: NvmlGpu, uuid: str) -> None:
        self._card, self._uuid = card, uuid
        self._note: HeldNote | None = None
        self._off: Callable[[], None] = lambda: None

    def lock(self, sm_mhz: int) -> None:
        """Lock the SM clock at `sm_mhz`.

        Raises:
            DeviceError: another process has locked it, or left it locked and it cannot be unlocked.
            NvmlError: the card or its driver refuses, for instance without permission; then nothing is changed.
        """
        first = self._note is None
        if first:
            self._note = self._claim(sm_mhz)
            self._off = at_end(self.release)
        try:
            self._card.lock_clock(sm_mhz)
        except BaseException:
            if first:
                self._forget()
            raise

    def release(self) -> None:
        """Leave the clock to the card. May be repeated.

        Raises:
            NvmlError: the card refuses; the note stays for `heshare restore`.
        """
        if self._note is not None:
            self._card.unlock_clock()
            self._forget()

    def close(self) -> None:
        """Leave the clock to the card for good, with some tries. May be repeated.

        Raises:
            ClockLeftLockedError: the card refuses; the note stays, and says that nobody holds the clock any more.
        """
        for pause_s in _RELEASE_PAUSES_S:
            try:
                self.release()
            except NoReplyError:
                break  # each try may take long
            except NvmlError:
                time.sleep(pause_s)
            else:
                return
        try:
            self.release()
        except NvmlError as error:
            if self._note is not None:
                self._note.close()
                self._note = None
            self._off()
            raise ClockLeftLockedError(
                f"GPU {self._uuid}: its clock could not be given back and may stay locked ({error}) Run "
                "`heshare restore` once the GPU replies again."
            ) from error

    def _claim(self, sm_mhz: int) -> HeldNote:
        path = state_folder() / f"gpu-{self._uuid}.json"
        facts = {"uuid": self._uuid, "sm_mhz": sm_mhz, "run": os.environ.get(MARK, ""), "before": settings(self._card)}
        try:
            note = HeldNote(path, facts)
            try:
                _publish(note)
            except BaseException:
                note.remove()
                raise
        except OSError as error:
            raise DeviceError(
                f"GPU {self._uuid}: cannot note the clock setting in {path} ({error}); set XDG_STATE_HOME to a "
                "folder that can be written."
            ) from error
        return note

    def _forget(self) -> None:
        self._off()
        if self._note is not None:
            self._note.remove()
            self._note = None


def open_clock(card: NvmlGpu, uuid: str) -> ClockLock | ServiceClock:
    """Return the clock of a card as it is set on this machine (`service_clock`); nothing is changed yet."""
    return service_clock(uuid) or ClockLock(card, uuid)


def _publish(note: HeldNote) -> None:
    """Publish a note; undo what an ended process left there, and wait for a moment for one that is doing so."""
    until_s = time.monotonic() + _TAKE_OVER_S
    while True:
        try:
            return note.publish()
        except FileExistsError:
            try:
                restore_note(note.path)
            except DeviceError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.05)


def settings(card: NvmlGpu) -> dict[str, Any]:
    """Return the settings of a card at this moment; None for those that it does not report."""
    found: dict[str, Any] = {}
    for name in ("sm_mhz", "power_limit_w", "persistent", "compute_mode"):
        try:
            found[name] = getattr(card, name)()
        except NvmlError:
            found[name] = None
    return found


@dataclass(frozen=True, slots=True)
class LockedClock:
    """A clock that a note says is locked.

    Attributes:
        uuid: of the GPU.
        sm_mhz: the locked clock, MHz.
        life: whether the process that locked it still runs.
        text: the note in words, with what to do.
    """

    uuid: str
    sm_mhz: int
    life: Life
    text: str


def locked_clocks() -> list[LockedClock]:
    """Return the clocks that the notes say are locked; a damaged note has no UUID."""
    found = []
    for path in notes():
        with contextlib.suppress(FileNotFoundError):
            try:
                with found_note(path) as note:
                    found.append(_described(note))
            except DeviceError as error:
                found.append(LockedClock("", 0, Life.UNKNOWN, str(error)))
    return found


def _described(note: FoundNote) -> LockedClock:
    uuid, sm_mhz = str(note.facts.get("uuid")), int(note.facts.get("sm_mhz") or 0)
    if note.life is Life.RUNS:
        text = f"GPU {uuid}: its clock is locked at {sm_mhz} MHz by process {note.pid} ({note.place.host}), which runs."
    elif note.life.over:
        text = f"GPU {uuid}: a run that ended left its clock locked at {sm_mhz} MHz. Run `heshare restore`."
    else:
        text = f"GPU {uuid}, locked at {sm_mhz} MHz: {note.elsewhere()}"
    return LockedClock(uuid, sm_mhz, note.life, text)


@dataclass(frozen=True, slots=True)
class RestoredClocks:
    """The result of unlocking the clocks that processes left locked.

    Attributes:
        unlocked: the UUIDs of the GPUs that were unlocked.
        refused: why others could not be.
        left: what was left alone, and why: notes of processes that run, or of other hosts.
    """

    unlocked: tuple[str, ...]
    refused: tuple[str, ...]
    left: tuple[str, ...]


def restore(*, of: str | None = None) -> RestoredClocks:
    """Unlock the clocks that ended processes left locked, and check that they are unlocked.

    Args:
        of: only those of one run, as for `notes`.
    """
    unlocked: list[str] = []
    refused: list[str] = []
    left: list[str] = []
    for path in notes(of=of):
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


def restore_note(path: Path) -> None:
    """Unlock the clock of one note whose process has ended, and delete the note.

    Raises:
        DeviceError: its process runs, cannot be judged from here, or the card refuses; the note stays.
    """
    with contextlib.suppress(FileNotFoundError), found_note(path) as note:
        if not note.life.over:
            raise DeviceError(_described(note).text)
        _unlock(note)


def _unlock(note: FoundNote) -> str:
    uuid = str(note.facts.get("uuid"))
    with GuardedGpu(uuid) as card:
        card.unlock_clock()
        # After a restart of the host the other settings may have changed with the driver.
        if note.life is not Life.REBOOTED:
            _read_back(card, uuid, note.facts)
    note.path.unlink()
    return uuid


def _read_back(card: NvmlGpu, uuid: str, note: Mapping[str, Any]) -> None:
    """Check that the card is as it was before the note was written; its clock may need a moment."""
    before = note.get("before") or {}
    until = time.monotonic() + _READ_BACK_S
    while True:
        now = settings(card)
        locked = now["sm_mhz"] == note.get("sm_mhz") != before.get("sm_mhz")
        if not locked or time.monotonic() >= until:
            break
        time.sleep(0.05)
    wrong = [name for name, value in now.items() if name != "sm_mhz" and before.get(name, value) != value]
    wrong += ["sm_mhz"] if locked else []
    if wrong:
        found = ", ".join(f"{name} {now[name]} (before: {before.get(name)})" for name in wrong)
        raise DeviceError(f"GPU {uuid}: its clock was unlocked, but it reads {found}. See `nvidia-smi -q -d CLOCK`.")


def _run(path: Path) -> str | None:
    """Return the mark of the run that wrote a note; None if the note is damaged or gone."""
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
