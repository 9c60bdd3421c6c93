"""Registry: every policy by its name on the command line, with its title in figures and its parameters; Table I."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar, cast

import pandas as pd

from heshare.errors import InputError, require
from heshare.policies.policy import Policy, Traits
from heshare.policies.policy_parameters import (
    Value,
    format_value,
    parameters_of,
    parse_parameters,
    split_description,
    write_description,
)

Factory = Callable[..., Policy]
_F = TypeVar("_F", bound=Factory)

PUBLISHED = MappingProxyType(
    {
        "BatchDVFS": Traits(frequency=True, multi_task=False, heterogeneous=False),
        "PWR": Traits(frequency=False, multi_task=False, heterogeneous=True),
        "μ-Serve": Traits(frequency=True, multi_task=False, heterogeneous=False),
        "Morak": Traits(frequency=True, multi_task=True, heterogeneous=False),
        "HeShare": Traits(frequency=True, multi_task=True, heterogeneous=True),
    }
)
"""Table I of the paper. PWR's published code also lets tasks share a GPU, which the table leaves out."""

# Fig. 6's order; other policies follow by name.
_ORDER = ("random", "sched-only", "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt", "morak", "mu-serve")


@dataclass(frozen=True, slots=True)
class RegisteredPolicy:
    """A registered policy.

    Attributes:
        name: on the command line, such as `heshare:trade-off`.
        title: in figures, such as `Trade-off`.
        factory: returns the policy; takes the parameters that differ from its own defaults as keywords.
        parameters: those that a description such as `morak(cap=0.7)` may change, with the defaults of this entry.
        preset: parameters of this entry that differ from the factory's defaults.
        variant: whether it is a variant of a system that has its own entry.
    """

    name: str
    title: str
    factory: Factory
    parameters: Mapping[str, Value] = field(default_factory=dict)
    preset: Mapping[str, Value] = field(default_factory=dict)
    variant: bool = False

    def make(self, **changed: Value) -> Policy:
        """Return a policy with some parameters changed; its name is the description."""
        policy = self.factory(**{**self.preset, **changed})
        cast(Any, policy).name = write_description(self.name, changed)
        return policy


_ENTRIES: dict[str, RegisteredPolicy] = {}


def register(
    name: str, *, title: str, parameters: Mapping[str, Value] | None = None, preset: Mapping[str, Value] | None = None
) -> Callable[[_F], _F]:
    """Decorator: register a class or function that returns a policy.

    Args:
        name: on the command line.
        title: in figures.
        parameters: its parameters and their defaults; by default those of its signature.
        preset: the parameters that this entry sets, for a variant of a system.

    Raises:
        InputError: the name is taken.
    """

    def decorate(factory: _F) -> _F:
        require("policy", f"{name!r} twice", name not in _ENTRIES, "one policy a name", "Choose another name.")
        defaults = parameters_of(factory) if parameters is None else parameters
        fixed = dict(preset or {})
        _ENTRIES[name] = RegisteredPolicy(
            name, title, factory, {**defaults, **fixed}, fixed, variant=preset is not None
        )
        return factory

    return decorate


def unregister(name: str) -> None:
    """Remove a policy that was registered outside the package, for example by a notebook; others stay."""
    if name in _ENTRIES and not _ENTRIES[name].factory.__module__.startswith("heshare."):
        del _ENTRIES[name]


def policies(*, variants: bool = False) -> dict[str, RegisteredPolicy]:
    """Return every registered system by name, with `variants` also their variants."""
    _import_paper_policies()
    entries = [entry for entry in _ENTRIES.values() if variants or not entry.variant]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: (_rank(entry.name), entry.name))}


def make(text: str) -> Policy:
    """Return the policy of a name such as `morak` or a description such as `morak(cap=0.7,k=3)`.

    Raises:
        InputError: no such policy or parameter, or a bad value; the message lists the known names.
    """
    entry, changed = _parse(text)
    return entry.make(**changed)


def canonical(text: str) -> str:
    """Return the canonical description of a policy: parameters sorted by name, defaults left out.

    Raises:
        InputError: as `make`, apart from values that only the policy itself checks.
    """
    entry, changed = _parse(text)
    return write_description(entry.name, changed)


def title(text: str) -> str:
    """Return a policy's title in figures; the text itself if it is not registered."""
    try:
        entry, changed = _parse(text)
    except InputError:
        return text
    inside = ", ".join(f"{key} {format_value(value)}" for key, value in changed.items())
    return f"{entry.title} ({inside})" if inside else entry.title


def declared_traits() -> dict[str, Traits]:
    """Return the declared traits of every registered system by title."""
    return {entry.title: entry.make().traits for entry in policies().values()}


def table_1() -> pd.DataFrame:
    """Return Table I: columns solution, frequency, multi_task, heterogeneous (bool) and provenance.

    Provenance is `published` for the paper's rows and `declared` for the policies of this package, whose `Traits` a
    test compares with their actions.
    """
    rows = [
        {"solution": name, **asdict(traits), "provenance": provenance}
        for provenance, table in (("published", PUBLISHED), ("declared", declared_traits()))
        for name, traits in table.items()
    ]
    return pd.DataFrame(rows)


def _parse(text: str) -> tuple[RegisteredPolicy, dict[str, Value]]:
    name, texts = split_description(text)
    entries = policies(variants=True)
    action = "Choose one, or register yours with heshare.policies.registry.register."
    require("policy", repr(text), name in entries, "one of " + ", ".join(entries), action)
    return entries[name], parse_parameters(name, texts, entries[name].parameters)


@cache
def _import_paper_policies() -> None:
    # Not at the top: these modules import the registry.
    import_module("heshare.policies.heshare")


def _rank(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
