"""The pages of results, for a browser, offline: `index.html` on the paper, `beyond.html` on other results."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from heshare.paper.claims import claim_table
from heshare.paper.notebooks.output_folders import PAGE
from heshare.paper.page import claim_rows, fig6_plans, first_screen, notebook_pages, outputs
from heshare.paper.page.claim_rows import ClaimRow
from heshare.paper.page.outputs import NotebookSource, Output
from heshare.shared import files
from heshare.shared.extras import require_extra
from heshare.shared.yaml_nodes import read_values

BEYOND = "beyond.html"
SHOWN = (
    "x01c_records", "x04b_plane", "x07d_parts", "x07f_ablation", "x07h_front", "x08a_factorial", "x08c_one_at_a_time",
    "x08d_worth", "x09j_overview", "x10a_together",
)  # fmt: skip
"""The figures of what the paper does not have that `beyond.html` shows; of others it has one line each."""
_TEMPLATES = Path(__file__).resolve().parent / "templates"
_EIGHT = ("H1_energy", "H1_jct", "H2_energy", "H2_jct", "H3_Random", "H3_JCT-opt", "H4_Random", "H4_En-opt")
_AXES = {
    "durations": "task sizes",
    "queueing": "Random's queues",
    "throttle": "the baselines' limits",
    "t4_over_a100": "T4 over A100",
    "batch_sizes": "inference batch size",
}
"""The axes of the factorial in words."""


@dataclass(frozen=True, slots=True)
class PaperOutput:
    """A figure or table of the paper on the page: its sentences, each with the claims that test it, and the output."""

    key: str
    number: str
    title: str
    sentences: tuple[tuple[str, tuple[ClaimRow, ...]], ...]
    here: str
    output: Output | None

    @property
    def is_narrow(self) -> bool:
        """Whether it is a figure of a column's width."""
        picture = self.output.picture if self.output else None
        return picture is not None and not picture.is_wide


@dataclass(frozen=True, slots=True)
class Book:
    """A notebook on `beyond.html`: its outputs without a counterpart in the paper, and the names of missing ones."""

    name: str
    title: str
    command: str
    outputs: tuple[Output, ...]
    missing: tuple[str, ...]


def write(folder: Path, table: pd.DataFrame, copies: Path | None = None) -> Path:
    """Write the pages of the outputs in `folder` and of their notebooks; return the path of the first.

    Args:
        folder: the folder of the outputs.
        table: the claims, as from `claim_table.write`.
        copies: the folder of the executed notebooks by profile; that of the runner unless given.

    Raises:
        InputError: a library of the extra `notebooks` is missing.
    """
    require_extra("notebooks", "the page of results")
    folder = folder.resolve()
    copies = copies or files.workplace() / "build" / "notebooks"
    made = outputs.read(folder)
    templates = environment(folder)

    notebook = templates.get_template("notebook.html.j2")
    pages = notebook_pages.write(folder, copies, made, lambda page: notebook.render(vars(page)) + "\n")
    content = _content(folder, table, made) | {"pages": pages, "explorer": fig6_plans.write(folder)}

    for name in (BEYOND, PAGE):
        page = templates.get_template(f"{name}.j2").render(content)
        written = files.write_text(folder / name, page + "\n")
    return written


def environment(folder: Path, *, with_beyond: bool = True) -> Environment:
    """Return the templates of the pages of a folder; `with_beyond`: pages link to `beyond.html`."""
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    found.filters["verdict_class"] = lambda verdict: f"v-{verdict.replace(' ', '-')}"
    found.filters["table"] = lambda output: outputs.read_table(folder / f"{output.name}.md")
    found.filters["change"] = _change
    found.filters["with_code"] = lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
    found.filters["signed"] = lambda value: f"{_rounded(value):+g}".replace("-", "\N{MINUS SIGN}")
    found.filters["plain"] = lambda value: f"{_rounded(value):g}".replace("-", "\N{MINUS SIGN}")
    found.globals["with_beyond"] = with_beyond
    found.globals["style"] = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
    found.globals["script"] = (_TEMPLATES / "script.js").read_text(encoding="utf-8")
    found.globals["style_of_code"] = notebook_pages.style_of_code()
    return found


