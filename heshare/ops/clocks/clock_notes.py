"""Notes of locked SM clocks: on disk before a clock is locked, so that what a killed service left can be undone."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heshare.ops.nvml.binding import NvmlError, NvmlGpu
from heshare.ops.nvml.guarded_gpu import GuardedGpu
from heshare.ops.state.held_note import FoundNote, HeldNote, Life, found_note, state_folder
from heshare.shared.errors import DeviceError

_READ_BACK_S, _TAKE_OVER_S = 1.0, 2.0


def notes(folder: Path | None = None) -> list[Path]:
    """Return the notes of GPUs whose clocks may be locked, by default those of this user's own runs."""
    return sorted((folder or state_folder()).glob("gpu-*.json"))


def note_of(uuid: str, folder: Path) -> Path:
    return folder / f"gpu-{uuid}.json"


def claim(card: NvmlGpu, uuid: str, sm_mhz: int, *, client: str, path: Path, site_mhz: int | None = None) -> HeldNote:
    """Note that a clock is going to be locked, with the card's settings before; undo what an ended service left."""
    facts = {"uuid": uuid, "sm_mhz": sm_mhz, "client": client, "before": _settings(card), "site_mhz": site_mhz}
    note = HeldNote(path, facts)
    try:
        until_s = time.monotonic() + _TAKE_OVER_S
        while True:
            try:
                note.publish()
                return note
            except FileExistsError:
                try:
                    restore_note(note.path)
                except DeviceError:
                    # Another process may be undoing the same at this moment.
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(0.05)
    except BaseException:
        note.remove()
        raise


def _settings(card: NvmlGpu) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("sm_mhz", "power_limit_w", "persistent", "compute_mode"):
        try:
            found[name] = getattr(card, name)()
        except NvmlError:
            found[name] = None
    return found


@dataclass(frozen=True, slots=True)
class LockedClock:
    """A clock that a note says is locked; `text` is the note in words, with what to do."""

    uuid: str
    sm_mhz: int
    life: Life
    text: str


def locked_clocks() -> list[LockedClock]:
    """Return the clocks that the notes of this user's runs say are locked; a damaged note has no UUID."""
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
        client = note.facts.get("client")
        text = f"GPU {uuid}: its clock is locked at {sm_mhz} MHz for {client} ({note.place.host}), which runs."
    elif note.life.over:
        text = f"GPU {uuid}: a run that ended left its clock locked at {sm_mhz} MHz. Run `heshare restore`."
    else:
        text = f"GPU {uuid}, locked at {sm_mhz} MHz: {note.elsewhere()}"
    return LockedClock(uuid, sm_mhz, note.life, text)


@dataclass(frozen=True, slots=True)
class RestoredClocks:
    """The UUIDs that were unlocked, why others could not be, and what was left alone: in use, or of other hosts."""

    unlocked: tuple[str, ...]
    refused: tuple[str, ...]
    left: tuple[str, ...]


def restore() -> RestoredClocks:
    """Unlock the clocks that this user's runs left locked, and check that they are unlocked."""
    unlocked: list[str] = []
    refused: list[str] = []
    left: list[str] = []
    for path in notes():
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


def is_left(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, DeviceError), found_note(path) as note:
        return note.life.over
    return False


def restore_note(path: Path) -> None:
    """Unlock the clock of one note that no service holds any more, and delete the note."""
    with contextlib.suppress(FileNotFoundError), found_note(path) as note:
        if not note.life.over:
            raise DeviceError(_described(note).text)
        _unlock(note)


def unlock(card: NvmlGpu, site_mhz: int | None) -> None:
    """Leave a clock to the card, or return it to the site's."""
    if site_mhz is None:
        card.unlock_clock()
    else:
        card.lock_clock(site_mhz)


def _unlock(note: FoundNote) -> str:
    uuid = str(note.facts.get("uuid"))
    with GuardedGpu(uuid) as card:
        unlock(card, note.facts.get("site_mhz"))
        # After a restart of the host the other settings may have changed with the driver.
        if note.life is not Life.REBOOTED:
            _read_back(card, uuid, note.facts)
    note.path.unlink()
    return uuid


def _read_back(card: NvmlGpu, uuid: str, note: Mapping[str, Any]) -> None:
    before = note.get("before") or {}
    until = time.monotonic() + _READ_BACK_S
    while True:
        now = _settings(card)
        locked = now["sm_mhz"] == note.get("sm_mhz") != before.get("sm_mhz")
        if not locked or time.monotonic() >= until:
            break
        time.sleep(0.05)
    wrong = [name for name, value in now.items() if name != "sm_mhz" and before.get(name, value) != value]
    wrong += ["sm_mhz"] if locked else []
    if wrong:
        found = ", ".join(f"{name} {now[name]} (before: {before.get(name)})" for name in wrong)
        raise DeviceError(f"GPU {uuid}: its clock was unlocked, but it reads {found}. See `nvidia-smi -q -d CLOCK`.")
