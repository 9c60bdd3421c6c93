"""The page of results without a browser: the same bytes, every claim once, links that exist, no path of a machine."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from support.made_up_outputs import SIZES, write_outputs
from typer.testing import CliRunner

from heshare.cli import app
from heshare.paper import tables
from heshare.paper.claims import claim_table
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.notebooks import notebook_parameters
from heshare.paper.notebooks.output_folders import PAGE
from heshare.paper.report import claim_rows, published_outputs, results_page, strips
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.shared.yaml_nodes import read_values


class Parsed(HTMLParser):
    """Ids, targets of links, pictures and headings of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.ids += [str(known["id"])] if "id" in known else []
        self.links += [str(known[name]) for name in ("href", "src") if known.get(name)]
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "figures"
    results_page.write(folder, write_outputs(folder))
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "index.html").read_text("utf-8")


def test_the_same_outputs_give_the_same_bytes(folder: Path, page: str) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.html")}
    assert len(before) == 3
    results_page.write(folder, folder.parent / "copies")
    assert {path: path.read_bytes() for path in folder.rglob("*.html")} == before


@pytest.mark.parametrize("name", [PAGE, results_page.BEYOND])
def test_every_link_leads_somewhere(folder: Path, name: str) -> None:
    ids = {path.name: Parsed(path.read_text("utf-8")).ids for path in folder.glob("*.html")}
    assert [id for id, count in Counter(ids[name]).items() if count > 1] == []
    for link in Parsed((folder / name).read_text("utf-8")).links:
        path, _, anchor = link.partition("#")
        assert link.startswith("data:") or (folder / path).exists(), link
        assert not anchor or anchor in ids[path or name], link


def test_every_claim_is_there_once(folder: Path, page: str) -> None:
    parsed = Parsed(page)
    rows = claim_rows.rows(pd.read_csv(folder / "claims.csv"), folder)
    assert {row.anchor for row in rows} <= set(parsed.ids)
    assert {claim.id for claim in paper_claims().values()} <= set(parsed.ids)
    assert {"fig06_comparison.png", "notebooks/05_comparison.html", "beyond.html#x05c", "x05c_forms.csv"} <= set(
        parsed.links
    )


def test_no_network_and_no_path_of_this_machine(folder: Path) -> None:
    for path in folder.rglob("*.html"):
        text = path.read_text("utf-8")
        assert not re.search(r"(https?:)?//[a-z]", re.sub(r"(?m)^\s*//.*$", "", text)), path.name
        for machine in (str(folder), str(files.root()), str(Path.home()), "ab12cd_3"):
            assert machine not in text, path.name


def test_counts_and_rows_are_those_of_the_csv(folder: Path, page: str) -> None:
    table = pd.read_csv(folder / "claims.csv")
    shown = Counter(re.findall(r'<details id="[^"]+" class="claim[^"]+" data-verdict="([^"]+)"', page))
    assert shown == table["verdict"].value_counts().to_dict()
    for each in claim_rows.counts(table["verdict"]):
        assert f"<b>{each.count}</b> {each.meaning}".replace("'", "&#39;") in page
    own = sum(claim.is_own for claim in paper_claims().values())
    assert f">{own} claims of the paper<" in page


