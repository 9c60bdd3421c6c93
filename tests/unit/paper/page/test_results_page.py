"""The pages of results without a browser: the same bytes, every claim once, links that exist, no path of a machine."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.made_once import made_once
from support.made_up_outputs import NOTEBOOK, write_outputs

from heshare.paper.claims import claim_table
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.page import first_screen, results_page
from heshare.paper.page.claim_rows import ClaimRow, failures, rows
from heshare.shared import files
from heshare.shared.yaml_nodes import read_values

pytestmark = pytest.mark.slow

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


@pytest.fixture
def folder(results_folder: Path) -> Path:
    return results_folder


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of a folder in which nothing has been made."""
    return made_once(tmp_path_factory, "empty_page", write_empty_pages) / "figures"


def write_empty_pages(top: Path) -> None:
    (top / "figures").mkdir()
    results_page.write(top / "figures", claim_table.write(top / "figures"), top / "figures")


def test_same_bytes(folder: Path) -> None:
    """The same outputs give pages of the same bytes."""
    before = {path: path.read_bytes() for path in folder.rglob("*.html")}
    results_page.write(folder, claim_table.write(folder), folder.parent / "copies")
    assert {path: path.read_bytes() for path in folder.rglob("*.html")} == before


def test_links(folder: Path) -> None:
    """Every id is there once, and every link leads to a file and an id that exist."""
    pages = {path: Parsed(path.read_text("utf-8")) for path in folder.rglob("*.html")}
    assert {folder / name for name in PAGES} <= set(pages)

    for page, parsed in pages.items():
        assert [id for id, count in Counter(parsed.ids).items() if count > 1] == []
        for link in parsed.links:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert link.startswith("data:") or target.exists(), link
            assert not anchor or anchor in pages[target].ids, link


def test_no_outside_address(folder: Path) -> None:
    """A page names no other host and no path of this machine."""
    for name in PAGES:
        text = (folder / name).read_text("utf-8")
        assert not re.search(r"(https?:)?//[a-z]", re.sub(r"(?m)^\s*//.*$", "", text))
        for machine in (str(folder), str(files.root()), str(Path.home()), "ab12cd_3"):
            assert machine not in text


def test_every_claim_once(folder: Path, empty: Path) -> None:
    """Every claim is on one of the two pages, made or not; one that is not made has its command."""
    for made in (folder, empty):
        table = claim_table.merge(made)
        found = []
        for name in ("index.html", "beyond.html"):
            found += re.findall(r'<tr id="([^"]+)" class="[^"]+" data-verdict', (made / name).read_text("utf-8"))
        assert sorted(found) == sorted(row.anchor for row in rows(table))

    index, beyond = ((empty / name).read_text("utf-8") for name in ("index.html", "beyond.html"))
    own = sum(claim.is_heshare for claim in paper_claims().values())
    assert index.count('<td class="here"><code>make figures</code></td>') == own
    assert beyond.count('<td class="here"><code>make beyond</code></td>') == len(paper_claims()) - own


def test_first_screen_of_run(folder: Path) -> None:
    """The numbers of the first screen are those of the run."""
    found = first_screen.numbers(folder)
    assert set(found) == {*first_screen.CELLS, *first_screen.RANGES}
    assert not any(number.committed for number in found.values())
    choices = first_screen.open_choices(folder)
    assert choices is not None
    assert (choices.settings, choices.shipped, choices.best) == (2, 1, 6)


def test_first_screen_of_reference(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a run the numbers of the first screen are the committed ones, which are all there."""
    found = first_screen.numbers(tmp_path)
    for name, cell in {**first_screen.CELLS, **first_screen.RANGES}.items():
        committed = files.root() / "reference" / f"{cell.output}.csv.gz"
        assert name in found or not committed.is_file(), f"{name} is not in {cell.output}"

    text = (folder / "x07g_bound.csv").read_bytes()
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "x07g_bound.csv.gz").write_bytes(gzip.compress(text))
    monkeypatch.setattr(files, "reference", lambda: tmp_path / "reference")
    found = first_screen.numbers(tmp_path)
    assert set(found) == {"bound", "missed"}
    assert all(number.committed for number in found.values())
    assert first_screen.open_choices(tmp_path) is None


def test_failures_by_reason() -> None:
    """Claims that are not reproduced are listed by their reason."""
    found = {**dict.fromkeys(("placed", "best", "low", "high", "least_cell", "most_cell")), "verdict": "not reproduced"}
    one, two, other = (ClaimRow(paper_claims()["H1", "energy"], {**found, "reason": reason}) for reason in "aba")
    assert [(each.reason, each.rows) for each in failures([one, two, other])] == [("a", (one, other)), ("b", (two,))]


def test_notebook_page(folder: Path) -> None:
    """A notebook's page has its pictures by reference and no progress bars; one that wrote elsewhere has no page."""
    assert [path.stem for path in (folder / "notebooks").iterdir()] == [NOTEBOOK]
    text = (folder / PAGES[-1]).read_text("utf-8")
    assert 'src="../fig06_comparison.png"' in text
    assert "base64" not in text
    assert "230/230" not in text
    assert "data/gpus.csv" in text


def test_profile_warning(tmp_path: Path) -> None:
    """A page of another profile than the paper's says so."""
    folder = tmp_path / "figures"
    copies = write_outputs(folder, figures=["fig06_comparison"], profile="smoke")
    results_page.write(folder, claim_table.write(folder), copies)
    assert "<strong>smoke</strong>" in (folder / "index.html").read_text("utf-8")


def test_sentences_name_claims() -> None:
    """The paper's sentences name, for each figure and table, the claims of that place."""
    path = Path(results_page.__file__).parent / "templates/paper_sentences.yaml"
    words = read_values(path, "the paper's sentences", "")
    assert list(words) == [f"fig{n:02d}" for n in range(1, 12)] + [f"table{n}" for n in range(1, 6)]

    roman = ("I", "II", "III", "IV", "V")
    for key, about in words.items():
        where = f"Fig. {int(key[3:])}" if key.startswith("fig") else f"Table {roman[int(key[5:]) - 1]}"
        named = {id for sentence in about["sentences"] for id in sentence["claims"]}
        assert named == {claim.id for claim in paper_claims().values() if claim.where == where}, key
