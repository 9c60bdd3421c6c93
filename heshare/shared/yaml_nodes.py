"""Reader of YAML 1.2 files with errors that name file, row and field; YAML tags never create objects.

Plain scalars have the types of YAML 1.2 (core schema), not those of PyYAML, which reads YAML 1.1: `010` is 10, `1e3` a
number, `1:30`, `1_000`, `yes` and a date are text.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from heshare.shared import files
from heshare.shared.errors import InputError

_MOST_BYTES = 4 << 20
_TOP = "the file"
_SCALARS = ("str", "int", "float", "bool")
_TAG = "tag:yaml.org,2002:"
_CORE_SCHEMA = {
    "null": (r"~|null|Null|NULL|", [*"~nN", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
}
"""By tag: the plain scalars that have it, and their first characters (YAML 1.2.2, section 10.3.2)."""


def read_nodes(path: Path, expected: str, action: str) -> "YamlNode":
    """Return the top node of a YAML file; `expected` and `action` are for messages about an unreadable file."""
    return YamlNode(path, _read(path, lambda text: yaml.compose(text, Loader=_Loader), expected, action), _TOP)


def read_values(path: Path, expected: str, action: str) -> Any:
    """Return the values of a YAML file; a key that is written twice is an error."""
    return _read(path, lambda text: yaml.load(text, Loader=_Loader), expected, action)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """The safe loader with the types of YAML 1.2; a repeated key is an error (PyYAML uses the last value)."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - the name and type of the base class

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in keys:
                raise yaml.constructor.ConstructorError(problem=f"the key {name} twice", problem_mark=key.start_mark)
            keys.add(name)
        values: dict[Any, Any] = super().construct_mapping(node, deep)
        return values

    def construct_int(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node))
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))

    def construct_float(self, node: yaml.ScalarNode) -> float:
        # YAML writes infinity as .inf and no number as .nan.
        return float(re.sub(r"\.(?=[a-zA-Z])", "", str(self.construct_scalar(node))))


for _name, (_pattern, _first) in _CORE_SCHEMA.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)
_Loader.add_constructor(f"{_TAG}int", _Loader.construct_int)
_Loader.add_constructor(f"{_TAG}float", _Loader.construct_float)


class YamlNode:
    """A node of a YAML file; `column` is its place in messages, such as `jobs[2].retries`."""

    def __init__(self, file: Path, node: yaml.Node, column: str) -> None:
        self.file, self.node, self.column = file, node, column

    @property
    def row(self) -> int:
        return int(self.node.start_mark.line) + 1

    def refuse(self, found: str, expected: str, action: str) -> NoReturn:
        """Raise the `InputError` that names this place."""
        raise InputError(found, expected, action, file=self.file, row=self.row, column=self.column)

    def items(self) -> "list[YamlNode]":
        if not isinstance(self.node, yaml.SequenceNode) or not self.node.value:
            self.refuse(_describe(self.node), "a list with at least one item", "Write the items as `- ...`.")
        return [YamlNode(self.file, item, f"{self.column}[{index}]") for index, item in enumerate(self.node.value)]

    def mapping(self, known: tuple[str, ...] | None, expected: str) -> "dict[str, YamlNode]":
        """Return the fields by name; with `known`, refuse others."""
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse(_describe(self.node), expected, "Write it as `name: value`.")
        fields: dict[str, YamlNode] = {}
        for key, value in self.node.value:
            place = YamlNode(self.file, key, self.column)
            name = place.text("a name")
            if known is not None and name not in known:
                place.refuse(f"the key {short(name)}", f"only {', '.join(known)}", "Correct its name or remove it.")
            if name in fields:
                place.refuse(f"the key {name!r} twice", "each key once", "Remove one.")
            fields[name] = YamlNode(self.file, value, name if self.column == _TOP else f"{self.column}.{name}")
        return fields

    def text(self, expected: str = "a text") -> str:
        """Return the text of a scalar as written in the file, whatever type YAML gives it."""
        if not isinstance(self.node, yaml.ScalarNode) or _tag(self.node) not in _SCALARS:
            self.refuse(_describe(self.node), expected, "Correct the value.")
        value = str(self.node.value)
        try:
            value.encode()
        except UnicodeEncodeError:
            self.refuse("a text that is not Unicode", expected, "Correct the value.")
        if "\0" in value:
            self.refuse("a text with a zero byte", expected, "Remove the zero byte.")
        return value

    def plain(self) -> str | list[str] | dict[str, str]:
        """Return a scalar, or a list or mapping of scalars, as text; for `msgspec.convert` with `strict=False`."""
        if isinstance(self.node, yaml.SequenceNode):
            return [item.text() for item in self.items()]
        if isinstance(self.node, yaml.MappingNode):
            return {name: value.text() for name, value in self.mapping(None, "a mapping").items()}
        return self.text()

    def number(self) -> str | int | float:
        """Return a number as YAML 1.2 reads it, and any other scalar as its text."""
        text = self.text("a number")
        if _tag(self.node) not in ("int", "float"):
            return text
        try:
            value: int | float = _Loader("").construct_object(self.node)
        except ValueError:  # Python converts no texts of thousands of digits
            return text
        return value

    def described(self) -> str:
        """Return a short description for messages."""
        return _describe(self.node)


def short(text: str) -> str:
    """Return at most 60 characters of a text, quoted and on one line, for messages."""
    return ascii(text) if len(text) <= 60 else ascii(text[:57]) + "..."


def _read(path: Path, parse: Callable[[str], Any], expected: str, action: str) -> Any:
    try:
        with files.open_input(path) as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError("more than 4 MiB", expected, action, file=path)
        parsed = parse(content.decode("utf-8-sig"))
    except InputError:
        raise
    except OSError as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else f"what cannot be read ({error.strerror})"
        raise InputError(found, expected, "Correct the path.", file=path) from None
    except UnicodeDecodeError:
        raise InputError("bytes that are not UTF-8", expected, action, file=path) from None
    except yaml.MarkedYAMLError as error:
        row = None if error.problem_mark is None else error.problem_mark.line + 1
        found = f"no YAML ({short(error.problem or 'unreadable')})"
        raise InputError(found, expected, action, file=path, row=row) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        found = "lists within lists without end" if isinstance(error, RecursionError) else "characters not of a text"
        raise InputError(found, expected, action, file=path) from None

    if parsed is None:
        raise InputError("an empty file", expected, action, file=path, row=1)
    return parsed


def _tag(node: yaml.Node) -> str:
    return str(node.tag).removeprefix(_TAG)


def _describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "keys and values"
    if isinstance(node, yaml.SequenceNode):
        return "a list" if node.value else "an empty list"
    if _tag(node) == "null":
        return "nothing"
    return short(node.value) if _tag(node) in _SCALARS else f"a value of the type {short(_tag(node))}"