@pytest.mark.slow
def test_what_was_not_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/05_comparison.json").write_text("[]\n")
    result = CliRunner().invoke(app, ["claims", "--page", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"Open {tmp_path}/index.html"
    text = (tmp_path / "index.html").read_text("utf-8")
    assert text.count("Not made in this run.") == len(_words())
    assert (tmp_path / "beyond.html").read_text("utf-8").count("Not made in this run.") == 3
    assert f"{len(paper_claims())}</b> no notebook has evaluated the claim" in text


def test_without_claims_there_is_one_message_and_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"heshare claims --out"):
        results_page.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_notebooks_page_has_its_pictures_by_reference_and_no_progress(folder: Path) -> None:
    assert [path.name for path in (folder / "notebooks").iterdir()] == ["05_comparison.html"], "06 wrote elsewhere"
    text = (folder / "notebooks/05_comparison.html").read_text("utf-8")
    lead, picture = re.findall("<img[^>]*>", text)
    assert 'src="../fig06_comparison.png"' in lead
    assert text.index("<img") < text.index("<pre"), "the figure comes first"
    assert text.count('<details class="code">') == 2
    assert 'src="../fig06_comparison.png"' in picture
    assert 'width="999"' in picture
    assert "base64" not in text
    assert "230/230" not in text
    assert "&quot;figures&quot;" in text or '"figures"' in text
    assert "data/gpus.csv" in text


def test_a_head_with_a_bar_in_its_words_is_one_head(tmp_path: Path) -> None:
    frame = pd.DataFrame({"group": ["a | b", "c"], "mape_pct": [1.25, float("nan")]})
    (tmp_path / "x.md").write_text(f"# Table\n\n{tables.to_markdown(frame)}\nA caption.\n", encoding="utf-8")
    found = published_outputs.read_table(tmp_path / "x.md")
    assert found.heads == ("Group", "Mean |error| (%)")
    assert found.rows == (("a | b", "1.25"), ("c", ""))
    assert found.numeric == (False, True)


def test_outputs_named_in_a_caption_are_linked(page: str) -> None:
    assert '(<a href="beyond.html#x05d">Fig. x05d</a>)' in page
    assert "<code>metric</code>" in page


def test_the_strips_have_every_size_and_the_shipped_one_is_chosen(folder: Path, page: str) -> None:
    assert page.count('<figure class="strip">') == 6
    assert re.findall(r'name="size" id="[^"]+" value="([^"]+)"', page) == [*SIZES]
    assert page.count('" checked>') == 1
    assert 'value="4 8" checked>' in page
    strip = strips.strips(folder)["ResNet-50, T4 over A100"]
    assert list(strip) == [*SIZES]
    assert (strip["1"]["paper"], strip["1"]["part"]) == ("2.5x", None)
    axis, changed, count = strips.deciding(folder)[0]
    assert (axis, 0 < changed <= count) == ("inference batch size", True)
    assert strips.deciding(folder)[1][:2] == ("precision", 0)


def test_without_notebook_24_the_page_begins_with_fig_6(folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    for path in other.glob("x24*"):
        path.unlink()
    results_page.write(other)
    text = (other / "index.html").read_text("utf-8")
    assert '<figure class="strip">' not in text
    assert text.index("fig06_comparison.png") < text.index("<article")


def test_what_is_of_another_profile_is_said(folder: Path, tmp_path: Path) -> None:
    mixed = shutil.copytree(folder, tmp_path / "mixed")
    path = mixed / "claims" / "05_comparison.json"
    rows = json.loads(path.read_text("utf-8"))
    assert rows[0]["id"] == "M1"
    files.write_text(mixed / "claims" / "01_motivation.json", json.dumps([{**rows[0], "profile": "custom"}]))
    files.write_text(path, json.dumps(rows[1:]))
    about = mixed / "fig01_energy.json"
    files.write_text(about, about.read_text("utf-8").replace('"profile": "paper"', '"profile": "custom"'))
    claim_table.write(mixed)
    results_page.write(mixed)
    text = (mixed / "index.html").read_text("utf-8")
    assert "Not counted, because of another profile: 01_motivation (custom)" in text
    assert "The result of 01_motivation is of the profile custom, not paper: not counted." in text
    assert text.count("Made with profile\n  custom, not paper.") == 1


def test_another_profile_than_the_papers_gets_a_warning(folder: Path, tmp_path: Path) -> None:
    for path in sorted(folder.glob("*.json")) + sorted((folder / "claims").glob("*.json")):
        text = path.read_text("utf-8").replace('"profile": "paper"', '"profile": "smoke"')
        files.write_text(tmp_path / path.relative_to(folder), text)
    files.write_text(tmp_path / "claims.csv", (folder / "claims.csv").read_text("utf-8"))
    results_page.write(tmp_path)
    assert "This page is of the profile <strong>smoke</strong>" in (tmp_path / "index.html").read_text("utf-8")


def test_objections_have_numbers_from_the_outputs(folder: Path) -> None:
    table = pd.read_csv(folder / "claims.csv")
    found = {each.title: each.text for each in results_page.objections(folder, table, 0)}
    batch, simple, emulated = found
    assert (batch, emulated) == ("The inference batch size decides", "The GPUs are emulated"), "others lack outputs"
    assert "3 % more energy and 3 % less average JCT than SRTF" in found[simple]
    assert f"{len(table) - 2} of {len(table) - 2} evaluated claims" in found[emulated]
    assert "12 rows of the outputs were measured" in results_page.objections(folder, table, 12)[-1].text


def test_the_papers_sentences_name_its_figures_tables_and_claims() -> None:
    words = _words()
    assert list(words) == [f"fig{n:02d}" for n in range(1, 12)] + [f"table{n}" for n in range(1, 6)]
    for key, about in words.items():
        named = {id for sentence in about["sentences"] for id in sentence["claims"]}
        assert named == {c.id for c in paper_claims().values() if claim_rows.output_of(c.where) == key}, key


def test_every_notebook_has_a_group_on_the_page() -> None:
    books = {path.stem for path in [*notebook_parameters.find(), *notebook_parameters.find(["90_live"])]} - {
        "02_system"
    }
    assert books <= set(published_outputs.described())


def _words() -> dict[str, dict[str, list[dict[str, list[str]]]]]:
    path = Path(results_page.__file__).parent / "templates/paper_words.yaml"
    words = read_values(path, "the paper's sentences", "")
    return json.loads(json.dumps(words))  # type: ignore[no-any-return]
