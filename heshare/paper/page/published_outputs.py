"""The figures and tables in a folder of outputs, as their JSON files describe them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from heshare.paper.figures.style import png_size
from heshare.shared import files

_NAME = re.compile(r"(fig|table|x)(\d+)([a-z]*)_\w+")
_MEDIA_BOX = re.compile(rb"/MediaBox \[\s*([-\d.]+) ([-\d.]+) ([-\d.]+) ([-\d.]+)\s*\]")
ROMAN = ("I", "II", "III", "IV", "V")
"""The numbers of the paper's tables."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The preview of a figure: its file, width and height without the caption below it, px."""

    file: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class PublishedOutput:
    """One figure, table or data file of a notebook, such as `fig06_comparison`, with those of its files that are there.

    `notebook` has no folder and suffix; it is empty for the claims. `about` is the JSON file's content.
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
        """The number of the output, its anchor on the page: `fig06`, `table5`, `x05c`."""
        return self.name.split("_")[0]

    @property
    def number(self) -> str:
        """What the text calls it: `Fig. 6`, `Table V`, `Fig. x12a`, `Table x05c`, `Data x05a`."""
        if not self.name.startswith("x"):
            return paper_number(self.key)
        word = "Fig." if self.picture else "Table" if self.has("md") else "Data"
        return f"{word} {self.key}"

    @property
    def finding(self) -> str:
        """The first sentence of the caption, which says what one sees."""
        return re.split(r"(?<=[a-z0-9%)\]'])\.\s+(?=[A-Z])", self.caption, maxsplit=1)[0].rstrip(".") + "."

    @property
    def rest(self) -> str:
        return self.caption[len(self.finding) :].strip()

    def has(self, suffix: str) -> bool:
        return f"{self.name}.{suffix}" in self.files

    @property
    def command(self) -> str:
        return f".venv/bin/heshare {f'notebook run {self.notebook[:2]}' if self.notebook else 'claims'}"


def paper_number(key: str) -> str:
    """Return what the paper calls a figure or table: `Fig. 6` of `fig06`, `Table V` of `table5`."""
    return f"Fig. {int(key[3:])}" if key.startswith("fig") else f"Table {ROMAN[int(key[5:]) - 1]}"


def read(folder: Path) -> list[PublishedOutput]:
    """Return the outputs in `folder`: figures, then tables, by number, then those that the paper does not have."""
    found = [(name, path) for path in sorted(folder.glob("*.json")) if (name := _NAME.fullmatch(path.stem))]
    return [_read(folder, path) for _, path in sorted(found, key=lambda each: ("fig", "table", "x").index(each[0][1]))]


def _read(folder: Path, path: Path) -> PublishedOutput:
    about = json.loads(path.read_text(encoding="utf-8"))
    names = tuple(name for name in about["files"] if (folder / name).is_file())
    notebook = Path(about["notebook"]).stem if about.get("notebook") else ""
    profile = str(about.get("profile") or "")
    return PublishedOutput(path.stem, about["caption"], names, notebook, profile, picture(folder, path.stem), about)


def picture(folder: Path, name: str) -> Picture | None:
    """Return a figure's preview, None if there is none."""
    # Its height without the caption is that of the PDF of the same figure, which has none and the same width.
    preview, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    if not preview.is_file():
        return None
    width, height = png_size(preview.read_bytes())
    boxes = _MEDIA_BOX.findall(pdf.read_bytes()) if pdf.is_file() else []
    if boxes:
        left, bottom, right, top = map(float, boxes[-1])
        height = min(height, round(width * (top - bottom) / (right - left)))
    return Picture(f"{name}.png", width, height)


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table as text: heads, rows, and which columns are numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


def read_table(path: Path) -> PageTable:
    """Return the first table of a Markdown file that `heshare.paper.tables` wrote, with aligned columns."""
    heads, rule, *rows = (line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|"))
    # Cells are found by their places, because a head may have a bar in its words.
    spans = list(pairwise(place for place, letter in enumerate(rule) if letter == "|"))

    def cells(line: str) -> tuple[str, ...]:
        return tuple(line[start + 1 : end].strip().replace("\\|", "|") for start, end in spans)

    return PageTable(cells(heads), tuple(map(cells, rows)), tuple(rule[end - 1] == ":" for _, end in spans))


@dataclass(frozen=True, slots=True)
class NotebookFamily:
    """The outputs of one notebook that the paper does not have."""

    notebook: str
    group: str
    shows: str
    outputs: tuple[PublishedOutput, ...]


def families(outputs: Sequence[PublishedOutput]) -> list[NotebookFamily]:
    """Return the outputs that the paper does not have by notebook, in the groups and the order of figures/README.md."""
    known = described()
    mine: dict[str, list[PublishedOutput]] = {}
    for output in outputs:
        if output.name.startswith("x"):
            mine.setdefault(output.notebook, []).append(output)
    order = [*known, *sorted(set(mine) - set(known))]
    return [NotebookFamily(name, *known.get(name, ("", name)), tuple(mine[name])) for name in order if name in mine]


def described() -> dict[str, tuple[str, str]]:
    """Return group and description of each notebook, from the table in the checkout's figures/README.md."""
    path = files.root() / "figures" / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    rows = re.findall(r"^\| ([^|]+) \| `(\d\w+)` \| ([^|]+) \|$", text, flags=re.MULTILINE)
    return {notebook: (group, shows) for group, notebook, shows in rows}
