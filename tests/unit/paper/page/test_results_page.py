"""The pages of results without a browser: the same bytes, every claim once, links that exist, no path of a machine."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from support.made_up_outputs import NOTEBOOK, write_outputs

from heshare.paper.claims import claim_table
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.page import first_screen, results_page
from heshare.paper.page.claim_rows import WIDTH, ClaimRow, failures, rows
from heshare.shared import files
from heshare.shared.yaml_nodes import read_values

PAGES = ("index.html", "beyond.html", f"notebooks/{NOTEBOOK}.html")


class Parsed(HTMLParser):
    """Ids and targets of links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.ids += [str(known["id"])] if "id" in known else []
        self.links += [str(known[name]) for name in ("href", "src") if known.get(name)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "figures"
    copies = write_outputs(folder)
    results_page.write(folder, claim_table.write(folder), copies)
    return folder


@pytest.fixture(scope="module")
def index(folder: Path) -> str:
    return (folder / "index.html").read_text("utf-8")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of a folder in which nothing has been made."""
    folder = tmp_path_factory.mktemp("empty") / "figures"
    folder.mkdir()
    results_page.write(folder, claim_table.write(folder), folder)
    return folder


def test_the_same_outputs_give_the_same_bytes(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.html")}
    results_page.write(folder, claim_table.write(folder), folder.parent / "copies")
    assert {path: path.read_bytes() for path in folder.rglob("*.html")} == before


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(folder: Path, name: str) -> None:
    page = folder / name
    parsed = Parsed(page.read_text("utf-8"))
    assert [id for id, count in Counter(parsed.ids).items() if count > 1] == []
    for link in parsed.links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert link.startswith("data:") or target.exists(), link
        assert not anchor or anchor in Parsed(target.read_text("utf-8")).ids, link


@pytest.mark.parametrize("name", PAGES)
def test_no_network_and_no_path_of_this_machine(folder: Path, name: str) -> None:
    text = (folder / name).read_text("utf-8")
    assert not re.search(r"(https?:)?//[a-z]", re.sub(r"(?m)^\s*//.*$", "", text))
    for machine in (str(folder), str(files.root()), str(Path.home()), "ab12cd_3"):
        assert machine not in text


def test_every_claim_is_on_one_of_the_pages_whether_made_or_not(folder: Path, empty: Path) -> None:
    for made in (folder, empty):
        table = claim_table.merge(made)
        found = []
        for name in ("index.html", "beyond.html"):
            found += re.findall(r'<tr id="([^"]+)" class="[^"]+" data-verdict', (made / name).read_text("utf-8"))
        assert sorted(found) == sorted(row.anchor for row in rows(table))


def test_what_is_not_made_has_its_command(empty: Path) -> None:
    index, beyond = ((empty / name).read_text("utf-8") for name in ("index.html", "beyond.html"))
    own = sum(claim.is_own for claim in paper_claims().values())
    assert index.count('<td class="here"><code>make figures</code></td>') == own
    assert beyond.count('<td class="here"><code>make beyond</code></td>') == len(paper_claims()) - own
    assert index.count('<p class="warning"><span class="not-made">not made yet: <code>make figures') == len(_words())
    assert "x07d_parts" in beyond


def test_figures_come_before_claims_and_fig_6_first(index: str) -> None:
    sections = re.findall(r'<section id="([^"]+)"', index)
    assert sections == ["summary", "figures", "tables", "claims", "not-reproduced", "provenance"]
    assert re.findall(r'<article class="of-paper[^"]*" id="([^"]+)"', index)[0] == "fig06"


def test_numbers_of_the_first_screen_are_of_the_run(folder: Path) -> None:
    found = first_screen.numbers(folder)
    assert set(found) == {*first_screen.CELLS, *first_screen.RANGES}
    assert not any(number.committed for number in found.values())
    assert not first_screen.Number(0.3, -1.0, 0.8, "x", committed=False).is_certain

    choices = first_screen.open_choices(folder)
    assert choices is not None
    assert (choices.settings, choices.shipped, choices.best) == (2, 1, 6)
    assert list(choices.points.values()) == sorted(choices.points.values(), reverse=True)


def test_without_a_run_numbers_are_the_committed_ones(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (folder / "x07g_bound.csv").read_bytes()
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "x07g_bound.csv.gz").write_bytes(gzip.compress(text))
    monkeypatch.setattr(files, "root", lambda: tmp_path)

    found = first_screen.numbers(tmp_path)
    assert set(found) == {"bound", "missed"}
    assert all(number.committed for number in found.values())
    assert first_screen.open_choices(tmp_path) is None


def test_the_committed_results_have_the_numbers_of_the_first_screen(tmp_path: Path) -> None:
    found = first_screen.numbers(tmp_path)
    for name, cell in {**first_screen.CELLS, **first_screen.RANGES}.items():
        committed = files.root() / "reference" / f"{cell.output}.csv.gz"
        assert name in found or not committed.is_file(), f"{name} is not in {cell.output}"


def _row(**found: object) -> ClaimRow:
    empty = dict.fromkeys(("placed", "best", "low", "high", "least_cell", "most_cell", "reason"))
    return ClaimRow(paper_claims()["H1", "energy"], {**empty, "verdict": "direction", **found})


def test_a_drawing_is_in_multiples_of_the_papers_effect() -> None:
    row = _row(value=-39.0)  # the paper has -26
    others = [ClaimRow(claim, {"value": claim.value}) for claim in paper_claims().values() if claim.kind == "reduction"]
    assert {round(other.at(other.claim.value), 6) for other in others} == {round(row.at(-26.0), 6)}
    assert row.at(0.0) == row.no_change < row.at(-13.0) < row.at(-26.0) < row.at(-39.0) < WIDTH
    assert row.quarter == pytest.approx((row.at(-0.75 * 26), row.at(-1.25 * 26)))
    assert row.at(-500.0) == WIDTH
    assert _row(value=-500.0).is_beyond
    assert not row.is_beyond
    assert row.is_drawn
    assert not ClaimRow(paper_claims()["S1", ""], {"value": 1.0}).is_drawn, "the paper has no number"


def test_failures_are_listed_by_their_reason() -> None:
    one, two, other = (_row(verdict="not reproduced", reason=reason) for reason in ("a", "b", "a"))
    assert [(each.reason, each.rows) for each in failures([one, two, other])] == [("a", (one, other)), ("b", (two,))]
    assert failures([_row()]) == []


def test_a_notebooks_page_has_its_pictures_by_reference_and_no_progress(folder: Path) -> None:
    assert [path.stem for path in (folder / "notebooks").iterdir()] == [NOTEBOOK], "the other one wrote elsewhere"
    text = (folder / PAGES[-1]).read_text("utf-8")
    assert text.count('src="../fig06_comparison.png"') == 2
    assert text.index("<img") < text.index("<pre"), "the figure comes first"
    assert text.count('<details class="code">') == 2, "code is folded"
    assert "base64" not in text
    assert "230/230" not in text
    assert "data/gpus.csv" in text


def test_another_profile_than_the_papers_gets_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    copies = write_outputs(folder, figures=["fig06_comparison"], profile="smoke")
    results_page.write(folder, claim_table.write(folder), copies)
    assert "Made with the profile <strong>smoke</strong>" in (folder / "index.html").read_text("utf-8")


def test_the_papers_sentences_name_the_claims_on_each_figure_and_table() -> None:
    roman = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5}
    words = _words()
    assert list(words) == [f"fig{n:02d}" for n in range(1, 12)] + [f"table{n}" for n in range(1, 6)]
    for key, about in words.items():
        where = f"Fig. {int(key[3:])}" if key.startswith("fig") else f"Table {list(roman)[int(key[5:]) - 1]}"
        named = {id for sentence in about["sentences"] for id in sentence["claims"]}
        assert named == {claim.id for claim in paper_claims().values() if claim.where == where}, key


def test_a_table_is_read_by_the_places_of_its_columns(folder: Path) -> None:
    table = results_page.outputs.read_table(folder / "table5_predictors.md")
    frame = pd.read_csv(folder / "table5_predictors.csv")
    assert len(table.heads) == len(frame.columns)
    assert [row[0] for row in table.rows] == list(frame["model"]) == ["RF", "MLP | x"]
    assert table.numeric == (False, *[True] * (len(frame.columns) - 1))


def _words() -> dict[str, dict[str, list[dict[str, list[str]]]]]:
    path = Path(results_page.__file__).parent / "templates/paper_sentences.yaml"
    words: dict[str, dict[str, list[dict[str, list[str]]]]] = read_values(path, "the paper's sentences", "")
    return words
