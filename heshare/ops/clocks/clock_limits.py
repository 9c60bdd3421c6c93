"""The limits of the clock service: a file of root's that says whose clocks may be set, how far, and by whom."""

import grp
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from heshare.shared.errors import InputError

ANY_CARD = "*"
UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_MOST_BYTES = 65536
MOST_MHZ = 10_000


@dataclass(frozen=True, slots=True)
class ClockLimit:
    """The clocks of one card that may be locked, and the id of the group whose members may (None: everyone).

    `site_mhz` is the clock to which an unlock returns, MHz; None leaves it to the card.
    """

    min_mhz: int
    max_mhz: int
    group: int | None
    site_mhz: int | None = None


class ClockLimits:
    """The limits of the cards of a machine, by UUID; those of `*` are for cards without limits of their own."""

    def __init__(self, limits: dict[str, ClockLimit]) -> None:
        self._limits = limits

    def of_card(self, uuid: str) -> ClockLimit | None:
        return self._limits.get(uuid, self._limits.get(ANY_CARD)) if UUID.fullmatch(uuid) else None

    def of_groups(self, groups: set[int], *, privileged: bool) -> dict[str, ClockLimit]:
        return {
            uuid: limit
            for uuid, limit in self._limits.items()
            if privileged or limit.group is None or limit.group in groups
        }


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    min_mhz: Annotated[int, msgspec.Meta(gt=0)]
    max_mhz: Annotated[int, msgspec.Meta(le=MOST_MHZ)]
    group: str | None = None
    site_mhz: Annotated[int, msgspec.Meta(gt=0)] | None = None


def read_limits(path: Path) -> ClockLimits:
    """Read the limits of a TOML file: a table for each card, or `*`.

    It has `min_mhz` and `max_mhz`, and perhaps `group` and `site_mhz`.
    """
    text = _read_trusted(path)
    try:
        tables = msgspec.toml.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(str(error), "TOML", "See docs/operations.md for an example.", file=str(path)) from error
    if not tables:
        raise InputError("no card", 'a table such as [GPU-...] or ["*"]', "Add one.", file=str(path))
    return ClockLimits({uuid: _limit(uuid, table, path) for uuid, table in tables.items()})


def _limit(uuid: str, content: Any, path: Path) -> ClockLimit:
    def refuse(found: str, expected: str) -> InputError:
        return InputError(found, expected, "Correct the file.", file=str(path), column=uuid)

    if uuid != ANY_CARD and not UUID.fullmatch(uuid):
        raise refuse(f"the table {uuid!r}", 'a UUID such as GPU-5a2c..., or "*" for every card')
    try:
        table = msgspec.convert(content, _Table)
    except msgspec.ValidationError as error:
        raise refuse(str(error), "min_mhz, max_mhz, and perhaps group and site_mhz") from error
    if table.min_mhz > table.max_mhz:
        raise refuse(f"min_mhz {table.min_mhz}, max_mhz {table.max_mhz}", "min_mhz <= max_mhz")
    if table.site_mhz is not None and table.site_mhz > table.max_mhz:
        raise refuse(f"site_mhz {table.site_mhz}, max_mhz {table.max_mhz}", "site_mhz <= max_mhz")
    try:
        group = None if table.group is None else grp.getgrnam(table.group).gr_gid
    except (KeyError, ValueError):
        raise refuse(f"group {table.group!r}", "the name of a group of this machine") from None
    return ClockLimit(table.min_mhz, table.max_mhz, group, table.site_mhz)


def _read_trusted(path: Path) -> str:
    """Return the text of a file that only root, or the service's own user, can have written."""
    action = "Make it so: chown root FILE; chmod 644 FILE; likewise its folder, with 755."
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            file, folder = os.fstat(descriptor), path.absolute().parent.stat()
            text = os.read(descriptor, _MOST_BYTES + 1) if stat.S_ISREG(file.st_mode) else None
        finally:
            os.close(descriptor)
    except OSError as error:
        found = error.strerror or str(error)
        raise InputError(found, "a file with the limits of the cards, no link", action, file=str(path)) from error
    for what, facts in ((path, file), (path.parent, folder)):
        if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & 0o022:
            found = f"{what} of uid {facts.st_uid} with mode {stat.S_IMODE(facts.st_mode):o}"
            raise InputError(found, "root's, and writable by nobody else", action, file=str(path))
    try:
        if text is None or len(text) > _MOST_BYTES:
            raise InputError("what is no such file", f"a file of at most {_MOST_BYTES} bytes", action, file=str(path))
        return text.decode()
    except UnicodeDecodeError as error:
        raise InputError("bytes that are no text", "TOML in UTF-8", "Correct the file.", file=str(path)) from error
