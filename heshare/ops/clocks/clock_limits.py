"""The limits of the clock service: a file of root's that says whose clocks may be set, how far, and by whom."""

import grp
import os
import re
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heshare.shared.errors import InputError

ANY_CARD = "*"
UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_MOST_BYTES = 65536
MOST_MHZ = 10_000


@dataclass(frozen=True, slots=True)
class ClockLimit:
    """What is allowed for one card.

    Attributes:
        min_mhz, max_mhz: the clocks that may be locked, MHz.
        group: the id of the group whose members may; None is everyone who can reach the socket.
    """

    min_mhz: int
    max_mhz: int
    group: int | None


class ClockLimits:
    """The limits of the cards of a machine, by UUID; those of `*` are for cards without limits of their own."""

    def __init__(self, limits: dict[str, ClockLimit]) -> None:
        self._limits = limits

    def of_card(self, uuid: str) -> ClockLimit | None:
        """Return the limits of a card; None where nothing is allowed."""
        return self._limits.get(uuid, self._limits.get(ANY_CARD)) if UUID.fullmatch(uuid) else None

    def of_groups(self, groups: set[int], *, privileged: bool) -> dict[str, ClockLimit]:
        """Return the limits that concern a client, by UUID or `*`."""
        return {
            uuid: limit
            for uuid, limit in self._limits.items()
            if privileged or limit.group is None or limit.group in groups
        }


def read_limits(path: Path) -> ClockLimits:
    """Read the limits of a TOML file: a table for each card, or `*`, with `min_mhz`, `max_mhz` and perhaps `group`."""
    text = _read_trusted(path)
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(str(error), "TOML", "See docs/operations.md for an example.", file=str(path)) from error
    if not tables:
        raise InputError("no card", 'a table such as [GPU-...] or ["*"]', "Add one.", file=str(path))
    return ClockLimits({uuid: _limit(uuid, table, path) for uuid, table in tables.items()})


def _limit(uuid: str, table: Any, path: Path) -> ClockLimit:
    def refuse(found: str, expected: str) -> InputError:
        return InputError(found, expected, "Correct the file.", file=str(path), column=uuid)

    if uuid != ANY_CARD and not UUID.fullmatch(uuid):
        raise refuse(f"the table {uuid!r}", 'a UUID such as GPU-5a2c..., or "*" for every card')
    if not isinstance(table, dict) or not {"min_mhz", "max_mhz"} <= table.keys() <= {"min_mhz", "max_mhz", "group"}:
        raise refuse(f"{table!r}", "min_mhz, max_mhz and perhaps group")
    low, high = table["min_mhz"], table["max_mhz"]
    if type(low) is not int or type(high) is not int or not 0 < low <= high <= MOST_MHZ:
        raise refuse(f"min_mhz {low!r}, max_mhz {high!r}", f"0 < min_mhz <= max_mhz <= {MOST_MHZ}, whole numbers")
    return ClockLimit(low, high, None if "group" not in table else _group(table["group"], refuse))


def _group(name: Any, refuse: Any) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, TypeError, ValueError):
        raise refuse(f"group {name!r}", "the name of a group of this machine") from None


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
