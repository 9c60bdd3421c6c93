"""The errors that HeShare raises: one small tree, messages that say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class HeShareError(Exception):
    """Base of every error that the package raises on purpose; the CLI exits with `exit_code`."""

    exit_code = 2


class InputError(HeShareError, ValueError):
    """Bad input, with the place where it stands, what was found, what was expected and what to do.

    Args:
        found: what the input says, as short text.
        expected: what would have been accepted.
        action: what the user should do about it.
        file: the file that holds the input, if it came from one.
        row: the row in that file, counted as an editor counts lines (the header is row 1).
        column: the column or field name.
    """

    def __init__(
        self,
        *,
        found: str,
        expected: str,
        action: str,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        self.file = None if file is None else str(file)
        self.row = row
        self.column = column
        self.found = found
        self.expected = expected
        self.action = action
        super().__init__(self._message())

    def __reduce__(self) -> tuple[Any, ...]:
        # Its arguments have names, which plain exceptions lose on their way from another process.
        return _again, (type(self), {name: getattr(self, name) for name in _PARTS})

    def _message(self) -> str:
        place = [
            part
            for part in (
                self.file,
                None if self.row is None else f"row {self.row}",
                None if self.column is None else f"column {self.column}",
            )
            if part is not None
        ]
        where = f"{', '.join(place)}: " if place else ""
        return f"{where}found {self.found}; expected {self.expected}. {self.action}"


_PARTS = ("found", "expected", "action", "file", "row", "column")


def _again(kind: type[InputError], parts: dict[str, Any]) -> InputError:
    return kind(**parts)


class PlanError(InputError):
    """A plan that no GPU could run: a task twice or never, too little memory, too many clients, no such clock."""


class DeviceError(HeShareError):
    """A device refused or failed; the message names the device, the request and what to do."""


class UnansweredError(DeviceError):
    """A replay device was asked for a point that was never recorded; it never extrapolates."""


class PolicyError(HeShareError):
    """A policy asked for something impossible, such as starting a task twice."""
