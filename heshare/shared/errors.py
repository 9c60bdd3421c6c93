"""Exceptions of the package; their messages state what was found, what was expected and what to do."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

CLOSE = 0.6
"""Least similarity of a suggestion, of difflib: 1 for equal texts, 0 for texts without a common letter."""

LISTED = 25
"""Most known names that a message lists next to a suggestion; without a suggestion it lists all."""

LONGEST_FOUND = 300
"""Most characters of the found input that a message shows."""

SYSTEM_ERRORS = (OSError, RecursionError, OverflowError, MemoryError)
"""Python's exceptions for bad input or exhausted resources; `from_system` converts them."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


class HeShareError(Exception):
    """Base class of the package's exceptions; the command line exits with `exit_code`."""

    exit_code = 2


class InputError(HeShareError, ValueError):
    """Bad input, with its place, what was found, what was expected and what to do.

    Args:
        found: the input, as short text.
        expected: what is accepted.
        action: what the user should do.
        file: the file that holds the input, if it came from one.
        row: the row in that file, as an editor counts lines (the header is row 1).
        column: the column or field name; without a file and a row, that of an argument.
    """

    def __init__(
        self,
        found: str,
        expected: str,
        action: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        found = found if len(found) <= LONGEST_FOUND else f"{found[: LONGEST_FOUND - 3]}..."
        self.file = None if file is None else str(file)
        self.row = row
        self.column = column
        self.found = found
        self.expected = expected
        self.action = action
        named = "argument " if file is None and row is None else "column "
        place = (("", self.file), ("row ", row), (named, column))
        where = ", ".join([f"{kind}{value}" for kind, value in place if value is not None])
        super().__init__(f"{where}{': ' * bool(where)}found {found}; expected {expected}. {action}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Plain exceptions are pickled by their positional arguments; these have keywords.
        names = ("found", "expected", "action", "file", "row", "column")
        return partial(type(self), **{name: getattr(self, name) for name in names}), ()


def from_system(error: BaseException) -> HeShareError:
    """Return a `HeShareError` for one of `SYSTEM_ERRORS` that no caller has described more precisely."""
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, str | Path) else None
        reason = error.strerror or str(error) or type(error).__name__
        if error.errno in _FULL:
            place = where or "standard output, or a temporary file (see TMPDIR)"
            return HeShareError(f"{place}: {reason}. Free space there, or write to another disk.")
        return HeShareError(f"{where}: {reason}" if where else reason)
    kinds = {
        RecursionError: ("an input that is nested without end", "lists and expressions of a few levels"),
        OverflowError: (f"a number that is too large ({error})", "numbers of a size that can be computed with"),
        MemoryError: ("an input for which this machine has too little memory", "a smaller number or file"),
    }
    found, expected = next(texts for kind, texts in kinds.items() if isinstance(error, kind))
    return InputError(found, expected, "Correct the input.")


def describe(error: HeShareError) -> dict[str, object]:
    """Return an error as JSON values: its class, its message, and the parts of the message that are set."""
    parts = {name: getattr(error, name, None) for name in ("found", "expected", "action", "file", "row", "column")}
    known = {name: value for name, value in parts.items() if value is not None}
    return {"kind": type(error).__name__, "message": str(error), **known}


def require(
    column: str | None,
    value: object,
    good: bool,
    expected: str,
    action: str = "Correct the parameter.",
    *,
    file: str | Path | None = None,
    row: int | None = None,
) -> None:
    """Raise `InputError` unless `good`; `column` names the parameter, and `value` is shown as found."""
    if not good:
        raise InputError(str(value), expected, action, file=file, row=row, column=column)


class NotProfiledError(InputError):
    """A GPU or workload that the profiles of a predictor do not cover."""


def suggestion(name: object, known: Iterable[str], otherwise: str = "Choose one of those.") -> str:
    """Return a sentence that names the nearest known spelling, upper or lower case, or `otherwise` if none is near."""
    by_letters = {each.lower(): each for each in known}
    close = get_close_matches(str(name).lower(), by_letters, n=1, cutoff=CLOSE)
    return f"Did you mean {by_letters[close[0]]!r}?" if close else otherwise


def unknown(
    name: object,
    known: Iterable[str],
    otherwise: str = "Choose one of those.",
    *,
    file: str | Path | None = None,
    column: str | None = None,
) -> InputError:
    """Return the error of an unknown name: it names the nearest, and lists the known ones unless they are too many."""
    known = list(known)
    action = suggestion(name, known, otherwise)
    expected = "one of " + (", ".join(known) or "none: there is none")
    if action != otherwise and len(known) > LISTED:
        expected = f"one of the {len(known)} known names"
    return InputError(repr(name), expected, action, file=file, column=column)


class PlanError(InputError):
    """A plan that the GPUs cannot run: a task twice or never, too little memory, too many clients, no such clock."""


class DeviceError(HeShareError):
    """A device refused or failed; the message names the device, the request and what to do."""


class UnansweredError(DeviceError):
    """A query to a replay device for a point that was not recorded; it never extrapolates."""


class PolicyError(HeShareError):
    """An impossible action of a policy, such as starting a task twice."""
