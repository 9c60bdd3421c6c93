"""How a policy with other settings than its defaults is written: `morak(cap=0.7,k=3)`."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from heshare.errors import InputError

Value = bool | int | float | str | tuple[int, ...]
"""What a parameter of a policy may be."""

_FORM = re.compile(r"^\s*(?P<name>[^()]+?)\s*(\((?P<inside>[^()]*)\))?\s*$")
_TRUTH = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


def split(text: str) -> tuple[str, dict[str, str]]:
    """The name and the parameters, as text, of a description such as `morak(cap=0.7,k=3)`.

    Raises:
        InputError: another form, or a parameter twice.
    """
    match = _FORM.match(text)
    if match is None:
        raise _bad(repr(text), "a name, or a name with parameters such as morak(cap=0.7,k=3)", "Write it in that form.")
    given: dict[str, str] = {}
    for part in filter(str.strip, (match["inside"] or "").split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise _bad(f"{part.strip()!r} in {text!r}", "parameters such as cap=0.7", "Write name=value.")
        if key in given:
            raise _bad(f"{key} twice in {text!r}", "each parameter once", "Remove one of them.")
        given[key] = value
    return match["name"], given


def parse(name: str, given: Mapping[str, str], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """The parameters of the policy `name` that differ from its defaults, each of its default's type, by name.

    Raises:
        InputError: a parameter that it does not have, or a value of another type; ranges are the policy's to check.
    """
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        known = ", ".join(sorted(defaults)) or "none at all"
        raise _bad(f"parameter {unknown[0]!r} of {name}", f"one of its parameters: {known}", "Correct the name.")
    read = {key: _value(name, key, given[key], defaults[key]) for key in sorted(given)}
    return {key: value for key, value in read.items() if value != defaults[key]}


def write(name: str, parameters: Mapping[str, Value]) -> str:
    """The description of a policy: its name, and in order of their names the parameters that are not its defaults."""
    if not parameters:
        return name
    return f"{name}({','.join(f'{key}={text_of(parameters[key])}' for key in sorted(parameters))})"


def text_of(value: Value) -> str:
    """A value as a description writes it, such as `0.7`, `yes`, `10/50/100`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return repr(value) if isinstance(value, float) else str(value)


def parameters_of(factory: Callable[..., object]) -> Mapping[str, Value]:
    """The parameters of a class or function that a description can name, with their defaults.

    They are those whose default is a truth value, a number, a text or a tuple of whole numbers.
    """
    found = {name: each.default for name, each in inspect.signature(factory).parameters.items()}
    return MappingProxyType({name: value for name, value in found.items() if _describable(value)})


def _describable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(each, int) for each in value)
    return isinstance(value, bool | int | float | str)


def _value(name: str, key: str, text: str, default: Value) -> Value:
    try:
        return _READERS[type(default)](text)
    except (KeyError, ValueError):
        kind = _KINDS[type(default)]
        raise _bad(f"{key}={text} of {name}", f"{kind}, such as {text_of(default)}", "Correct the value.") from None


def _number(text: str) -> float:
    value = float(text)
    if math.isnan(value):
        raise ValueError(text)
    return value


_READERS: dict[type, Callable[[str], Value]] = {
    bool: lambda text: _TRUTH[text.lower()],
    int: int,
    float: _number,
    str: str,
    tuple: lambda text: tuple(int(part) for part in text.split("/")),
}
_KINDS = {bool: "yes or no", int: "a whole number", float: "a number", str: "a word", tuple: "whole numbers with /"}


def check(column: str, value: object, good: bool, expected: str) -> None:
    """Refuse a parameter that is out of its range.

    Raises:
        InputError: `good` is false.
    """
    if not good:
        raise InputError(column=column, found=str(value), expected=expected, action="Correct the parameter.")


def _bad(found: str, expected: str, action: str) -> InputError:
    return InputError(column="policy", found=found, expected=expected, action=action)
