"""The executed notebooks as HTML pages linked from the page of results, without data of the machine that ran them.

A page begins with the notebook's first figure and its caption. Code is folded, except in notebooks about code.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from heshare.paper.page import outputs
from heshare.paper.page.outputs import Output
from heshare.shared import files

FOLDER = "notebooks"
"""The folder of the pages, in the folder of the outputs."""
SHOWS_CODE = ("00_paper",)
_WIDGET = "application/vnd.jupyter.widget-view+json"
_TEMPORARY = re.compile(r"/\.\d\w*-[a-z0-9_]{8}(?![a-z0-9_])")
"""The runner's temporary folder, in the folder of the outputs."""
_PREVIEW = re.compile(r"^Preview\(path=.*?(\w+)\.png")
"""The text of a published picture in the outputs of a cell."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a notebook's page: `text` is HTML, and so are `outputs` except published figures."""

    is_code: bool
    text: str
    outputs: tuple[str | Output, ...]


@dataclass(frozen=True)
class NotebookPage:
    """The content of a notebook's page; `lead` is the first figure, if there is one."""

    name: str
    title: str
    lead: Output | None
    cells: Sequence[Cell]
    shows_code: bool


def write(folder: Path, copies: Path, made: Sequence[Output], render: Callable[[NotebookPage], str]) -> dict[str, str]:
    """Write a page for each executed notebook whose outputs are in `folder`, and remove the pages of others.

    Args:
        folder: the folder of the outputs.
        copies: the folder of the executed notebooks, by profile.
        made: the outputs in `folder`.
        render: returns the HTML of a page.

    Returns:
        The pages by notebook, relative to `folder`.
    """
    by_name = {output.name: output for output in made}
    profiles = {output.notebook: output.profile for output in made}
    pages = {}

    for name, profile in sorted(profiles.items()):
        text = _readable(copies / profile / f"{name}.ipynb", folder)
        if text is None:
            continue
        cells = json.loads(text)["cells"]
        lead = next((each for each in made if each.notebook == name and each.picture), None)
        page = NotebookPage(
            name=name,
            title=outputs.title(cells) or name,
            lead=lead,
            cells=list(_shown(cells, by_name)),
            shows_code=name in SHOWS_CODE,
        )
        pages[name] = f"{FOLDER}/{name}.html"
        files.write_text(folder / pages[name], render(page))

    for old in (folder / FOLDER).glob("*.html"):
        if f"{FOLDER}/{old.name}" not in pages.values():
            old.unlink()
    return pages


def style_of_code() -> str:
    """Return the CSS of highlighted code, for light and for dark pages."""
    light = HtmlFormatter(style="xcode", nobackground=True).get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark", nobackground=True).get_style_defs(".highlight")
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _readable(path: Path, folder: Path) -> str | None:
    """Return a notebook's text without folders of the machine; None if there is none, or its outputs are elsewhere."""
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    about = json.loads(text)["metadata"].get("papermill", {})
    out = str(about.get("parameters", {}).get("out_dir", ""))
    if not out or Path(out).parent != folder:
        return None

    text = _TEMPORARY.sub("", text).replace(str(folder), "figures")
    for place in dict.fromkeys(map(str, (files.workplace(), files.PACKAGE.parent))):
        text = text.replace(f"{place}/", "").replace(place, ".")
    return text.replace(sys.prefix, "python").replace(str(Path.home()), "~")


def _shown(cells: Sequence[Mapping[str, Any]], made: Mapping[str, Output]) -> Iterator[Cell]:
    """Yield the cells for the page; without the title and empty cells."""
    for cell in cells:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            source = re.sub(r"\A# .*\n?", "", source)
            # Links are relative to the folder of the notebooks; the pages are one folder deeper.
            text = str(mistune.html(source)).replace('href="../', 'href="../../')
            yield Cell(False, text, ())
        elif source:
            # Content that may be wider than the page is focusable, so that the keyboard can scroll it.
            text = highlight(source, PythonLexer(), HtmlFormatter()).replace("<pre>", '<pre tabindex="0">')
            outputs = [_result(output, made) for output in cell["outputs"] if _is_shown(output)]
            yield Cell(True, text, tuple(filter(None, outputs)))


def _is_shown(output: Mapping[str, Any]) -> bool:
    """Return whether an output is shown: no progress bars, no widgets."""
    return output.get("name") != "stderr" and _WIDGET not in output.get("data", {})


def _result(output: Mapping[str, Any], made: Mapping[str, Output]) -> str | Output:
    """Return an output of a cell as HTML, or the published figure that it shows."""
    data = {kind: "".join(value) for kind, value in output.get("data", {}).items() if isinstance(value, str | list)}
    plain = data.get("text/plain", "".join(output.get("text", "")))
    named = _PREVIEW.match(plain)

    if named and named[1] in made and made[named[1]].picture:
        return made[named[1]]
    if "text/html" in data:
        table = re.sub(r"<style scoped.*?</style>", "", data["text/html"], flags=re.DOTALL)
        return f'<div class="scroll" tabindex="0">{table}</div>'
    if "image/svg+xml" in data:
        return data["image/svg+xml"]
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{data["image/png"].strip()}" alt="A plot of this cell">'
    return f'<pre tabindex="0">{escape(_ANSI.sub("", plain))}</pre>' if plain else ""
