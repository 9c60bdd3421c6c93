"""The user's folder of notes of runs and of changed GPUs."""

import os
from pathlib import Path

from heshare.shared.errors import DeviceError


def state_folder() -> Path:
    """Return the folder of the notes (`$XDG_STATE_HOME/heshare`, or `~/.local/state/heshare`).

    Raises:
        DeviceError: neither is known.
    """
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "heshare"
    try:
        return Path.home() / ".local" / "state" / "heshare"
    except (RuntimeError, KeyError):
        raise DeviceError(
            f"User {os.getuid()} has no home folder, so there is no place for notes of changed GPUs. Set "
            "XDG_STATE_HOME to a folder that it can write, such as /var/lib/heshare, which stays when the machine is "
            "started again."
        ) from None
