"""Cache of finished cells of sweeps: one JSON file for each cell, named by a hash of all that its row depends on.

The hash covers the package version, the fields of the cell's objects and the source files of code outside the package.
"""

import hashlib
import inspect
import json
import logging
import warnings
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from heshare.shared import files
from heshare.shared.disk_cache import NotCachedWarning

Row = dict[str, float | int | str | None]
"""A cell's result."""

_LOG = logging.getLogger(__name__)


class NoSourceError(Exception):
    """An object without a source file, such as one that a notebook defines: its changes cannot be detected."""


@dataclass(frozen=True, slots=True)
class CellCache:
    """A folder of finished cells, created when the first one is written."""

    folder: Path

    def read(self, description: str) -> Row | None:
        """Return the row of a finished cell; None if its file is missing or damaged."""
        path = self._path(description)
        try:
            row: Row = json.loads(files.read_input(path))["row"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            _LOG.warning("%s is damaged; its cell is computed again", path)
            return None
        return row

    def write(self, description: str, row: Row) -> None:
        """Write the row of a finished cell; a `NotCachedWarning` if the disk is full, for example."""
        path = self._path(description)
        try:
            files.write_text(path, json.dumps({"cell": description, "row": row}, ensure_ascii=False) + "\n")
        except OSError as error:
            text = f"finished runs cannot be written to {self.folder} ({error.strerror}), so they are computed again"
            warnings.warn(f"{text}; free space there, or name another folder", NotCachedWarning, stacklevel=3)

    def _path(self, description: str) -> Path:
        key = hashlib.sha256(description.encode()).hexdigest()
        return self.folder / key[:2] / f"{key}.json"


def plain_row(row: Mapping[str, Any]) -> Row:
    """Return a row as it is read from a file: NumPy's numbers become Python's."""
    plain: Row = json.loads(json.dumps(dict(row), default=lambda number: number.item()))
    return plain


def described(value: object, inside: tuple[int, ...] = ()) -> str:
    """Return a text that is the same for equal objects of equal classes, and another one if a source file changes.

    Args:
        value: a value, an object, a class or a function.
        inside: ids of the objects that contain this one.

    Raises:
        NoSourceError: a class or function has no source file, such as one that a notebook's cell defines.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | Path | Enum | np.generic):
        return repr(value)
    if id(value) in inside:
        return "..."
    within = (*inside, id(value))

    def listed(values: Iterable[object]) -> str:
        return ", ".join(described(each, within) for each in values)

    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.ndarray):
        return f"array({value.dtype}, {value.shape}, {hashlib.sha256(value.tobytes()).hexdigest()})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{described(key, within)}: {described(value[key], within)}' for key in value)}}}"
    if isinstance(value, list | tuple):
        return f"({listed(value)})"
    if isinstance(value, Set):
        return f"{{{', '.join(sorted(described(each, within) for each in value))}}}"

    if isinstance(value, partial):
        return f"partial({listed((value.func, value.args, value.keywords))})"
    if isinstance(value, MethodType):
        return f"{described(value.__self__, within)}.{value.__name__}"
    if isinstance(value, type):
        # A class may inherit from classes of other files.
        return f"class({', '.join(_named(each) for each in value.__mro__[:-1])})"
    if callable(value):
        value = inspect.unwrap(value)
    if isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        return f"{_named(value)}({listed([held, value.__defaults__, value.__kwdefaults__])})"
    if isinstance(value, BuiltinFunctionType):
        return _named(value)
    return f"{described(type(value))}({listed([value.__getstate__()])})"


def _named(code: Any) -> str:
    """Return the name of a class or function, with the hash of its file unless it is this package's or Python's."""
    name = f"{code.__module__}.{code.__qualname__}"
    if code.__module__ == "builtins" or code.__module__.partition(".")[0] == "heshare":
        return name
    try:
        file = Path(inspect.getsourcefile(code) or "")
    except (TypeError, OSError):
        file = Path()
    if not file.is_file():
        raise NoSourceError(name)
    return f"{name}@{_hash(file)}"


# Cached for the process: a module's file may change after its import.
_hash = cache(files.sha256)
