"""The page of a front in a real browser: pointing and clicking change timeline and text; no request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import heshare as hs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def front_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "front.html"
    tasks, cluster = hs.task_set(8, seed=3), "1xT4,1xV100,1xA100"
    runs = {title: hs.run(tasks, cluster, policy) for title, policy in (("Random", "random"), ("Morak", "morak"))}
    hs.explore(hs.plan(tasks, cluster, seed=0), path, runs=runs, home="index.html")
    return path


@pytest.fixture
def page(browser: Browser, front_file: Path) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.requests, opened.faults = [], []
    opened.on("request", lambda request: opened.requests.append(request.url))
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.goto(front_file.as_uri())
    opened.locator("body[data-ready=yes]").wait_for(timeout=20_000)
    yield opened
    assert opened.faults == []
    assert opened.requests == [front_file.as_uri()], "nothing but the file itself"
    opened.close()


def boxes(page: Any) -> list[str]:
    """The paths of the timeline's boxes, which are their places and sizes."""
    shapes = page.locator("#timeline svg .mark-rect path")
    return shapes.evaluate_all("all => all.map((each) => each.getAttribute('transform') + each.getAttribute('d'))")


def point_at(page: Any, part: float, *, click: bool = False) -> None:
    """Move the pointer to a part of the front's width, at half its height."""
    box = page.locator("#front svg").bounding_box()
    page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
    if click:
        page.mouse.down()
        page.mouse.up()


def wait_for_other(page: Any, text: str) -> str:
    page.wait_for_function("text => document.getElementById('about').textContent !== text", arg=text, timeout=5_000)
    return page.locator("#about").inner_text()


def test_page_begins_with_trade_off_and_follows_the_pointer(page: Any) -> None:
    first, drawn = page.locator("#about").inner_text(), boxes(page)
    assert ", Trade-off: " in first
    assert len(drawn) > 8, "the tasks, and a strip for the clock of each batch"
    point_at(page, 0.2)
    text = wait_for_other(page, first)
    assert "against Trade-off, from which" in text
    assert boxes(page) != drawn


def test_a_clicked_plan_stays_until_a_double_click(page: Any) -> None:
    first = page.locator("#about").inner_text()
    point_at(page, 0.2)
    kept = wait_for_other(page, first)
    point_at(page, 0.2, click=True)
    point_at(page, 0.8)
    page.wait_for_timeout(300)
    assert page.locator("#about").inner_text() == kept
    page.locator("#front svg").dblclick()
    point_at(page, 0.8)
    wait_for_other(page, kept)


def test_a_chosen_run_shows_its_timeline(page: Any) -> None:
    assert page.locator("#run-about").inner_text().startswith("Random, as run")
    shapes = page.locator("#runs svg .mark-rect path")
    first = shapes.evaluate_all("all => all.map((each) => each.getAttribute('d'))")
    page.get_by_label("Morak").check()
    page.wait_for_timeout(500)
    assert page.locator("#run-about").inner_text().startswith("Morak, as run")
    assert shapes.evaluate_all("all => all.map((each) => each.getAttribute('d'))") != first


def test_page_follows_the_dark_form_and_links_home(page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        text = page.locator("#front svg .role-axis-title text").first
        ground = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        colours.append((ground, text.evaluate("text => getComputedStyle(text).fill")))
    assert colours == [("rgb(255, 255, 255)", "rgb(34, 34, 34)"), ("rgb(20, 23, 27)", "rgb(228, 230, 233)")]
    assert page.get_by_role("link", name="All results").get_attribute("href") == "index.html"


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_page_has_no_sideways_scroll(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
