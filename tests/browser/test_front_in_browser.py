"""The page of a front in a real browser: pointing, clicking and choosing change timeline and text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
Open = Callable[..., "Page"]


@pytest.fixture
def page(visit: Open, front_file: Path) -> Page:
    opened = visit(front_file)
    opened.locator("body[data-ready=yes]").wait_for(timeout=20_000)
    return opened


def boxes(page: Page) -> list[str]:
    """The paths of the timeline's boxes, which are their places and sizes."""
    shapes = page.locator("#timeline svg .mark-rect path")
    found: list[str] = shapes.evaluate_all(
        "all => all.map((each) => each.getAttribute('transform') + each.getAttribute('d'))"
    )
    return found


def point_at(page: Page, part: float, *, click: bool = False) -> None:
    """Move the pointer to a part of the front's width, at half its height."""
    box: Any = page.locator("#front svg").bounding_box()
    page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
    if click:
        page.mouse.down()
        page.mouse.up()


def wait_for_other(page: Page, text: str) -> str:
    page.wait_for_function("text => document.getElementById('about').textContent !== text", arg=text, timeout=20_000)
    return page.locator("#about").inner_text()


def test_pointer(page: Page) -> None:
    """The page begins with Trade-off and follows the pointer."""
    first, drawn = page.locator("#about").inner_text(), boxes(page)
    assert "Trade-off" in first
    assert len(drawn) > 8, "the tasks, and a strip for the clock of each batch"
    point_at(page, 0.2)
    wait_for_other(page, first)
    assert boxes(page) != drawn


def test_click(page: Page) -> None:
    """A clicked plan stays until a double click."""
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


def test_chosen_run(page: Page) -> None:
    """A chosen run shows its timeline."""
    assert page.locator("#run-about").inner_text().startswith("Random")
    shapes = page.locator("#runs svg .mark-rect path")
    first = shapes.evaluate_all("all => all.map((each) => each.getAttribute('d'))")
    page.get_by_label("Morak").check()
    page.wait_for_function("document.getElementById('run-about').textContent.startsWith('Morak')", timeout=20_000)
    page.wait_for_timeout(300)
    assert shapes.evaluate_all("all => all.map((each) => each.getAttribute('d'))") != first