def _rounded(value: float) -> float:
    """Return a number of the first screen, rounded for a sentence."""
    return round(value) if abs(value) >= 10 else round(value, 1) + 0.0  # no minus zero


def _change(percent: float | None) -> str:
    """Return a change as text: `45 % less`."""
    if percent is None:
        return "an unknown amount of"
    return f"{abs(_rounded(percent)):g}\N{NO-BREAK SPACE}% {'more' if percent > 0 else 'less'}"


def _content(folder: Path, table: pd.DataFrame, made: Sequence[Output]) -> dict[str, Any]:
    """Return the values of the templates."""
    rows = claim_rows.rows(table)
    heshare_rows = [row for row in rows if row.claim.is_heshare]
    others = [row for row in rows if not row.claim.is_heshare]
    by_name = {row.claim.name.replace(" ", "_"): row for row in rows}
    eight = {name: by_name[name] for name in _EIGHT}
    of_paper = _of_paper(made, rows)

    return {
        "heshare_rows": heshare_rows,
        "heshare_counts": claim_rows.counts(heshare_rows),
        "others": others,
        "other_counts": claim_rows.counts(others),
        "failures": claim_rows.failures(heshare_rows),
        "sources": {output.name for output in made if output.has("csv")},
        "h": eight,
        "numbers": first_screen.numbers(folder),
        "recorded_page": first_screen.recorded_page(folder),
        "choices": first_screen.open_choices(folder),
        "older": claim_table.OLDER if (table["reason"] == claim_table.OLDER).any() else "",
        "axis_names": _AXES,
        "profile": claim_table.reported_profile(folder),
        "left_out": claim_table.left_out(folder),
        "figures": [each for each in of_paper if each.key.startswith("fig")],
        "tables": [each for each in of_paper if each.key.startswith("table")],
        "books": _books(made),
        "shown": SHOWN,
        "provenance": _provenance(made),
    }


def _of_paper(made: Sequence[Output], rows: Sequence[ClaimRow]) -> list[PaperOutput]:
    """Return the figures and tables of the paper, in its order, including missing ones."""
    words = read_values(_TEMPLATES / "paper_sentences.yaml", "the paper's sentences", "Correct the file.")
    there = {output.key: output for output in made}
    found = []

    for key, about in words.items():
        texts = [each["text"] for each in about["sentences"]]
        tested = [tuple(row for row in rows if row.claim.id in each["claims"]) for each in about["sentences"]]
        sentences = tuple(zip(texts, tested, strict=True))
        number = outputs.paper_number(key)
        found.append(PaperOutput(key, number, about["title"], sentences, about["here"], there.get(key)))
    return found


def _books(made: Sequence[Output]) -> list[Book]:
    """Return the notebooks with outputs, existing or declared, that have no counterpart in the paper."""
    known = outputs.notebooks()
    names = {source.name for source in known}
    others = sorted({output.notebook for output in made} - names)
    sources = [*known, *(NotebookSource(name, name, "", ()) for name in others)]
    books = []

    for source in sources:
        extra = tuple(each for each in made if each.notebook == source.name and each.name.startswith("x"))
        there = {output.name for output in made}
        missing = tuple(name for name in source.outputs if name.startswith("x") and name not in there)
        if extra or missing:
            books.append(Book(source.name, source.title, source.command, extra, missing))
    return books


def _provenance(made: Sequence[Output]) -> dict[str, dict[str, int]]:
    """Return the provenance of the outputs: for each kind of fact its values, and the number of outputs of each."""
    every = [output.about for output in made]
    changed = [about["heshare_sha256"] for about in every]
    versions = [", ".join(f"{name} {its}" for name, its in about["versions"].items()) for about in every]
    found = {
        "Commit": [str(about["git_commit"] or "not in git") for about in every],
        "Package": [f"changed, SHA-256 {sha}" if sha else "as in the commit" for sha in changed],
        "Data": [f"SHA-256 {about['data_sha256']}" for about in every],
        "Profile": [output.profile or "none" for output in made],
        "Versions": versions,
        "Platform": [str(about["platform"]) for about in every],
    }
    return {name: dict(Counter(values).most_common()) for name, values in found.items()}
