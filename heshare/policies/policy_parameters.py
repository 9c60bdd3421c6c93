"""Descriptions of policies with parameters, such as `morak(cap=0.7,k=3)`: parse them and write them."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from heshare.errors import InputError, require

Value = bool | int | float | str | tuple[int, ...]
"""Type of a policy's parameter."""

_DESCRIPTION = re.compile(r"^\s*(?P<name>[^()]+?)\s*(\((?P<parameters>[^()]*)\))?\s*$")
_BOOLEANS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


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
    unknown = sorted(set(texts) - set(defaults))
    if unknown:
        expected = "one of its parameters: " + (", ".join(sorted(defaults)) or "none at all")
        raise InputError(f"parameter {unknown[0]!r} of {name}", expected, "Correct the name.", column="policy")
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


_TYPES: dict[type, tuple[str, Callable[[str], Value]]] = {
    bool: ("yes or no", lambda text: _BOOLEANS[text.lower()]),
    int: ("a whole number", int),
    float: ("a number", _parse_float),
    str: ("a word", str),
    tuple: ("whole numbers with /", lambda text: tuple(int(part) for part in text.split("/"))),
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
