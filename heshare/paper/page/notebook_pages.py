"""The executed notebooks as HTML pages behind the page of results, without anything of the machine that ran them.

A page begins with the notebook's first figure and its caption, and code is folded.
"""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader

from heshare.paper.figures.style import png_size
from heshare.paper.report.published_outputs import PublishedOutput
from heshare.shared import files
from heshare.shared.extras import without_uri_grammars

FOLDER = "notebooks"
"""The folder of the pages, in the folder of the outputs."""
_WIDGET = "application/vnd.jupyter.widget-view+json"
_TEMPORARY = re.compile(r"/\.\d\w*-[a-z0-9_]{8}(?![a-z0-9_])")
"""The runner's temporary folder, in the folder of the outputs."""


def write(folder: Path, copies: Path, outputs: Sequence[PublishedOutput], render: Any) -> dict[str, str]:
    """Write a page for each executed notebook in `copies` whose outputs went into `folder`; remove the others.

    `outputs` are those in `folder`; `render` takes `name`, `title`, `lead` (the first figure, or None), `body` and
    `highlighting`, and returns the page. The pages are returned by notebook, relative to `folder`.
    """
    pictures = {files.sha256(path): path.name for path in sorted(folder.glob("*.png"))}
    formatters: Any = import_module("pygments.formatters")
    highlighting = str(formatters.HtmlFormatter(style="xcode", nobackground=True).get_style_defs(".highlight"))
    pages = {}
    for path in sorted(copies.glob("*.ipynb")):
        text = _readable(path, folder)
        if text is None:
            continue
        title, body = _body(text, pictures)
        target = folder / FOLDER / f"{path.stem}.html"
        lead = next((each for each in outputs if each.notebook == path.stem and each.picture), None)
        text = render(name=path.stem, title=title, lead=lead, body=body, highlighting=highlighting)
        files.write_text(target, text)
        pages[path.stem] = f"{FOLDER}/{target.name}"
    for old in (folder / FOLDER).glob("*.html"):
        if f"{FOLDER}/{old.name}" not in pages.values():
            old.unlink()
    return pages


def _readable(path: Path, folder: Path) -> str | None:
    # Without folders of the machine; None if its outputs went elsewhere.
    text = path.read_text(encoding="utf-8")
    about = json.loads(text)["metadata"].get("papermill", {})
    out = str(about.get("parameters", {}).get("out_dir", ""))
    if not out or Path(out).parent != folder:
        return None
    text = _TEMPORARY.sub("", text).replace(str(folder), "figures")
    for place in dict.fromkeys(map(str, (files.root(), files.PACKAGE.parent))):
        text = text.replace(f"{place}/", "").replace(place, ".")
    return text.replace(sys.prefix, "python").replace(str(Path.home()), "~")


def _body(text: str, pictures: Mapping[str, str]) -> tuple[str, str]:
    with without_uri_grammars():
        nbformat: Any = import_module("nbformat")
    book = nbformat.reads(text, as_version=4)
    book.metadata = {key: book.metadata[key] for key in ("kernelspec", "language_info") if key in book.metadata}
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(_referenced(each, pictures)) for each in cell.outputs if _kept(each)]
    title = next((cell.source.splitlines()[0].lstrip("# ") for cell in book.cells if cell.cell_type == "markdown"), "")
    body, _ = _exporter().from_notebook_node(book)
    return title, _lowered(body)


@cache
def _exporter() -> Any:
    with without_uri_grammars():
        nbconvert: Any = import_module("nbconvert")
    return nbconvert.HTMLExporter(
        template_name="basic",
        template_file="folded.html.j2",
        extra_loaders=[FileSystemLoader(Path(__file__).parent / "templates")],
        exclude_anchor_links=True,
    )


def _kept(output: Mapping[str, Any]) -> bool:
    # No text bars, no widgets.
    return output.get("name") != "stderr" and _WIDGET not in output.get("data", {})


def _referenced(output: dict[str, Any], pictures: Mapping[str, str]) -> dict[str, Any]:
    # A published picture is shown by reference instead of its bytes.
    png = output.get("data", {}).get("image/png")
    name = pictures.get(hashlib.sha256(base64.b64decode(png)).hexdigest()) if png else None
    if name is None:
        return output
    width, height = png_size(base64.b64decode(png))
    alt = f"{name.removesuffix('.png')}: its caption is on the page of results"
    html = f'<img src="../{name}" alt="{alt}" width="{width}" height="{height}" loading="lazy">'
    return {**output, "data": {"text/html": html}}


def _lowered(body: str) -> str:
    # Without ids and the title, which stands above the first figure; with a stop for the keyboard at what may scroll.
    body = re.sub(r"<h1.*?</h1>", "", re.sub(r' id="cell-id=[^"]*"', "", body), count=1, flags=re.DOTALL)
    body = body.replace('<div class="highlight hl-ipython3">', '<div class="highlight">')
    body = re.sub(r'<(pre|div class="output_html[^"]*")>', r'<\1 tabindex="0">', body)
    return re.sub(r"<style scoped.*?</style>", "", body, flags=re.DOTALL)
