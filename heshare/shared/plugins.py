"""Plug-ins: policies, device models, workloads and commands of installed distributions, imported on demand.

Distributions, this package included, declare them as entry points in pyproject.toml:

| group | name of an entry point | what its module does when it is imported |
|---|---|---|
| `heshare.policies` | a policy's name up to the first `:` or `/` | `heshare.policies.registry.register` |
| `heshare.device_models` | a way of sharing, a phase of workloads, or a GPU | `register_...` of `heshare.devices.device_model`, `heshare.world.catalogue.register_gpus` |
| `heshare.workloads` | a phase of workloads, or a model | `register_phase`, `register_models` of `heshare.world.catalogue` |
| `heshare.commands` | a command | nothing: the entry point is a Typer application or a function |
"""  # noqa: E501 (a table)

import sys
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from heshare.shared import files
from heshare.shared.errors import InputError

POLICIES, DEVICE_MODELS, WORKLOADS, COMMANDS = (
    f"heshare.{name}" for name in ("policies", "device_models", "workloads", "commands")
)
_OWN = "heshare"


def names(group: str) -> list[str]:
    """Return the names of a group's entry points, this package's first."""
    return list(_points(group))


def load(group: str, name: str) -> object:
    """Import a plug-in and return the object of its entry point, or None if there is no plug-in of that name."""
    point = _points(group).get(name)
    if point is None:
        return None
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the plug-in {name} ({point.value}), which cannot be imported: {_reason(error)}",
            f"a module for each entry point of {group}",
            "Install it again, or remove it.",
            column=group,
        ) from error


class PluginWarning(UserWarning):
    """A plug-in cannot be imported; the others are loaded."""


def load_all(group: str) -> list[str]:
    """Import all plug-ins of a group and return their names; warn with `PluginWarning` of each that fails."""
    return _load_each(names(group), group)


def _load_each(wanted: Iterable[str], group: str) -> list[str]:
    loaded = []
    for name in wanted:
        try:
            load(group, name)
        except InputError as error:
            warnings.warn(str(error), PluginWarning, stacklevel=2)
        else:
            loaded.append(name)
    return loaded


def load_others(group: str) -> list[str]:
    """Import the plug-ins of other distributions, as `load_all`."""
    others = [name for name, point in _points(group).items() if not point.module.startswith(f"{_OWN}.")]
    return _load_each(others, group)


def function(name: str, column: str) -> Callable[..., Any]:
    """Return the function or class of a name `module:function`; modules are also looked up in the current folder.

    Raises:
        InputError: there is none, or its module has a syntax error or ends the process.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found: Callable[..., Any] = getattr(import_module(module), attribute)
    except (SyntaxError, SystemExit) as error:
        expected = "a module that can be imported"
        raise InputError(f"{name!r} ({_reason(error)})", expected, "Correct the module.", column=column) from None
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(f"{name!r} ({error})", "module:function", "Name one that exists.", column=column) from None
    return found


def _reason(error: BaseException) -> str:
    """Return in words why a module cannot be imported."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}" if error.filename else error.msg
    if isinstance(error, SystemExit):
        return f'it ends the process with {error.code!r}; a script\'s own run belongs below if __name__ == "__main__"'
    return str(error) or type(error).__name__


def modules(group: str) -> tuple[str, ...]:
    return tuple(point.module for point in _points(group).values())


@cache
def _points(group: str) -> dict[str, metadata.EntryPoint]:
    # This package's entry points are first, and no other distribution can override them.
    found = _installed_points().select(group=group)
    others = [point for point in found if point.dist is None or point.dist.name != _OWN]
    own = _of_clone(group) if files.in_clone() else [point for point in found if point not in others]
    points: dict[str, metadata.EntryPoint] = {}
    for point in (*own, *sorted(others, key=lambda point: point.name)):
        points.setdefault(point.name, point)
    return points


# Every distribution's file is read, and the project's parsed, once for all groups.
_installed_points = cache(metadata.entry_points)


@cache
def _clone_points() -> dict[str, dict[str, str]]:
    # From pyproject.toml: the metadata of an editable install may be older, and a copy of the clone has none.
    project = tomllib.loads((files.PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    found: dict[str, dict[str, str]] = project["entry-points"]
    return found


def _of_clone(group: str) -> list[metadata.EntryPoint]:
    return [metadata.EntryPoint(name, value, group) for name, value in _clone_points().get(group, {}).items()]


@contextmanager
def without_library(name: str) -> Iterator[None]:
    """Hide a library from the imports in this block, for other libraries that use it only if it is installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
