"""The figures and tables in a folder of outputs, as described by their JSON files, and their notebooks."""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from heshare.paper.notebooks import parameters
from heshare.paper.studies import sources
from heshare.paper.studies.sources import Source

_NAME = re.compile(r"(fig|table|x)\d+[a-z]*_\w+")
_MEDIA_BOX = re.compile(rb"/MediaBox \[\s*([-\d.]+) ([-\d.]+) ([-\d.]+) ([-\d.]+)\s*\]")
_FIRST_SENTENCE = re.compile(r".*?[a-z0-9%)\]']\.(?=\s+[A-Z])")
_WIDEST_COLUMN = 1200
"""The most pixels of a figure of a column's width."""
_ROMAN = ("I", "II", "III", "IV", "V")
COMMANDS: Mapping[str, str] = {"paper": "make figures", "beyond": "make beyond"}
"""The command that runs the notebooks of a group."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The PNG of a figure: its file, width and height without the caption below the axes, px."""

    file: str
    width: int
    height: int

    @property
    def is_wide(self) -> bool:
        """Whether it has the width of a page, not of a column."""
        return self.width > _WIDEST_COLUMN


@dataclass(frozen=True, slots=True)
class Output:
    """One figure, table or data file of a notebook, such as `fig06_comparison`, with those of its files that exist.

    `notebook` has no folder and suffix. `about` is the JSON file's content.
    """

    name: str
    caption: str
    files: tuple[str, ...]
    notebook: str
    profile: str
    picture: Picture | None
    about: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The number of the output and its anchor on the page: `fig06`, `table5`, `x04a`."""
        return key_of(self.name)

    @property
    def number(self) -> str:
        """Its name in captions: `Fig. 6`, `Table V`, `Fig. x04b`, `Table x01a`, `Data x04c`."""
        if not self.name.startswith("x"):
            return paper_number(self.key)
        word = "Fig." if self.picture else "Table" if self.has("md") else "Data"
        return f"{word} {self.key}"

    @property
    def finding(self) -> str:
        """The first sentence of the caption, the finding."""
        found = _FIRST_SENTENCE.match(self.caption)
        return found[0] if found else self.caption

    @property
    def setting(self) -> str:
        """The rest of the caption: setting, intervals, seeds, provenance."""
        return self.caption[len(self.finding) :].strip()

    def has(self, suffix: str) -> bool:
        return f"{self.name}.{suffix}" in self.files


def key_of(name: str) -> str:
    return name.partition("_")[0]


def paper_number(key: str) -> str:
    """Return the paper's name of a figure or table: `Fig. 6` of `fig06`, `Table V` of `table5`."""
    return f"Fig. {int(key[3:])}" if key.startswith("fig") else f"Table {_ROMAN[int(key[5:]) - 1]}"


def read(folder: Path) -> list[Output]:
    """Return the outputs in `folder` by name: figures, then tables, then those without a counterpart in the paper."""
    paths = sorted(path for path in folder.glob("*.json") if _NAME.fullmatch(path.stem))
    return [_read(folder, path) for path in paths]


def source_of(folder: Path) -> Source:
    """Return the source of the outputs in a folder; the default one where there are none."""
    texts = [str(output.about["parameters"].get("source", "")) for output in read(folder)]
    return sources.read(next(filter(None, texts), sources.EMULATED))


def _read(folder: Path, path: Path) -> Output:
    about = json.loads(path.read_text(encoding="utf-8"))
    there = tuple(name for name in about["files"] if (folder / name).is_file())
    notebook = Path(about["notebook"] or "").stem
    picture = _picture(folder, path.stem)
    return Output(path.stem, about["caption"], there, notebook, str(about["profile"] or ""), picture, about)


def _picture(folder: Path, name: str) -> Picture | None:
    """Return a figure's PNG; None if there is none."""
    path = folder / f"{name}.png"
    pdf = folder / f"{name}.pdf"
    if not path.is_file():
        return None

    with path.open("rb") as stream:
        width, height = struct.unpack(">II", stream.read(24)[16:])

    # The PDF of the same figure has no caption, and the same width: the page shows the PNG down to its height.
    boxes = _MEDIA_BOX.findall(pdf.read_bytes()) if pdf.is_file() else []
    if boxes:
        left, bottom, right, top = map(float, boxes[-1])
        height = min(height, round(width * (top - bottom) / (right - left)))
    return Picture(path.name, width, height)


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table as text: heads, rows, and which columns are numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


def read_table(path: Path) -> PageTable:
    """Return the first table of a Markdown file that `heshare.paper.tables` wrote, with aligned columns."""
    heads, rule, *rows = (line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|"))
    # Cells are found by their columns, because a heading may contain a bar.
    spans = list(pairwise(place for place, letter in enumerate(rule) if letter == "|"))

    def cells(line: str) -> tuple[str, ...]:
        return tuple(line[start + 1 : end].strip().replace("\\|", "|") for start, end in spans)

    return PageTable(cells(heads), tuple(map(cells, rows)), tuple(rule[end - 1] == ":" for _, end in spans))


@dataclass(frozen=True, slots=True)
class NotebookSource:
    """A notebook of the checkout: its name and title, the command that runs its group, its declared outputs."""

    name: str
    title: str
    command: str
    outputs: tuple[str, ...]


def notebooks() -> list[NotebookSource]:
    """Return the notebooks of the groups, those of the paper first, by name."""
    found = []
    for group in parameters.GROUPS:
        paths = [parameters.folder() / f"{name}.ipynb" for name in sorted(parameters.group(group))]
        for path in filter(Path.is_file, paths):
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            declared = parameters.read(path).outputs
            found.append(NotebookSource(path.stem, title(cells) or path.stem, COMMANDS[group], declared))
    return found


def title(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return the first heading of a notebook's cells; empty if there is none."""
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return next((text.splitlines()[0].lstrip("# ") for text in texts if text.startswith("#")), "")
