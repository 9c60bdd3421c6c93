"""Registry of policies: names on the command line, titles in figures, parameters; Table I.

A description such as `morak(cap=0.7,k=3)` names a policy and changes some of its parameters. `module:function` names a
function or class of your own that returns a policy; it is registered nowhere.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

import pandas as pd

from heshare.policies.policy import Policy, Traits
from heshare.shared import plugins
from heshare.shared.errors import InputError, require, suggestion, unknown
from heshare.shared.inputs.bounds import MOST_TASKS, parse_whole

Value = bool | int | float | str | tuple[int, ...]
"""Type of a policy's parameter."""
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
"""Table I of the paper. PWR's published code also lets tasks share a GPU; the table does not say so."""

_DESCRIPTION = re.compile(r"^\s*(?P<name>[^()]+?)\s*(\((?P<parameters>[^()]*)\))?\s*$")
_BOOLEANS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
FIG_6 = ("random", "sched-only", "heshare:trade-off", "heshare:en-opt", "heshare:jct-opt", "morak", "mu-serve")
"""Names of the policies of Fig. 6 in its order; other policies follow by name."""

BASELINES = ("sjf", "srtf", "srtf:fixed-clock")
"""Trivial policies that are variants of a system's class, beside which every result should stand; not in Table I."""


@dataclass(frozen=True, slots=True)
class RegisteredPolicy:
    """Entry of the registry: how to make a policy, its title and its parameters.

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
        found = f"{type(policy).__name__} from {self.name}"
        action = "Let its class inherit from heshare.policies.policy.Policy; docs/policies.md has an example."
        require("policy", found, isinstance(policy, Policy), "a policy", action)

        policy.name = _description(self.name, changed)
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

    In a notebook or script, the same class or function registered again replaces the earlier one.

    Raises:
        InputError: the name is taken.
    """

    def decorate(factory: _F) -> _F:
        # A notebook's cell that is run again replaces its own policy.
        origin = (factory.__module__, factory.__qualname__)
        known = _ENTRIES.get(name)
        again = known is not None and (known.factory.__module__, known.factory.__qualname__) == origin
        free = known is None or (again and factory.__module__ == "__main__")
        require("policy", f"{name!r} twice", free, "one policy a name", "Choose another name.")

        defaults = parameters_of(factory) if parameters is None else parameters
        fixed = dict(preset or {})
        variant = preset is not None
        _ENTRIES[name] = RegisteredPolicy(name, title, factory, {**defaults, **fixed}, fixed, variant)
        return factory

    return decorate


def unregister(name: str) -> None:
    """Remove a policy that was registered outside the package, for example by a notebook; others stay."""
    if name in _ENTRIES and not _ENTRIES[name].factory.__module__.startswith("heshare."):
        del _ENTRIES[name]


def policies(*, variants: bool = False) -> dict[str, RegisteredPolicy]:
    """Return every registered system by name, with `variants` also their variants."""
    plugins.load_all(plugins.POLICIES)
    first = [name for name in FIG_6 if name in _ENTRIES]
    names = [*first, *sorted(set(_ENTRIES) - set(first))]
    return {name: _ENTRIES[name] for name in names if variants or not _ENTRIES[name].variant}


def default_names() -> list[str]:
    """Return the names of the policies of a comparison that names none: every system once, and the baselines."""
    return [name for name, entry in policies(variants=True).items() if not entry.variant or name in BASELINES]


def make(text: str) -> Policy:
    """Return the policy of a name such as `morak`, a description such as `morak(cap=0.7,k=3)`, or `module:function`.

    Raises:
        InputError: no such policy or parameter, or a bad value; the message lists the known names.
    """
    entry, changed = _read(text)
    return entry.make(**changed)


def canonical(text: str) -> str:
    """Return the canonical description of a policy: parameters sorted by name, defaults left out.

    Raises:
        InputError: as `make`, apart from values that only the policy itself checks.
    """
    entry, changed = _read(text)
    return _description(entry.name, changed)


def title(text: str) -> str:
    """Return a policy's title in figures; the text itself if it is not registered."""
    try:
        entry, changed = _read(text)
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


def parameters_of(factory: Callable[..., object]) -> Mapping[str, Value]:
    """Return the parameters of a class or function whose default is a `Value`, with their defaults."""

    def is_value(default: Any) -> bool:
        if isinstance(default, tuple):
            return all(isinstance(item, int) for item in default)
        return isinstance(default, bool | int | float | str)

    defaults = {name: parameter.default for name, parameter in inspect.signature(factory).parameters.items()}
    return MappingProxyType({name: default for name, default in defaults.items() if is_value(default)})


