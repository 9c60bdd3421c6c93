"""Registry of policies: names on the command line, titles in figures, parameters; Table I.

A description such as `morak(cap=0.7,k=3)` names a policy and changes some of its parameters.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import count
from types import MappingProxyType
from typing import Any, TypeVar, cast

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
_RANKS = {name: rank for rank, name in enumerate(FIG_6)}


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
        good, expected = callable(getattr(policy, "decide", None)), "an object with decide, as docs/guide.md describes"
        require("policy", f"{type(policy).__name__} from {self.name}", good, expected, "Return a policy.")
        cast(Any, policy).name = write_description(self.name, changed)
        return policy


_ENTRIES: dict[str, RegisteredPolicy] = {}
_GIVEN: dict[str, Policy] = {}
"""Policies that are objects, by name, while `given_policies` lends them to grids of this process."""


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
        again = name in _ENTRIES and _origin(_ENTRIES[name].factory) == _origin(factory)
        notebook = getattr(factory, "__module__", "") == "__main__"
        free = name not in _ENTRIES or (again and notebook)
        require("policy", f"{name!r} twice", free, "one policy a name", "Choose another name.")
        defaults = parameters_of(factory) if parameters is None else parameters
        fixed = dict(preset or {})
        _ENTRIES[name] = RegisteredPolicy(
            name, title, factory, {**defaults, **fixed}, fixed, variant=preset is not None
        )
        return factory

    return decorate


def _origin(factory: Factory) -> tuple[str, str]:
    return getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")


def unregister(name: str) -> None:
    """Remove a policy that was registered outside the package, for example by a notebook; others stay."""
    if name in _ENTRIES and not _ENTRIES[name].factory.__module__.startswith("heshare."):
        del _ENTRIES[name]


def policies(*, variants: bool = False) -> dict[str, RegisteredPolicy]:
    """Return every registered system by name, with `variants` also their variants."""
    plugins.load_all(plugins.POLICIES)
    ordered = sorted(_ENTRIES.items(), key=lambda item: (_RANKS.get(item[0], len(_RANKS)), item[0]))
    return {name: entry for name, entry in ordered if variants or not entry.variant}


def make(text: str) -> Policy:
    """Return the policy of a name such as `morak` or a description such as `morak(cap=0.7,k=3)`.

    A name may be `module:function`: a function or class of your own that returns a policy.

    Raises:
        InputError: no such policy or parameter, or a bad value; the message lists the known names.
    """
    if text in _GIVEN:
        return _GIVEN[text]
    entry, changed = _parse(text)
    return entry.make(**changed)


def canonical(text: str) -> str:
    """Return the canonical description of a policy: parameters sorted by name, defaults left out.

    Raises:
        InputError: as `make`, apart from values that only the policy itself checks.
    """
    if text in _GIVEN:
        return text
    entry, changed = _parse(text)
    return write_description(entry.name, changed)


@contextmanager
def given_policies(given: Iterable[str | Policy]) -> Iterator[tuple[str, ...]]:
    """Give policies that are objects names of grids meanwhile: their own, with a number where that is taken."""
    given = tuple(given)
    taken = {*_ENTRIES, *[policy for policy in given if isinstance(policy, str)]}
    names = []
    try:
        for policy in given:
            if isinstance(policy, str):
                names.append(policy)
                continue
            numbered = (policy.name if number == 1 else f"{policy.name}#{number}" for number in count(1))
            name = next(name for name in numbered if name not in taken and name not in _GIVEN)
            _GIVEN[name] = policy
            names.append(name)
        yield tuple(names)
    finally:
        _GIVEN.clear()


def names_function(name: str) -> bool:
    """Return whether a policy's name is `module:function`, and neither registered nor that of a plug-in."""
    module, _, attribute = name.partition(":")
    written = attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))
    return written and name not in _ENTRIES and module.lower() not in plugins.names(plugins.POLICIES)


@cache
def _function_entry(name: str) -> RegisteredPolicy:
    factory = plugins.function(name, "policy")
    good = inspect.isclass(factory) or inspect.isfunction(factory)
    require("policy", name, good, "a function or class that returns a policy", "Name one that does.")
    return RegisteredPolicy(name, name, factory, parameters_of(factory))


