"""The pages of results, for a browser, offline: `index.html` on the paper, `beyond.html` on what it does not have."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator

from heshare.paper.claims import claim_table, claims_figure, claims_page
from heshare.paper.claims.sources import look_up
from heshare.paper.notebooks.output_folders import PAGE
from heshare.paper.report import claim_rows, fig6_plans, notebook_pages, published_outputs, strips
from heshare.paper.report.claim_rows import ClaimRow
from heshare.paper.report.published_outputs import NotebookFamily, PublishedOutput
from heshare.paper.texts import render
from heshare.scheduling.settings import LITERAL
from heshare.shared import files
from heshare.shared.errors import InputError, require
from heshare.shared.extras import require_extra
from heshare.shared.yaml_nodes import read_values

BEYOND = "beyond.html"
_TEMPLATES = Path(__file__).resolve().parent / "templates"
_ROBUSTNESS = ("12_sensitivity",)
_SURENESS = ("03_platform", "04_prediction", "13_recorded", "90_live")
_HEADINGS = {"claims": "Behind the claims"}
_MOST_ROWS = 100
"""Longer tables of what the paper does not have are linked, not shown."""


@dataclass(frozen=True, slots=True)
class PaperOutput:
    """A figure or table of the paper on the page: its sentences, each with the claims that test it, and our output."""

    key: str
    number: str
    title: str
    sentences: tuple[tuple[str, tuple[ClaimRow, ...]], ...]
    differs: str
    output: PublishedOutput | None


def write(folder: Path, copies: Path | None = None) -> Path:
    """Write the pages of the outputs in `folder` and of the notebooks behind them; return the path of the first.

    `folder` has the outputs and `claims.csv`, `copies` the executed notebooks (by default of the outputs' profile).

    Raises:
        InputError: there is no `claims.csv`, or nbconvert is not installed.
    """
    folder = folder.resolve()
    require_extra("notebooks", "the page of results")
    environment = _environment()
    table = _claims(folder)
    outputs = published_outputs.read(folder)
    reported = claim_table.reported_profile(folder)
    profile = "paper" if reported == claim_table.NONE_RUN else reported
    copies = copies or claim_table.executed_copies(folder)
    notebook = environment.get_template("notebook.html.j2")
    pages = notebook_pages.write(folder, copies, outputs, lambda **values: notebook.render(**values) + "\n")
    known = [output for output in outputs if output.key == "fig06" and "tasks" in output.about["parameters"]]
    explorer = fig6_plans.write(folder, known[0]) if known else ""
    content = _content(folder, table, outputs, profile) | {"pages": pages, "explorer": explorer}
    for name in (BEYOND, PAGE):
        homes = {output.key: f"{BEYOND if output.name.startswith('x') else PAGE}#{output.key}" for output in outputs}
        links = {key: home.removeprefix(name) for key, home in homes.items()}
        environment.filters["linked"] = _linked(content["numbers"], links)
        page = environment.get_template(f"{name}.j2").render(links=links, **content)
        written = files.write_text(folder / name, page + "\n")
    return written


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    found.filters["linked"] = escape  # each page has its own
    found.filters["slug"] = lambda group: f"group-{group.replace(' ', '-')}"
    found.filters["verdict_class"] = lambda verdict: f"v-{verdict.replace(' ', '-')}"
    found.filters["claim_number"] = claims_page.number
    found.filters["heading"] = lambda group: _HEADINGS.get(group, f"{group[:1].upper()}{group[1:]}")
    found.globals["ticks"] = lambda values: list(MaxNLocator(4).tick_values(min(values), max(values)))
    for name in ("style.css", "script.js"):
        found.globals[name.partition(".")[0]] = (_TEMPLATES / name).read_text(encoding="utf-8")
    return found


def _linked(numbers: Mapping[str, str], links: Mapping[str, str]) -> Callable[[str], Markup]:
    """Return a filter that escapes a text, links the outputs that it names, and sets what stands in backquotes as code.

    `numbers` has what each output is called, `links` where it is, by its key.
    """
    called = {number: key for key, number in numbers.items()}
    names = "|".join(re.escape(number) for number in sorted(called, key=len, reverse=True))
    pattern = re.compile(rf"`([^`]+)`|({names or '(?!)'})(?![\w.])|\b(x\d\d[a-z])(?:_\w+)?\b")

    def link(found: re.Match[str]) -> str:
        code, number, key = found.groups()
        if code:
            return f"<code>{code}</code>"
        target = called[number] if number else key
        return f'<a href="{links[target]}">{found[0]}</a>' if target in links else found[0]

    return lambda text: Markup(pattern.sub(link, str(escape(text))))


def _claims(folder: Path) -> pd.DataFrame:
    path = folder / "claims.csv"
    if not path.is_file():
        raise InputError("no such file", "the table of claims", f"Run: heshare claims --out {folder.name}", file=path)
    return pd.read_csv(path, keep_default_na=True).astype({"n": "Int64"})


def _content(folder: Path, table: pd.DataFrame, outputs: list[PublishedOutput], profile: str) -> dict[str, Any]:
    measured = sum(int(output.about["provenance"].get("measured", 0)) for output in outputs)
    rows = claim_rows.rows(table, folder)
    families = {family.notebook: family for family in published_outputs.families(outputs)}
    beyond: dict[str, list[NotebookFamily]] = {}
    for name, family in families.items():
        if name not in (*_ROBUSTNESS, *_SURENESS):
            beyond.setdefault(family.group or "other notebooks", []).append(family)
    paper = _paper_outputs(outputs, rows)
    return {
        "claims": rows,
        "counts": claim_rows.counts(table["verdict"]),
        "own_counts": claim_rows.counts(pd.Series([row.found["verdict"] for row in rows if row.claim.is_own])),
        "own": [row for row in rows if row.claim.is_own],
        "wheres": list(dict.fromkeys(row.claim.where for row in rows)),
        "common": claims_page.common(),
        "overview": claims_figure.NAME if (folder / f"{claims_figure.NAME}.png").is_file() else "",
        "summary": summary(folder),
        "strips": strips.strips(folder),
        "sizes": strips.sizes(folder),
        "by_size": strips.by_size(folder),
        "objections": objections(folder, table, measured),
        "measured": measured,
        "profile": profile,
        "left_out": claim_table.left_out(folder),
        "figures": [each for each in paper if each.key.startswith("fig")],
        "tables": [each for each in paper if each.key.startswith("table")],
        "robustness": [families[name] for name in _ROBUSTNESS if name in families],
        "sureness": [families[name] for name in _SURENESS if name in families],
        "beyond": beyond,
        "shown": _shown_tables(folder, outputs),
        "numbers": {output.key: output.number for output in outputs},
        "provenance": _provenance(outputs),
    }


def _paper_outputs(outputs: Sequence[PublishedOutput], rows: Sequence[ClaimRow]) -> list[PaperOutput]:
    words = read_values(_TEMPLATES / "paper_words.yaml", "the paper's sentences", "Correct the file.")
    made = {output.key: output for output in outputs}
    found = []
    for key, about in words.items():
        tested = [tuple(row for row in rows if row.claim.id in each["claims"]) for each in about["sentences"]]
        sentences = tuple(zip((each["text"] for each in about["sentences"]), tested, strict=True))
        number = published_outputs.paper_number(key)
        found.append(PaperOutput(key, number, about["title"], sentences, about["differs"], made.get(key)))
    return found


def _shown_tables(folder: Path, outputs: Sequence[PublishedOutput]) -> dict[str, published_outputs.PageTable]:
    read = published_outputs.read_table
    found = {output.name: read(folder / f"{output.name}.md") for output in outputs if output.has("md")}
    return {name: table for name, table in found.items() if len(table.rows) <= _MOST_ROWS or name.startswith("table")}


def _provenance(outputs: Sequence[PublishedOutput]) -> dict[str, Any]:
    inputs: dict[str, set[str]] = {}
    for output in outputs:
        for path, sha in output.about["input_files"].items():
            inputs.setdefault(path, set()).add(sha)
    every = [output.about for output in outputs]
    changed = [about["heshare_sha256"] for about in every]
    return {
        "commits": _count(str(about["git_commit"] or "not in git") for about in every),
        "profiles": _count(output.profile or "none" for output in outputs),
        "packages": _count(f"changed, SHA-256 {sha}" if sha else "as in the commit" for sha in changed),
        "platforms": _count(str(about["platform"]) for about in every),
        "versions": _count(", ".join(f"{name} {its}" for name, its in about["versions"].items()) for about in every),
        "inputs": {path: sorted(shas) for path, shas in sorted(inputs.items())},
    }


def _count(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda pair: (-pair[1], pair[0])))


@dataclass(frozen=True, slots=True)
class Objection:
    """An objection, or a sentence of the summary: a few words, the text, and the keys of the outputs that show it."""

    title: str
    text: str
    evidence: tuple[str, ...]


def summary(folder: Path) -> list[Objection]:
    """Return what HeShare is worth, what of it is sharing, and which choices decide."""
    value = partial(look_up, folder)
    sentence = partial(render, "summary")
    return _those_with_numbers(
        ("What HeShare is worth", ("fig06", "x05c"), lambda: sentence("worth", value=value)),
        ("What of it is sharing", ("x05d",), lambda: sentence("sharing", value=value)),
        ("Which choices decide", ("x24a", "x24b"), lambda: sentence("decides", axes=_axes(folder))),
    )


def objections(folder: Path, table: pd.DataFrame, measured: int) -> list[Objection]:
    """Return the objections, strongest first; those whose numbers are not in `folder` are left out."""
    kinds, value = table["provenance"].value_counts(), partial(look_up, folder)
    about = {"emulated": int(kinds.get("emulated", 0)), "evaluated": int(kinds.sum()), "measured": measured}
    words = partial(render, "objections")
    return _those_with_numbers(
        ("Sharing is worth little", ("x05d", "x07a"), lambda: words("sharing", value=value)),
        ("The inference batch size decides", ("x24a", "x24b"), lambda: words("batch_size", axes=_axes(folder))),
        ("The rivals are placed at random", ("x05c", "x05d"), lambda: words("rivals", value=value)),
        ("A simple baseline comes close", ("fig06", "x05c"), lambda: words("simple", value=value)),
        ("The GPUs are emulated", ("x03a",), lambda: words("emulated", **about)),
        ("HeShare is not as in the text", ("x07a",), lambda: words("literal", value=value, settings=len(LITERAL))),
        ("The operators add little", ("x07a", "fig07"), lambda: words("search", value=value)),
        ("The predictor knows the device", ("table5", "x04b"), lambda: words("predictor", value=value)),
        ("All tasks are there at the start", ("x20a",), lambda: words("online", value=value)),
    )


def _axes(folder: Path) -> list[tuple[str, int, int]]:
    found = strips.deciding(folder)
    require("x24b_choices.csv", "no rows", bool(found), "claims by choice", "Run notebook 24.")
    return found


def _those_with_numbers(*made: tuple[str, tuple[str, ...], Callable[[], str]]) -> list[Objection]:
    found = []
    for title, evidence, text in made:
        with suppress(InputError, OSError):
            found.append(Objection(title, text(), evidence))
    return found
