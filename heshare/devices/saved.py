"""Clock settings of GPUs that outlive a process: noted before they are made, so that they can be taken back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from heshare.devices.cleanup import at_end
from heshare.devices.nvml import Card, Nvml
from heshare.errors import DeviceError

ACTION = "Run `heshare restore` if no other HeShare is running on it."


def state_folder() -> Path:
    """Where notes of changed GPUs are kept (`$XDG_STATE_HOME/heshare`)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "heshare"


def notes() -> list[Path]:
    """The notes of GPUs whose clocks were changed and not given back."""
    return sorted(state_folder().glob("gpu-*.json"))


class ClockHold:
    """The SM clock of one GPU, locked by this process alone and given back at its end, whatever the end.

    NVML cannot say which clocks were locked before, so giving back means leaving the clock to the card.

    Args:
        card: the GPU.
        uuid: its UUID.
    """

    def __init__(self, card: Card, uuid: str) -> None:
        self._card, self._uuid = card, uuid
        self._note = state_folder() / f"gpu-{uuid}.json"
        self._held = False
        self._off: Callable[[], None] = lambda: None

    def lock(self, sm_mhz: int) -> None:
        """Hold the clock at `sm_mhz`.

        Raises:
            DeviceError: another process holds it, or one that was killed left it so.
            NvmlError: the card or its driver refuses, for instance without permission; then nothing is changed.
        """
        first = not self._held
        if first:
            self._claim(sm_mhz)
            self._off = at_end(self.release)
        self._held = True
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
        if self._held:
            self._card.unlock_clock()
            self._forget()

    def _claim(self, sm_mhz: int) -> None:
        try:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            with self._note.open("x", encoding="utf-8") as stream:
                json.dump({"uuid": self._uuid, "pid": os.getpid(), "sm_mhz": sm_mhz, "restore": "unlocked"}, stream)
        except FileExistsError:
            raise DeviceError(
                f"GPU {self._uuid}: its clock is held, or was left locked by a run that was killed ({self._note}). "
                + ACTION
            ) from None
        except OSError as error:
            raise DeviceError(
                f"GPU {self._uuid}: cannot note the clock setting in {self._note} ({error}); set XDG_STATE_HOME to a "
                "folder that can be written."
            ) from error

    def _forget(self) -> None:
        self._held = False
        self._off()
        self._note.unlink(missing_ok=True)


def restore() -> list[str]:
    """Leave to the cards the clocks that runs which were killed left locked.

    Returns:
        The UUIDs of the GPUs put back.

    Raises:
        DeviceError: a note is damaged, the process that wrote one still runs, or a card refuses.
    """
    done: list[str] = []
    for note in notes():
        uuid = _uuid(note)
        with Nvml() as nvml:
            nvml.card(uuid).unlock_clock()
        note.unlink()
        done.append(uuid)
    return done


def _uuid(note: Path) -> str:
    try:
        said = json.loads(note.read_text(encoding="utf-8"))
        uuid, pid = str(said["uuid"]), int(said["pid"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeviceError(
            f"{note}: not a note of a changed GPU ({error!r}). Reset its clocks, then delete it."
        ) from error
    if Path(f"/proc/{pid}").exists():
        raise DeviceError(f"GPU {uuid}: process {pid} still holds its clock. End it first, or delete {note}.")
    return uuid