def format_value(value: Value) -> str:
    """Return a value as a description contains it, such as `0.7`, `yes`, `10/50/100`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return repr(value) if isinstance(value, float) else str(value)


def _description(name: str, parameters: Mapping[str, Value]) -> str:
    if not parameters:
        return name
    return f"{name}({','.join(f'{key}={format_value(parameters[key])}' for key in sorted(parameters))})"


def _read(text: str) -> tuple[RegisteredPolicy, dict[str, Value]]:
    """Return the entry that a description names, and its parameters that differ from the entry's defaults."""
    match = _DESCRIPTION.match(text)
    expected = "a name, or a name with parameters such as morak(cap=0.7,k=3)"
    if match is None:
        raise InputError(repr(text), expected, "Write it in that form.", column="policy")

    entry = _entry(match["name"])
    defaults = entry.parameters
    values: dict[str, Value] = {}

    for part in filter(str.strip, (match["parameters"] or "").split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        complete = bool(key and value)
        require("policy", f"{part.strip()!r} in {text!r}", complete, "parameters such as cap=0.7", "Write name=value.")
        require("policy", f"{key} twice in {text!r}", key not in values, "each parameter once", "Remove one.")
        if key not in defaults:
            known = "one of its parameters: " + (", ".join(sorted(defaults)) or "none at all")
            action = suggestion(key, defaults, "Correct the name.")
            raise InputError(f"parameter {key!r} of {entry.name}", known, action, column="policy")
        values[key] = _parse_value(entry.name, key, value, defaults[key])

    return entry, {key: values[key] for key in sorted(values) if values[key] != defaults[key]}


def _entry(name: str) -> RegisteredPolicy:
    if name not in _ENTRIES:
        plugins.load(plugins.POLICIES, re.split("[:/]", name)[0])
    if name in _ENTRIES:
        return _ENTRIES[name]

    if _names_function(name):
        return _function_entry(name)
    action = "Choose one (`heshare list policies`), or register yours (docs/policies.md)."
    raise unknown(name, policies(variants=True), action, column="policy")


def _names_function(name: str) -> bool:
    # `module:function`, and not a misspelt name of a plug-in, such as heshare:tradeoff.
    module, _, attribute = name.partition(":")
    written = attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))
    return written and module.lower() not in plugins.names(plugins.POLICIES)


@cache
def _function_entry(name: str) -> RegisteredPolicy:
    factory = plugins.function(name, "policy")
    good = inspect.isclass(factory) or inspect.isfunction(factory)
    expected = "a function or class that returns a policy"
    require("policy", name, good, expected, "Name one that does.")

    # A function with the decorator `policy` decides; another one, which is registered, makes the policy.
    makers = [each.factory for each in _ENTRIES.values() if getattr(each.factory, "decides", None) is factory]
    factory = makers[0] if makers else factory
    lacking = [each.name for each in inspect.signature(factory).parameters.values() if _is_required(each)]
    found = f"{name}, which needs {', '.join(lacking)}"
    require("policy", found, not lacking, f"{expected} and needs no argument", "Give them defaults, or use @policy.")
    return RegisteredPolicy(name, name, factory, parameters_of(factory))


def _is_required(parameter: inspect.Parameter) -> bool:
    variable = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not variable


def _parse_value(name: str, key: str, text: str, default: Value) -> Value:
    """Return a parameter's value, of the type of its default; the policy itself checks ranges."""
    kind = ""
    try:
        if isinstance(default, bool):
            kind = "yes or no"
            return _BOOLEANS[text.lower()]
        if isinstance(default, int):
            kind = "a whole number"
            return _parse_int(text)
        if isinstance(default, tuple):
            kind = "whole numbers with /"
            return tuple(map(_parse_int, text.split("/")))
        if isinstance(default, float):
            kind = "a number"
            value = float(text)
            if not math.isnan(value):
                return value
        else:
            return text
    except (KeyError, ValueError):
        pass

    expected = f"{kind}, such as {format_value(default)}"
    raise InputError(f"{key}={text} of {name}", expected, "Correct the value.", column="policy")


def _parse_int(text: str) -> int:
    return parse_whole(text, "policy", least=-MOST_TASKS, most=MOST_TASKS)
