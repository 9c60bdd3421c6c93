"""Fenced blocks of the pages in `docs/`, and registrations that end with a test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from heshare.world import catalogue

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = "docs/adding.md"
GPU, WORKLOAD, NOTEBOOK = "Add a GPU", "Add a workload", "Add a notebook"
_FENCE = re.compile(r"^( *)```(\w+)(?: ([\w./]+))?\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, the file that it is added to ('' for none) and its text, without indentation."""

    language: str
    file: str
    text: str


def blocks(page: str, heading: str = "") -> list[Block]:
    """Return the fenced blocks of a page, or of the section with that heading."""
    text = (CHECKOUT / page).read_text("utf-8")
    if heading:
        text = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = []
    for indent, language, file, code in _FENCE.findall(text):
        found.append(Block(language, file, re.sub(rf"(?m)^{indent}", "", code)))
    return found


def described(heading: str) -> str:
    """Return the CSV rows of a section's example for a file in `data/`."""
    return next(block.text for block in blocks(PAGE, heading) if block.file.startswith("data/"))


def write_rows(path: Path, key: str, rows: str) -> Path:
    """Write rows of a GPU (`gpu`) or a network (`workload`) with their header; return the path."""
    path.write_text(f"{key},field,value,unit,confidence,source\n{rows}", "utf-8")
    return path


@contextmanager
def registrations_end() -> Iterator[None]:
    """Forget what is registered inside."""
    kept = {key: dict(files) for key, files in catalogue._MORE.items()}
    try:
        yield
    finally:
        catalogue._MORE.update(kept)
        for clear in catalogue._DEPENDENT:
            clear()
