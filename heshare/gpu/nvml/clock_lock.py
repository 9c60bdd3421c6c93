"""Locks of SM clocks, each noted in a file before it is made, so that a lock of a killed process can be undone."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heshare.errors import DeviceError
from heshare.gpu.nvml.binding import Nvml, NvmlError, NvmlGpu
from heshare.processes import alive, started_at
from heshare.signals import at_end

ACTION = "Run `heshare restore` if no other HeShare is running on it."
_READ_BACK_S = 1.0


def state_folder() -> Path:
    """Return the folder of the notes of changed GPUs (`$XDG_STATE_HOME/heshare`)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "heshare"


def notes() -> list[Path]:
    """Return the notes of GPUs whose clocks are locked."""
    return sorted(state_folder().glob("gpu-*.json"))


class ClockLock:
    """The SM clock of one GPU, locked by this process alone and unlocked at its end, whatever the end.

    NVML does not report which clocks were locked before, so the end leaves the clock to the card.

    Args:
        card: the GPU.
        uuid: its UUID.
    """

    def __init__(self, card: NvmlGpu, uuid: str) -> None:
        self._card, self._uuid = card, uuid
        self._note = state_folder() / f"gpu-{uuid}.json"
        self._held = False
        self._off: Callable[[], None] = lambda: None

    def lock(self, sm_mhz: int) -> None:
        """Lock the SM clock at `sm_mhz`.

        Raises:
            DeviceError: another process has locked it, or one that was killed left it locked.
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
        pid = os.getpid()
        note = {"uuid": self._uuid, "pid": pid, "started": started_at(pid), "sm_mhz": sm_mhz, "restore": "unlocked"}
        part = self._note.with_suffix(f".{pid}.part")
        try:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            with part.open("w", encoding="utf-8") as stream:
                json.dump({**note, "before": settings(self._card)}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            # A link is made whole or not at all, and never replaces another note.
            os.link(part, self._note)
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
        finally:
            part.unlink(missing_ok=True)

    def _forget(self) -> None:
        self._held = False
        self._off()
        self._note.unlink(missing_ok=True)


def settings(card: NvmlGpu) -> dict[str, Any]:
    """Return the settings of a card at this moment; None for those that it does not report."""
    found: dict[str, Any] = {}
    for name in ("sm_mhz", "power_limit_w", "persistent", "compute_mode"):
        try:
            found[name] = getattr(card, name)()
        except NvmlError:
            found[name] = None
    return found


def restore(*, of_pid: int | None = None) -> list[str]:
    """Unlock the clocks that killed runs left locked, and check that they are unlocked.

    Args:
        of_pid: only those that this process locked.

    Returns:
        The UUIDs of the GPUs that were unlocked.

    Raises:
        DeviceError: a note is damaged, the process that wrote one still runs, a card refuses, or it still runs at
            exactly the locked clock; the note stays.
    """
    done: list[str] = []
    for path in notes():
        note = _read(path)
        if of_pid is not None and note["pid"] != of_pid:
            continue
        uuid = str(note["uuid"])
        with Nvml() as nvml:
            card = nvml.card(uuid)
            card.unlock_clock()
            _read_back(card, uuid, note)
        path.unlink()
        done.append(uuid)
    return done


def _read_back(card: NvmlGpu, uuid: str, note: dict[str, Any]) -> None:
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


def _read(path: Path) -> dict[str, Any]:
    try:
        note: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        uuid, pid, started = str(note["uuid"]), int(note["pid"]), int(note.get("started", 0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeviceError(
            f"{path}: not a note of a changed GPU ({error!r}). Reset its clocks, then delete it."
        ) from error
    if alive(pid, started or started_at(pid)):
        raise DeviceError(f"GPU {uuid}: process {pid} still holds its clock. End it first, or delete {path}.")
    return note
