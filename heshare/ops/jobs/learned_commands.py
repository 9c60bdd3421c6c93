"""What was learned of commands, in the state folder: a later run of the same command is planned by it."""

import hashlib
from collections.abc import Iterable

import msgspec

from heshare.ops.jobs.entries import Learned
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.state.held_note import state_folder
from heshare.shared import files
from heshare.shared.errors import DeviceError

NAME = "learned.json"
MOST = 2000
"""Most commands that are kept: those that were measured last."""


def command_key(spec: JobSpec) -> str:
    """Return what tells a command from others: its arguments, folder, environment and number of GPUs, as a hash."""
    told = [spec.command, str(spec.directory), spec.environment, spec.gpus]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:32]


def read_learned() -> dict[str, Learned]:
    """Return what earlier runs of this user have learned, by command; nothing where there is no such file."""
    try:
        return msgspec.json.decode((state_folder() / NAME).read_bytes(), type=dict[str, Learned])
    except (OSError, ValueError, DeviceError):
        return {}


def keep_learned(found: Iterable[Learned]) -> None:
    """Add what a run has learned; of two runs that end at the same moment only one may be kept.

    Raises:
        OSError, DeviceError: it cannot be written.
    """
    known = read_learned()
    for one in found:
        known.pop(one.command, None)
        known[one.command] = one
    newest = dict(list(known.items())[-MOST:])
    files.write_text(state_folder() / NAME, msgspec.json.encode(newest).decode(), private=True)
