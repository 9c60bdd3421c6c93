"""Tables of outputs for the page: the rows of their Markdown files."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table as text: heads, rows, and which columns are numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


def read(path: Path) -> PageTable:
    """Return the first table of a Markdown file that `heshare.paper.tables` wrote, with aligned columns."""
    heads, rule, *rows = (line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|"))
    # Cells are found by their places, because a head may have a bar in its words.
    bars = [place for place, letter in enumerate(rule) if letter == "|"]
    spans = list(pairwise(bars))

    def cells(line: str) -> tuple[str, ...]:
        return tuple(line[start + 1 : end].strip().replace("\\|", "|") for start, end in spans)

    return PageTable(cells(heads), tuple(map(cells, rows)), tuple(rule[end - 1] == ":" for _, end in spans))
