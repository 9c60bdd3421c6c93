"""Parameters and declared outputs of notebooks, read from their source; and their profiles, `notebooks/profiles.yaml`.

Papermill accepts a misspelt parameter with a log line, and parses text as YAML. Here a parameter must be defined by the
notebook's tagged cell and have the type that it has there.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from heshare.shared import files
from heshare.shared.errors import InputError, require, unknown
from heshare.shared.yaml_nodes import read_values
from heshare.world.catalogue import check_card, resident
from heshare.world.cluster import Cluster
from heshare.world.task_set import LOADS

TAG = "parameters"
PROFILES = ("smoke", "paper")
GROUPS = ("paper", "beyond")
"""The notebooks of the paper, and those of what the paper does not have; `notebooks/profiles.yaml` lists them."""
RESERVED = ("profile", "out_dir")
_CORRECT = "Correct the parameter."
_LARGEST = 1_000_000
"""Largest number of a parameter; each stands for runs, tasks, or seconds of them."""
_NO_NOTEBOOK = ("something that is no notebook", "a Jupyter notebook, format 4")


@dataclass(frozen=True, slots=True)
class Notebook:
    """A source notebook, read but not run.

    `outputs` are the names that its `setup(...)` call declares; `own` is a user's, outside of the checkout's notebooks.
    """

    path: Path
    defaults: dict[str, object]
    outputs: tuple[str, ...]
    own: bool = False

    @property
    def name(self) -> str:
        """The file's name without `.ipynb`."""
        return self.path.stem


def folder() -> Path:
    return files.notebooks()


def group(name: str) -> list[str]:
    """Return the names of the notebooks of a group, in the order in which they start: the longest first.

    Raises:
        InputError: no such group.
    """
    if name not in (*GROUPS, "all"):
        raise unknown(name, (*GROUPS, "all"), column="group")
    chosen = GROUPS if name == "all" else (name,)
    return [notebook for each in chosen for notebook in _profiles()["groups"][each]]


def find(names: Sequence[str] = ()) -> list[Path]:
    """Return the notebooks of those names (the number is enough), or those of all groups.

    Notebooks outside of groups, such as new ones and copies, are found by name only.

    Raises:
        InputError: no such notebook.
    """
    grouped = {name: folder() / f"{name}.ipynb" for name in group("all")}
    if not names:
        return list(grouped.values())

    known = {path.stem: path for path in sorted(folder().glob("*.ipynb"))}
    chosen: list[Path] = []
    for name in names:
        stem = Path(name).stem if name.endswith(".ipynb") else name
        match = [known[stem]] if stem in known else _numbered(stem, grouped) or _numbered(stem, known)
        if not match:
            raise unknown(name, known, column="notebook")
        chosen += [path for path in match if path not in chosen]
    return chosen


def others() -> list[str]:
    """Return the names of the notebooks of `notebooks/` outside of all groups, such as copies and new ones."""
    grouped = group("all")
    return [path.stem for path in sorted(folder().glob("*.ipynb")) if path.stem not in grouped]


def _numbered(number: str, books: Mapping[str, Path]) -> list[Path]:
    return [path for name, path in books.items() if name.split("_")[0] == number]


def read(path: str | Path) -> Notebook:
    """Return a notebook's parameters and declared outputs, without running it.

    Raises:
        InputError: not a notebook, not exactly one parameters cell, a parameter that is no literal, or no `setup(...)`
            call with a literal list of outputs.
    """
    path = Path(path)
    sources = _read_code(path)

    tagged = [source for source, tags in sources if TAG in tags]
    if len(tagged) != 1:
        raise _error(path, f"{len(tagged)} cells tagged {TAG!r}", "exactly one")
    return Notebook(path, _literals(path, tagged[0]), _declared_outputs(path, [source for source, _ in sources]))


def is_own(name: str) -> bool:
    """Return whether a name is the path of a user's own notebook, outside of the checkout's notebooks."""
    path, top = Path(name), files.checkout()
    inside = top is not None and path.resolve().is_relative_to((top / "notebooks").resolve())
    return path.suffix == ".ipynb" and path.is_file() and not inside


def read_own(path: str | Path) -> Notebook:
    """Return a user's own notebook; it needs neither a parameters cell nor a `setup(...)` call.

    Raises:
        InputError: as `read`, for what it has.
    """
    path = Path(path)
    sources = _read_code(path)

    tagged = [source for source, tags in sources if TAG in tags]
    if len(tagged) > 1:
        raise _error(path, f"{len(tagged)} cells tagged {TAG!r}", "at most one")
    defaults = _literals(path, tagged[0]) if tagged else {}

    # IPython's own commands are no Python.
    plain = [re.sub(r"(?m)^\s*[%!].*$", "", source) for source, _ in sources]
    calling = [source for source in plain if "setup(" in source]
    return Notebook(path, defaults, _declared_outputs(path, calling) if calling else (), own=True)


def _read_code(path: Path) -> list[tuple[str, list[str]]]:
    # Source and tags of each code cell.
    try:
        return _code(path, files.read_input(path))
    except (OSError, UnicodeDecodeError):
        raise _error(path, *_NO_NOTEBOOK) from None


