"""The pages of results in a real browser: offline, without JavaScript, on a phone, on paper, for a screen reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route

from heshare.paper.page.claim_rows import rows

pytestmark = pytest.mark.slow
PHONE, SCREEN = 390, 1280
NOTEBOOK = "notebooks/04_comparison.html"
PAGES = ("", "beyond.html", NOTEBOOK)
TOO_WIDE = """() => [...document.querySelectorAll('body *')].filter(each =>
  !each.closest('.scroll, .picture, .skip, .visually-hidden, .contents, .notebook pre') &&
  each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(each => each.outerHTML.slice(0, 80))"""
ROWS = "table.claims tbody tr:visible"

Open = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, results: Path) -> Iterator[Open]:
    """Open the page, or what is behind it; every request off the disk, message and error is a failure."""
    wrong: list[str] = []

    def guard(route: Route) -> None:
        if route.request.url.startswith(("file://", "data:")):
            route.continue_()
        else:
            wrong.append(route.request.url)
            route.abort()

    def start(path: str = "", width: int = SCREEN, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        context.route("**/*", guard)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        file, hash_, anchor = path.partition("#")
        page.goto(results.parent.joinpath(file or results.name).as_uri() + hash_ + anchor)
        return page

    yield start
    assert wrong == []
    for context in browser.contexts:
        context.close()


@pytest.fixture(scope="module")
def claims(results: Path) -> pd.DataFrame:
    """The paper's claims, which are on the first page."""
    table = pd.read_csv(results.parent / "claims.csv")
    return table[[row.claim.is_own for row in rows(table)]]


def test_the_first_screen_holds_the_summary(visit: Open) -> None:
    box = visit().locator("#summary").bounding_box()
    assert box
    assert box["y"] + box["height"] <= 800


@pytest.mark.parametrize(("path", "screens"), [("", 15), ("beyond.html", 12)])
def test_pages_are_no_longer_than_agreed(visit: Open, path: str, screens: int) -> None:
    assert visit(path).evaluate("document.documentElement.scrollHeight") <= screens * 800


def test_every_picture_loads_in_the_size_that_is_kept_for_it(visit: Open) -> None:
    page = visit()
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


def test_the_filter_counts_what_claims_csv_counts(visit: Open, claims: pd.DataFrame) -> None:
    page = visit()
    assert page.locator(ROWS).count() == len(claims)
    for verdict, count in claims["verdict"].value_counts().items():
        page.select_option("select[name=verdict]", str(verdict))
        assert page.locator(ROWS).count() == count
        assert page.locator("form.filters output").inner_text() == f"{count} of {len(claims)}"
    page.goto(page.url)
    assert page.locator(ROWS).count() == count, "the filter is in the address"
    page.click("button[type=reset]")
    page.wait_for_function(f"document.querySelector('form output').value === '{len(claims)} of {len(claims)}'")


def test_search_finds_words_of_statements_and_the_greek_letter(visit: Open) -> None:
    page = visit()
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
def test_anchors_open_at_their_place(visit: Open, anchor: str) -> None:
    box = visit(f"#{anchor}").locator(f"#{anchor}").bounding_box()
    assert box
    assert -5 <= box["y"] < 800


@pytest.mark.parametrize("width", [PHONE, SCREEN])
@pytest.mark.parametrize("path", PAGES)
def test_nothing_goes_sideways(visit: Open, path: str, width: int) -> None:
    page = visit(path, width)
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []


def test_wide_pictures_stay_legible_on_a_phone(visit: Open) -> None:
    page = visit(width=PHONE)
    picture = page.locator("#fig06 .picture")
    inside = picture.locator("img").bounding_box()
    assert inside
    assert inside["width"] / 7.0 >= 72, "points of a figure of 7 in are pixels at least"
    assert picture.evaluate("each => each.scrollWidth > each.clientWidth")
    assert page.locator("#fig06 .hint").is_visible()


@pytest.mark.parametrize(("path", "width"), [("", PHONE), ("", SCREEN), ("beyond.html", SCREEN), (NOTEBOOK, 800)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Open, path: str, width: int, scheme: str) -> None:
    page = visit(path, width, color_scheme=scheme)
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")] == []


def test_dark_mode_dims_the_figures(visit: Open) -> None:
    page = visit(color_scheme="dark")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert all(int(level) < 128 for level in re.findall(r"\d+", ground)[:3])
    assert "brightness" in page.locator(".picture img").first.evaluate("each => getComputedStyle(each).filter")


def test_code_of_a_notebook_is_folded(visit: Open) -> None:
    page = visit(NOTEBOOK)
    assert not page.locator(".highlight").first.is_visible()
    page.locator("details.code summary").first.click()
    assert page.locator(".highlight").first.is_visible()


def test_without_javascript_everything_is_shown(visit: Open, claims: pd.DataFrame) -> None:
    page = visit(java_script_enabled=False)
    assert page.locator(ROWS).count() == len(claims)
    assert not page.locator("form.filters").is_visible()
    assert page.locator("#fig06 img").is_visible()


def test_keys_reach_the_claims_and_the_filter(visit: Open) -> None:
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#claims"
    reached = set()
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.tagName"))
    assert {"verdict", "search"} <= reached


def test_paper_gets_everything_uncut(visit: Open, claims: pd.DataFrame) -> None:
    page = visit(width=700)  # about A4 between its margins
    page.emulate_media(media="print")
    assert page.evaluate(TOO_WIDE.replace(".scroll, .picture, ", "")) == []
    assert not page.locator("nav.contents").is_visible()
    assert page.locator(ROWS).count() == len(claims)
