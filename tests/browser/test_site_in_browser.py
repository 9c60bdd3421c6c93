"""The site of `make site`: it builds without a warning, links resolve, the same bytes twice."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.site_build import build_site

import heshare

pytestmark = pytest.mark.slow


class Addresses(HTMLParser):
    """The addresses that a page asks for or links to, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.add(value)
            if value and name in ("id", "name"):
                self.anchors.add(value)


@pytest.fixture(scope="module")
def addresses(site: Path) -> dict[Path, Addresses]:
    return {page: Addresses(page) for page in site.rglob("*.html") if page.parent.name not in ("figures", "notebooks")}


def test_links(site: Path, addresses: dict[Path, Addresses]) -> None:
    """Every link inside the site leads to a file and an anchor that exist."""
    assert len(addresses) > 30
    broken = []
    for page, found in addresses.items():
        for link in found.links:
            path, _, anchor = link.partition("#")
            if re.match(r"\w+:", link) or path.startswith("?"):
                continue
            target = (page.parent / unquote(path.partition("?")[0])).resolve() if path else page
            anchors = addresses[target].anchors if target in addresses else {anchor}
            if not target.is_file() or unquote(anchor) not in anchors:
                broken.append(f"{page.relative_to(site)}: {link}")
    assert not broken


def test_every_name(checkout: Path, addresses: dict[Path, Addresses]) -> None:
    """The site has every public name, every guide and every stage."""
    anchors = set().union(*(found.anchors for found in addresses.values()))
    functions = {f"heshare.{name}" for name in heshare.__all__ if not name.startswith("_")}
    pages = {page.relative_to(page.parents[1]).as_posix() for page in addresses}
    assert {f"docs/{guide.stem}.html" for guide in (checkout / "docs").glob("*.md")} <= pages
    for stage in ("world", "devices", "profiles", "prediction", "scheduling", "policies", "running"):
        assert f"api/{stage}.html" in pages
    (page,) = (page for page in addresses if page.as_posix().endswith("api/heshare.html"))
    text = re.sub(r"<[^>]+>", "", page.read_text("utf-8"))
    assert not {name for name in functions if name not in anchors and name not in text}
    assert "heshare.scheduling.planner.plan" in anchors


def test_same_bytes(checkout: Path, site: Path, tmp_path: Path) -> None:
    """Two builds of the site give the same bytes."""
    build_site(checkout, tmp_path / "site", PYTHONHASHSEED="7")
    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (site, tmp_path / "site")
    )
    assert set(first) == set(second)
    assert not [str(path) for path in first if first[path] != second[path]]
