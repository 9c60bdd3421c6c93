"""Every policy by name: the names of the command line, the titles of the figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from heshare.errors import InputError
from heshare.policies.policy import Policy, Traits

Factory = Callable[[], Policy]
_F = TypeVar("_F", bound=Factory)


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered policy.

    Attributes:
        name: on the command line, such as `heshare:trade-off`.
        title: in figures, such as `Trade-off`.
        factory: makes one with its default settings.
    """

    name: str
    title: str
    factory: Factory


_ENTRIES: dict[str, Entry] = {}


def register(name: str, *, title: str) -> Callable[[_F], _F]:
    """Decorator: enter a class or function that makes a policy.

    Raises:
        InputError: the name is taken.
    """

    def enter(factory: _F) -> _F:
        if name in _ENTRIES:
            raise InputError(
                column="policy", found=f"{name!r} twice", expected="one policy a name", action="Choose another name."
            )
        _ENTRIES[name] = Entry(name, title, factory)
        return factory

    return enter


def policies() -> dict[str, Entry]:
    """Every registered policy by name; the modules of this package are imported first, sorted by name."""
    _import_all()
    return dict(sorted(_ENTRIES.items(), key=lambda item: (_rank(item[0]), item[0])))


def make(name: str) -> Policy:
    """A policy with its default settings.

    Raises:
        InputError: no such policy; the message lists the known ones.
    """
    known = policies()
    if name not in known:
        raise InputError(
            column="policy",
            found=repr(name),
            expected="one of " + ", ".join(known),
            action="Choose one, or register yours with heshare.policies.registry.register.",
        )
    return known[name].factory()


def title(name: str) -> str:
    """A policy's title in figures; the name itself for one that is not registered."""
    entry = policies().get(name)
    return name if entry is None else entry.title


def declared() -> dict[str, Traits]:
    """What every registered policy declares of itself (our Table I), by title."""
    return {entry.title: entry.factory().traits for entry in policies().values()}


@cache
def _import_all() -> None:
    package = import_module("heshare.policies")
    for module in sorted(found.name for found in iter_modules(package.__path__)):
        import_module(f"heshare.policies.{module}")


# The paper's order in Fig. 6; policies that it does not name follow by name.
_ORDER = ("random", "sched-only", "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt")


def _rank(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