def entry(text: str) -> RegisteredPolicy:
    """Return the entry of a name or description.

    Raises:
        InputError: as `canonical`.
    """
    return _parse(text)[0]


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
    if name not in _ENTRIES:
        plugins.load(plugins.POLICIES, re.split("[:/]", name)[0])
    if names_function(name):
        own = _function_entry(name)
        return own, parse_parameters(name, texts, own.parameters)
    if name not in _ENTRIES:
        entries = policies(variants=True)
        action = "Choose one (`heshare list policies`), or register yours (docs/guide.md)."
        raise unknown(name, entries, action, column="policy")
    return _ENTRIES[name], parse_parameters(name, texts, _ENTRIES[name].parameters)


def split_description(text: str) -> tuple[str, dict[str, str]]:
    """Return the name and the parameters, as text, of a description such as `morak(cap=0.7,k=3)`.

    Raises:
        InputError: another form, or a parameter twice.
    """
    match = _DESCRIPTION.match(text)
    if match is None:
        expected = "a name, or a name with parameters such as morak(cap=0.7,k=3)"
        raise InputError(repr(text), expected, "Write it in that form.", column="policy")
    parameters: dict[str, str] = {}
    for part in filter(str.strip, (match["parameters"] or "").split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        complete = bool(key and equals and value)
        require("policy", f"{part.strip()!r} in {text!r}", complete, "parameters such as cap=0.7", "Write name=value.")
        require("policy", f"{key} twice in {text!r}", key not in parameters, "each parameter once", "Remove one.")
        parameters[key] = value
    return match["name"], parameters


def parse_parameters(name: str, texts: Mapping[str, str], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """Return the parameters of the policy `name` that differ from its defaults, each of the type of its default.

    Raises:
        InputError: an unknown parameter, or a value of another type; the policy itself checks ranges.
    """
    wrong = sorted(set(texts) - set(defaults))
    if wrong:
        expected = "one of its parameters: " + (", ".join(sorted(defaults)) or "none at all")
        action = suggestion(wrong[0], defaults, "Correct the name.")
        raise InputError(f"parameter {wrong[0]!r} of {name}", expected, action, column="policy")
    values = {key: _parse_value(name, key, texts[key], defaults[key]) for key in sorted(texts)}
    return {key: value for key, value in values.items() if value != defaults[key]}


def _parse_value(name: str, key: str, text: str, default: Value) -> Value:
    kind, parse = _TYPES[type(default)]
    try:
        return parse(text)
    except (KeyError, ValueError):
        expected = f"{kind}, such as {format_value(default)}"
        raise InputError(f"{key}={text} of {name}", expected, "Correct the value.", column="policy") from None


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isnan(value):
        raise ValueError(text)
    return value


def _parse_int(text: str) -> int:
    return parse_whole(text, "policy", least=-MOST_TASKS, most=MOST_TASKS)


_TYPES: dict[type, tuple[str, Callable[[str], Value]]] = {
    bool: ("yes or no", lambda text: _BOOLEANS[text.lower()]),
    int: ("a whole number", _parse_int),
    float: ("a number", _parse_float),
    str: ("a word", str),
    tuple: ("whole numbers with /", lambda text: tuple(map(_parse_int, text.split("/")))),
}


def write_description(name: str, parameters: Mapping[str, Value]) -> str:
    """Return the description of a policy: its name and, sorted by name, the parameters that are not its defaults."""
    if not parameters:
        return name
    return f"{name}({','.join(f'{key}={format_value(parameters[key])}' for key in sorted(parameters))})"


def format_value(value: Value) -> str:
    """Return a value as a description contains it, such as `0.7`, `yes`, `10/50/100`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return repr(value) if isinstance(value, float) else str(value)


def parameters_of(factory: Callable[..., object]) -> Mapping[str, Value]:
    """Return the parameters of a class or function whose default is a `Value`, with their defaults."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(factory).parameters.items()}
    return MappingProxyType({name: default for name, default in defaults.items() if _is_value(default)})


def _is_value(default: Any) -> bool:
    if isinstance(default, tuple):
        return all(isinstance(item, int) for item in default)
    return isinstance(default, bool | int | float | str)
