"""The page of results in a real browser: offline, without JavaScript, on a phone, on paper, for a screen reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.slow
WIDTHS = (390, 1280)
TOO_WIDE = """() => [...document.querySelectorAll('body *')].filter(each =>
  !each.closest('.scroll, .skip, .visually-hidden, .contents, .notebook pre, .notebook .output_html') &&
  each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(each => each.outerHTML.slice(0, 80))"""

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

    def start(path: str = "", width: int = 1280, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.route("**/*", guard)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(
            results.parent.joinpath(path.split("#")[0] or results.name).as_uri()
            + path[path.find("#") :] * ("#" in path)
        )
        return page

    yield start
    assert wrong == []
    for context in browser.contexts:
        context.close()


@pytest.fixture(scope="module")
def claims(results: Path) -> pd.DataFrame:
    return pd.read_csv(results.parent / "claims.csv")


def rows(page: Page) -> int:
    return page.locator("details.claim:visible").count()


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
    assert rows(page) == len(claims)
    for verdict, count in claims["verdict"].value_counts().items():
        page.select_option("select[name=verdict]", str(verdict))
        assert rows(page) == count
        assert page.locator("form.filters output").inner_text() == f"{count} of {len(claims)}"
    page.click("button[type=reset]")
    page.wait_for_function(
        "count => document.querySelector('form output').value.startsWith(count)", arg=str(len(claims))
    )
    page.select_option("select[name=where]", "Fig. 6")
    assert rows(page) == (claims["where"] == "Fig. 6").sum()


def test_search_finds_words_of_statements_and_details(visit: Open, claims: pd.DataFrame) -> None:
    page = visit()
    page.fill("input[name=search]", "TRADE-OFF morak energy")
    assert 0 < rows(page) < len(claims)
    assert page.locator("#H1-energy").is_visible()
    assert not page.locator("#M1").is_visible()
    page.fill("input[name=search]", "no such words")
    assert rows(page) == 0
    assert page.locator("p.none").is_visible()


@pytest.mark.parametrize("anchor", ["H1-energy", "M1", "fig06"])
def test_anchors_open_at_their_place(visit: Open, anchor: str) -> None:
    page = visit(f"#{anchor}")
    box = page.locator(f"#{anchor}").first.bounding_box()
    assert box
    assert -5 <= box["y"] < 900
    if anchor[0] in "HM":
        assert page.locator(f"details.claim[open]:has(#{anchor}), details#{anchor}[open]").count() == 1


def test_a_link_to_a_claim_that_the_filter_hides_shows_it(visit: Open) -> None:
    page = visit()
    page.fill("input[name=search]", "no such words")
    page.evaluate("location.hash = '#H1-energy'")
    page.locator("#H1-energy").wait_for(state="visible")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", ["", "beyond.html", "notebooks/05_comparison.html"])
def test_nothing_goes_sideways(visit: Open, path: str, width: int) -> None:
    page = visit(path, width)
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize(("path", "width"), [("", 390), ("", 1280), ("notebooks/05_comparison.html", 800)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Open, path: str, width: int, scheme: str) -> None:
    found = Axe().run(visit(path, width, color_scheme=scheme)).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")] == []


def test_mu_finds_the_greek_letter(visit: Open) -> None:
    page = visit()
    page.fill("input[name=search]", "μ-Serve")
    greek = rows(page)
    page.fill("input[name=search]", "mu-serve")
    assert rows(page) == greek > 0


def test_filter_order_and_size_are_in_the_address(visit: Open, claims: pd.DataFrame) -> None:
    page = visit()
    page.select_option("select[name=where]", "Fig. 6")
    page.select_option("select[name=sort]", "gap")
    page.locator("label", has_text=re.compile("^16$")).click()
    page.goto(page.url)
    page.reload()
    assert rows(page) == (claims["where"] == "Fig. 6").sum()
    assert page.locator("input[name=size]:checked").get_attribute("value") == "16"
    gaps = [float(each.get_attribute("data-gap") or "") for each in page.locator("details.claim:visible").all()]
    assert gaps == sorted(gaps, reverse=True) != sorted(gaps)


@pytest.mark.parametrize("script", [True, False])
def test_a_batch_size_moves_the_strips_and_the_verdicts(visit: Open, script: bool) -> None:
    page = visit("#M2", java_script_enabled=script)
    strip = page.locator("figure.strip").first
    place = strip.locator("circle.value:visible").bounding_box()
    assert (strip.locator(".badge:visible").count(), strip.locator("p:visible b:visible").count()) == (1, 1)
    value = strip.locator("p b:visible").inner_text()
    page.locator("label", has_text=re.compile("^5$")).click()
    assert strip.locator("p b:visible").inner_text() != value
    assert strip.locator(".badge:visible").inner_text() == "reproduced"
    assert strip.locator("circle.value:visible").bounding_box() != place
    if script:
        assert "With inference batch size 5: reproduced." in page.locator("#M2 .behind").inner_text()


def test_a_claim_is_one_line_until_it_is_opened(visit: Open) -> None:
    page = visit()
    claim = page.locator("#H1-energy")
    box = claim.bounding_box()
    assert box
    assert box["height"] <= 40
    claim.locator("summary").click()
    assert claim.locator(".behind").is_visible()


def test_dark_mode_has_a_dark_page_and_light_figures(visit: Open) -> None:
    page = visit(color_scheme="dark")
    for selector, light in (("body", False), (".picture img", True)):
        found = page.locator(selector).first.evaluate("each => getComputedStyle(each).backgroundColor")
        assert all((int(level) > 128) == light for level in re.findall(r"\d+", found)[:3]), selector


def test_code_of_a_notebook_is_folded(visit: Open) -> None:
    page = visit("notebooks/05_comparison.html")
    assert not page.locator(".highlight").first.is_visible()
    page.locator("details.code summary").first.click()
    assert page.locator(".highlight").first.is_visible()


def test_without_javascript_everything_is_shown(visit: Open, claims: pd.DataFrame) -> None:
    page = visit(java_script_enabled=False)
    assert rows(page) == len(claims)
    assert not page.locator("form.filters").is_visible()
    assert page.locator("#fig06 img").is_visible()


def test_keys_reach_the_claims_the_filter_and_a_rows_details(visit: Open) -> None:
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#claims"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.tagName"))
    assert {"verdict", "where", "search", "SUMMARY"} <= reached


def test_paper_gets_everything_uncut(visit: Open, claims: pd.DataFrame, tmp_path: Path) -> None:
    page = visit(width=700)  # about A4 between its margins
    page.emulate_media(media="print")
    assert page.evaluate(TOO_WIDE.replace(".scroll, ", "")) == []
    assert not page.locator("nav.contents").is_visible()
    assert rows(page) == len(claims)
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    pages = len(re.findall(rb"/Type /Page\b", (tmp_path / "page.pdf").read_bytes()))
    assert pages >= 5
