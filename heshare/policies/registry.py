"""Every policy by name: the names of the command line, the titles of the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar, cast

from heshare.errors import InputError
from heshare.policies import description
from heshare.policies.description import Value
from heshare.policies.policy import Policy, Traits

Factory = Callable[..., Policy]
_F = TypeVar("_F", bound=Factory)


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered policy.

    Attributes:
        name: on the command line, such as `heshare:trade-off`.
        title: in figures, such as `Trade-off`.
        factory: makes one; called with keywords for what differs from its own defaults.
        parameters: what a description such as `morak(cap=0.7)` may change, with the defaults of this entry.
        preset: what this entry changes of the factory's defaults.
        variant: whether it is another form of a system that has an entry of its own.
    """

    name: str
    title: str
    factory: Factory
    parameters: Mapping[str, Value] = field(default_factory=dict)
    preset: Mapping[str, Value] = field(default_factory=dict)
    variant: bool = False

    def make(self, **changed: Value) -> Policy:
        """A policy with this entry's settings, apart from those changed; its name says which."""
        made = self.factory(**{**self.preset, **changed})
        cast(Any, made).name = description.write(self.name, changed)
        return made


_ENTRIES: dict[str, Entry] = {}


def register(
    name: str, *, title: str, parameters: Mapping[str, Value] | None = None, preset: Mapping[str, Value] | None = None
) -> Callable[[_F], _F]:
    """Decorator: enter a class or function that makes a policy.

    Args:
        name: what the command line calls it.
        title: what figures call it.
        parameters: its parameters and their defaults; by default those of its signature.
        preset: the parameters that this entry sets, for a variant of a system.

    Raises:
        InputError: the name is taken.
    """

    def enter(factory: _F) -> _F:
        if name in _ENTRIES:
            raise InputError(
                column="policy", found=f"{name!r} twice", expected="one policy a name", action="Choose another name."
            )
        own = description.parameters_of(factory) if parameters is None else parameters
        fixed = dict(preset or {})
        _ENTRIES[name] = Entry(name, title, factory, {**own, **fixed}, fixed, variant=preset is not None)
        return factory

    return enter


def forget(name: str) -> None:
    """Free the name of somebody's own policy, such as one that a notebook registers again; ours stay."""
    if name in _ENTRIES and not _ENTRIES[name].factory.__module__.startswith("heshare."):
        del _ENTRIES[name]


def policies(*, variants: bool = False) -> dict[str, Entry]:
    """Every registered system by name, with `variants` also its other forms.

    The modules of this package are imported first, sorted by name.
    """
    _import_all()
    shown = [item for item in _ENTRIES.items() if variants or not item[1].variant]
    return dict(sorted(shown, key=lambda item: (_rank(item[0]), item[0])))


def make(text: str) -> Policy:
    """A policy by its name, such as `morak`, or its name and parameters, such as `morak(cap=0.7,k=3)`.

    Raises:
        InputError: no such policy or parameter, or a bad value; the message lists what there is.
    """
    entry, changed = _found(text)
    return entry.make(**changed)


def canonical(text: str) -> str:
    """The one way to write a policy: parameters in order of their names, defaults left out.

    Raises:
        InputError: as `make`, apart from values that only the policy itself checks.
    """
    entry, changed = _found(text)
    return description.write(entry.name, changed)


def title(text: str) -> str:
    """A policy's title in figures; the text itself for one that is not registered."""
    try:
        entry, changed = _found(text)
    except InputError:
        return text
    inside = ", ".join(f"{key} {description.text_of(value)}" for key, value in changed.items())
    return f"{entry.title} ({inside})" if inside else entry.title


def declared() -> dict[str, Traits]:
    """What every registered system declares of itself (our Table I), by title."""
    return {entry.title: entry.make().traits for entry in policies().values()}


def _found(text: str) -> tuple[Entry, dict[str, Value]]:
    name, given = description.split(text)
    known = policies(variants=True)
    if name not in known:
        raise InputError(
            column="policy",
            found=repr(text),
            expected="one of " + ", ".join(known),
            action="Choose one, or register yours with heshare.policies.registry.register.",
        )
    return known[name], description.parse(name, given, known[name].parameters)


@cache
def _import_all() -> None:
    package = import_module("heshare.policies")
    for module in sorted(found.name for found in iter_modules(package.__path__)):
        import_module(f"heshare.policies.{module}")


# The paper's order in Fig. 6; policies that it does not name follow by name.
_ORDER = ("random", "sched-only", "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt", "morak", "mu-serve")


def _rank(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