def _code(path: Path, text: str) -> list[tuple[str, list[str]]]:
    try:
        return [
            ("".join(cell["source"]), list(cell.get("metadata", {}).get("tags", [])))
            for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "code"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _error(path, *_NO_NOTEBOOK) from None


def _literals(path: Path, source: str) -> dict[str, object]:
    defaults: dict[str, object] = {}
    for statement in _parsed(path, source).body:
        if not (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        ):
            raise _error(path, ast.unparse(statement), "only `name = literal` in the parameters cell")
        try:
            defaults[statement.targets[0].id] = ast.literal_eval(statement.value)
        except (ValueError, TypeError, RecursionError, MemoryError):
            raise _error(path, ast.unparse(statement), "a literal: derived values belong in the next cell") from None
    return defaults


def _parsed(path: Path, source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # MemoryError is what Python's parser raises for a text that nests too deeply.
        raise _error(path, "a cell that is no Python", "cells of Python") from None


def _declared_outputs(path: Path, sources: Sequence[str]) -> tuple[str, ...]:
    calls = [
        node
        for source in sources
        for node in ast.walk(_parsed(path, source))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "setup"
    ]
    named = {str(keyword.arg): keyword.value for call in calls for keyword in call.keywords}
    if len(calls) != 1 or "outputs" not in named:
        raise _error(path, f"{len(calls)} setup(...) calls, with {', '.join(named)}", "one, with outputs=[...]")
    try:
        return tuple(str(name) for name in ast.literal_eval(named["outputs"]))
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise _error(path, "outputs that are no literals", "a literal list of output names") from None


def check_profile(profile: str) -> None:
    """Raise `InputError` unless there is such a profile."""
    if profile not in PROFILES:
        raise unknown(profile, PROFILES, column="profile")


@cache
def _profiles() -> dict[str, dict[str, Any]]:
    values = read_values(folder() / "profiles.yaml", "the notebooks' profiles", "Correct the file.")
    return {str(name): value or {} for name, value in values.items()}


def profile_parameters(notebook: Notebook, profile: str) -> dict[str, Any]:
    """Return all parameters of a notebook in a profile.

    Raises:
        InputError: the profile has a parameter that the notebook does not have, or of another type.
    """
    of_profile = _profiles().get(profile, {}).get(notebook.name, {})
    return {**notebook.defaults, **check(notebook, of_profile), "profile": profile}


def check(notebook: Notebook, given: Mapping[str, object]) -> dict[str, object]:
    """Check the parameters given for a notebook, and return each with the type of its default.

    Text is parsed as the default's type (`10`, `1e-3`, `true`, `[1, 2]`). A value is in the default's range: a number
    above zero (or of at least zero, if the default is zero), a list with an item, a GPU, cluster, load or workload.

    Raises:
        InputError: an unknown name (the message gives the nearest known one), or a value of another type or range.
    """
    return {name: _check_parameter(notebook, name, value) for name, value in given.items()}


def _check_parameter(notebook: Notebook, name: str, value: object) -> object:
    file = str(notebook.path) if notebook.own else f"notebooks/{notebook.path.name}"
    if name not in notebook.defaults:
        known = [default for default in notebook.defaults if default not in RESERVED]
        raise unknown(name, known, file=file, column="parameter")
    default = notebook.defaults[name]
    try:
        coerced = _coerce(value, default)
        if not notebook.own:
            _check_range(coerced, default)
        return coerced
    except InputError as error:
        raise InputError(error.found, error.expected, error.action, file=file, column=name) from None
    except (ValueError, SyntaxError, TypeError, RecursionError, OverflowError, MemoryError):
        expected = f"a {_type_name(default)}, such as {default!r}"
        raise InputError(repr(value), expected, _CORRECT, file=file, column=name) from None


def _type_name(value: object) -> str:
    names = {bool: "truth value", int: "whole number", float: "number", str: "text", list: "list", tuple: "list"}
    return names.get(type(value), type(value).__name__)


def _coerce(value: object, default: object) -> object:
    if isinstance(value, str) and not isinstance(default, str):
        value = (
            {"true": True, "false": False}.get(value.lower())
            if isinstance(default, bool)
            else ast.literal_eval(value.strip())
        )
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(default, list | tuple):
        if not isinstance(value, list | tuple):
            raise ValueError(value)
        items = [_coerce(item, default[0]) if default else item for item in value]
        return items if isinstance(default, list) else tuple(items)
    if type(value) is not type(default):
        raise ValueError(value)
    return value


def _check_range(value: object, default: object) -> None:
    """Raise `InputError` for a value that a notebook cannot use in place of its default."""
    if isinstance(default, list | tuple):
        items = list(value) if isinstance(value, list | tuple) else []
        require(None, repr(value), bool(items) or not default, "a list with an item", _CORRECT)
        for item in items:
            _check_items(item, list(default))
    else:
        _check_items(value, [default])


def _check_items(value: object, defaults: Sequence[object]) -> None:
    numbers = [each for each in defaults if isinstance(each, int | float) and not isinstance(each, bool)]
    texts = [each for each in defaults if isinstance(each, str)]
    if numbers and isinstance(value, int | float):
        zero = min(numbers) <= 0
        good = value >= 0 if zero else 0 < value <= _LARGEST
        expected = "a number of at least 0" if zero else f"a number above 0, at most {_LARGEST:,}"
        require(None, repr(value), good, expected, _CORRECT)
    if texts and isinstance(value, str):
        kind = next((check for check in _TEXTS if all(_passes(check, each) for each in texts)), None)
        if kind is not None:
            kind(value)


def _check_load(text: str) -> None:
    if text not in LOADS:
        raise unknown(text, LOADS)


def _check_cluster(text: str) -> None:
    for gpu in Cluster.parse(text).kinds:
        check_card(gpu)


def _check_workload(text: str) -> None:
    resident(text if ":" in text else f"{text}:1", precision="fp16")


_TEXTS: tuple[Callable[[str], None], ...] = (_check_load, _check_cluster, _check_workload)
"""Checks of texts: those that the default of a parameter passes hold for its values."""


def _passes(check: Callable[[str], None], text: str) -> bool:
    try:
        check(text)
    except InputError:
        return False
    return True


def _error(path: Path, found: str, expected: str) -> InputError:
    return InputError(found, expected, "Correct the notebook.", file=path)
