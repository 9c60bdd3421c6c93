"""Clock settings of GPUs that outlive a process: noted before they are made, so that they can be taken back."""

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
    """Where notes of changed GPUs are kept (`$XDG_STATE_HOME/heshare`)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "heshare"


def notes() -> list[Path]:
    """The notes of GPUs whose clocks were changed and not given back."""
    return sorted(state_folder().glob("gpu-*.json"))


class ClockLock:
    """The SM clock of one GPU, locked by this process alone and given back at its end, whatever the end.

    NVML cannot say which clocks were locked before, so giving back means leaving the clock to the card.

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
        pid = os.getpid()
        said = {"uuid": self._uuid, "pid": pid, "started": started_at(pid), "sm_mhz": sm_mhz, "restore": "unlocked"}
        part = self._note.with_suffix(f".{pid}.part")
        try:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            with part.open("w", encoding="utf-8") as stream:
                json.dump({**said, "before": settings(self._card)}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            # A link is made whole or not at all, and never over another one's note.
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
    """What a card is set to at this moment, as far as it tells."""
    found: dict[str, Any] = {}
    for name in ("sm_mhz", "power_limit_w", "persistent", "compute_mode"):
        try:
            found[name] = getattr(card, name)()
        except NvmlError:
            found[name] = None
    return found


def restore(*, of_pid: int | None = None) -> list[str]:
    """Leave to the cards the clocks that runs which were killed left locked, and read back that it is so.

    Args:
        of_pid: only those that this process locked.

    Returns:
        The UUIDs of the GPUs put back.

    Raises:
        DeviceError: a note is damaged, the process that wrote one still runs, a card refuses, or it still runs at
            exactly the locked clock; the note stays.
    """
    done: list[str] = []
    for note in notes():
        said = _read(note)
        if of_pid is not None and said["pid"] != of_pid:
            continue
        uuid = str(said["uuid"])
        with Nvml() as nvml:
            card = nvml.card(uuid)
            card.unlock_clock()
            _read_back(card, uuid, said)
        note.unlink()
        done.append(uuid)
    return done


def _read_back(card: NvmlGpu, uuid: str, said: dict[str, Any]) -> None:
    """Check that the card is as it was before the note was written."""
    before = said.get("before") or {}
    until = time.monotonic() + _READ_BACK_S
    now = settings(card)
    while now["sm_mhz"] == said.get("sm_mhz") != before.get("sm_mhz") and time.monotonic() < until:
        time.sleep(0.05)
        now = settings(card)
    wrong = [
        name for name in ("power_limit_w", "persistent", "compute_mode") if before.get(name, now[name]) != now[name]
    ]
    if now["sm_mhz"] == said.get("sm_mhz") != before.get("sm_mhz"):
        wrong.append("sm_mhz")
    if wrong:
        found = ", ".join(f"{name} {now[name]} (before: {before.get(name)})" for name in wrong)
        raise DeviceError(f"GPU {uuid}: its clock was given back, but it reads {found}. See `nvidia-smi -q -d CLOCK`.")


def _read(note: Path) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
        uuid, pid, started = str(said["uuid"]), int(said["pid"]), int(said.get("started", 0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeviceError(
            f"{note}: not a note of a changed GPU ({error!r}). Reset its clocks, then delete it."
        ) from error
    if alive(pid, started or started_at(pid)):
        raise DeviceError(f"GPU {uuid}: process {pid} still holds its clock. End it first, or delete {note}.")
    return said
