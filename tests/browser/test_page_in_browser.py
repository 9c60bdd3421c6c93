"""The pages of results in a real browser: filter, search, keys, without JavaScript, on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from heshare.paper.page.claim_rows import rows

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
Open = Callable[..., "Page"]
ROWS = "table.claims tbody tr:visible"


@pytest.fixture(scope="module")
def claims(results: Path) -> pd.DataFrame:
    """The paper's claims, which are on the first page."""
    table = pd.read_csv(results.parent / "claims.csv")
    return table[[row.claim.is_own for row in rows(table)]]


def test_pictures(visit: Open, results: Path) -> None:
    """Every picture loads, has a text, and takes the space that is kept for it."""
    page = visit(results)
    pictures = page.locator("img")
    assert pictures.count() > 0
    for number in range(pictures.count()):
        one = pictures.nth(number)
        kept = one.bounding_box()
        one.scroll_into_view_if_needed()
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=one.element_handle())
        found = one.bounding_box()
        assert kept
        assert found
        assert (kept["width"], kept["height"]) == (found["width"], found["height"]), "the page jumped"
        assert one.get_attribute("alt")


def test_filter(visit: Open, results: Path, claims: pd.DataFrame) -> None:
    """The filter shows as many claims as `claims.csv` has, and is kept in the address."""
    page = visit(results)
    assert page.locator(ROWS).count() == len(claims)
    for verdict, count in claims["verdict"].value_counts().items():
        page.select_option("select[name=verdict]", str(verdict))
        assert page.locator(ROWS).count() == count
    page.goto(page.url)
    assert page.locator(ROWS).count() == count
    page.click("button[type=reset]")
    page.wait_for_function("document.querySelectorAll('table.claims tbody tr:not([hidden])').length > 1")


def test_search(visit: Open, results: Path) -> None:
    """The search finds words of statements and the Greek letter; an anchor shows its claim again."""
    page = visit(results)
    page.fill("input[name=search]", "TRADE-OFF morak energy")
    assert page.locator("#H1-energy").is_visible()
    assert not page.locator("#M1").is_visible()

    page.fill("input[name=search]", "μ-Serve")
    greek = page.locator(ROWS).count()
    page.fill("input[name=search]", "mu-serve")
    assert page.locator(ROWS).count() == greek > 0

    page.fill("input[name=search]", "no such words")
    assert page.locator("p.none").is_visible()
    page.evaluate("location.hash = '#H1-energy'")
    page.locator("#H1-energy").wait_for(state="visible")


@pytest.mark.parametrize("anchor", ["H1-energy", "fig06", "not-reproduced"])
def test_anchor(visit: Open, results: Path, anchor: str) -> None:
    """An address with an anchor opens at its place."""
    box = visit(results, f"#{anchor}").locator(f"#{anchor}").bounding_box()
    assert box
    assert -5 <= box["y"] < 800


def test_folded_code(visit: Open, results: Path) -> None:
    """Code of a notebook is folded until it is asked for."""
    page = visit(results.parent / "notebooks/04_comparison.html")
    assert not page.locator(".highlight").first.is_visible()
    page.locator("details.code summary").first.click()
    assert page.locator(".highlight").first.is_visible()


def test_without_javascript(visit: Open, results: Path, claims: pd.DataFrame) -> None:
    """Without JavaScript every claim and figure is shown, and no filter."""
    page = visit(results, java_script_enabled=False)
    assert page.locator(ROWS).count() == len(claims)
    assert not page.locator("form.filters").is_visible()
    assert page.locator("#fig06 img").is_visible()


def test_keys(visit: Open, results: Path) -> None:
    """The keyboard reaches the claims and the filter."""
    page = visit(results)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#claims"
    reached = set()
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.tagName"))
    assert {"verdict", "search"} <= reached


def test_on_paper(visit: Open, results: Path, claims: pd.DataFrame) -> None:
    """On paper every claim is there and nothing is cut off."""
    page = visit(results, width=700)  # about A4 between its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert page.locator(ROWS).count() == len(claims)
