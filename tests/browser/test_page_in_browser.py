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
    return table[[row.claim.is_heshare for row in rows(table)]]


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
