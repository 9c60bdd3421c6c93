"""YAML files that people bring, read as nodes that know their lines: what is wrong is named, objects are never made."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NoReturn

import yaml

from heshare.errors import InputError

MOST_BYTES = 4 << 20
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_SCALARS = ("str", "int", "float", "bool", "timestamp")


def compose(path: Path) -> yaml.Node:
    """The file as YAML nodes, which know their lines; objects are never made of it.

    Raises:
        InputError: it cannot be read, is too large, or is no YAML.
    """
    expected, action = "a file of jobs in YAML", "Correct the file; the page docs/operator.md shows one."
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(file=path, found="more than 4 MiB", expected=expected, action="Use `count` for copies.")
        node = yaml.compose(content.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except InputError:
        raise
    except OSError as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else f"what cannot be read ({error.strerror})"
        raise InputError(file=path, found=found, expected=expected, action="Correct the path.") from None
    except UnicodeDecodeError:
        raise InputError(file=path, found="bytes that are not UTF-8", expected=expected, action=action) from None
    except yaml.MarkedYAMLError as error:
        row = None if error.problem_mark is None else error.problem_mark.line + 1
        found = f"no YAML ({short(error.problem or 'unreadable')})"
        raise InputError(file=path, row=row, found=found, expected=expected, action=action) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        found = "lists within lists without end" if isinstance(error, RecursionError) else "characters not of a text"
        raise InputError(file=path, found=found, expected=expected, action=action) from None
    if node is None:
        raise InputError(file=path, row=1, found="an empty file", expected=expected, action=action)
    return node


class Node:
    """A place in a YAML file: what stands there, and how a message names it.

    Args:
        file: the file.
        node: what stands there.
        column: how a message names the place, such as `jobs[2].retries`.
    """

    def __init__(self, file: Path, node: yaml.Node, column: str) -> None:
        self.file, self.node, self.column = file, node, column

    @property
    def row(self) -> int:
        """The line, as an editor counts."""
        return int(self.node.start_mark.line) + 1

    def refuse(self, found: str, expected: str, action: str) -> NoReturn:
        """Raise the `InputError` that names this place."""
        raise InputError(
            file=self.file, row=self.row, column=self.column, found=found, expected=expected, action=action
        )

    def items(self) -> list[Node]:
        """The items of a list that is not empty."""
        if not isinstance(self.node, yaml.SequenceNode) or not self.node.value:
            self.refuse(_kind(self.node), "a list with at least one item", "Write the items as `- ...`.")
        return [Node(self.file, one, f"{self.column}[{index}]") for index, one in enumerate(self.node.value)]

    def mapping(self, known: tuple[str, ...] | None, expected: str) -> dict[str, Node]:
        """The fields by name; with `known`, no others."""
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse(_kind(self.node), expected, "Write it as `name: value`.")
        found: dict[str, Node] = {}
        for key, value in self.node.value:
            name = Node(self.file, key, self.column).text("a name")
            if known is not None and name not in known:
                action = "Correct its name or remove it."
                Node(self.file, key, self.column).refuse(f"the key {short(name)}", f"only {', '.join(known)}", action)
            if name in found:
                Node(self.file, key, self.column).refuse(f"the key {name!r} twice", "each key once", "Remove one.")
            found[name] = Node(self.file, value, name if self.column == "the file" else f"{self.column}.{name}")
        return found

    def text(self, expected: str = "a text") -> str:
        """A scalar as it is written, whatever YAML takes it for."""
        node = self.node
        plain = isinstance(node, yaml.ScalarNode) and node.tag.removeprefix("tag:yaml.org,2002:") in _SCALARS
        if not plain:
            self.refuse(_kind(node), expected, "Correct the value.")
        value = str(node.value)
        try:
            value.encode()
        except UnicodeEncodeError:
            self.refuse("a text that is not Unicode", expected, "Correct the value.")
        if "\0" in value:
            self.refuse("a text with a zero byte", expected, "Remove the zero byte.")
        return value

    def number(self, *, least: float = 0.0, above: bool = False, most: float = 1e15) -> float:
        """A finite number of at least `least` (above it, if `above`) and at most `most`."""
        expected = f"a number {'above' if above else 'of at least'} {least:g} and at most {most:g}"
        text = self.text(expected)
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not (least < value if above else least <= value) or value > most:
            self.refuse(short(text), expected, "Correct the number.")
        return value

    def whole(self, *, least: int, most: int) -> int:
        """A whole number."""
        value = self.number(least=least, most=most)
        if not value.is_integer():
            self.refuse(f"{value:g}", f"a whole number from {least} to {most}", "Correct the number.")
        return int(value)

    def one_of(self, known: tuple[str, ...]) -> str:
        """One of the known texts."""
        text = self.text("one of " + ", ".join(known))
        if text not in known:
            self.refuse(short(text), "one of " + ", ".join(known), "Choose one of them.")
        return text


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "keys and values"
    if isinstance(node, yaml.SequenceNode):
        return "a list" if node.value else "an empty list"
    tag = str(node.tag).removeprefix("tag:yaml.org,2002:")
    if tag == "null":
        return "nothing"
    return short(node.value) if tag in _SCALARS else f"a value of the type {short(tag)}"


def short(text: str) -> str:
    """A text for a message: on one line, not too long."""
    return ascii(text) if len(text) <= 60 else ascii(text[:57]) + "..."
