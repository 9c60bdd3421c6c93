"""Tables of outputs for the page: the rows of their Markdown files."""

import re
from dataclasses import dataclass
from pathlib import Path

_BAR = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table as text: heads, rows, and which columns are numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


def read(path: Path) -> PageTable:
    """Return the first table of a Markdown file that `heshare.experiments.tables` wrote."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    heads, rule, *rows = (tuple(cell.strip() for cell in _BAR.split(line)[1:-1]) for line in lines)
    cleaned = tuple(tuple(cell.replace("\\|", "|") for cell in row) for row in rows)
    return PageTable(heads, cleaned, tuple(cell.endswith(":") for cell in rule))
