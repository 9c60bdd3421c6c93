"""All pages in a real browser: they open offline without an error, do not scroll sideways, and axe finds nothing.

The fixture `visit` fails where a page asks for anything off the disk, writes to the console or has an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
Open = Callable[..., "Page"]
PHONE, SCREEN = 360, 1280
RESULTS = ("index", "beyond", "notebooks/04_comparison")
SITE = ("index", "README", "estimate", "docs/paper_map", "docs/tasks", "docs/policies", "api/heshare", "api/policies")
PAGES = [*(("results", name) for name in RESULTS), *(("site", name) for name in SITE), ("front", "front")]
HARMFUL = ("serious", "critical")
SCROLL_WIDTH = "document.documentElement.scrollWidth"


@pytest.fixture(params=PAGES, ids=[f"{kind} {name}" for kind, name in PAGES])
def path(request: pytest.FixtureRequest) -> Path:
    kind, name = request.param
    if kind == "front":
        return Path(request.getfixturevalue("front_file"))
    folder = request.getfixturevalue("site") if kind == "site" else request.getfixturevalue("results").parent
    return Path(folder) / f"{name}.html"


def unfold(page: Page) -> None:
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")


@pytest.mark.parametrize("width", [PHONE, SCREEN])
def test_opens_offline(path: Path, visit: Open, width: int) -> None:
    """A page opens offline without an error and has no sideways scroll."""
    page = visit(path, width=width)
    unfold(page)
    assert page.locator("h1").count() == 1
    assert page.evaluate(SCROLL_WIDTH) <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("kind", "name"), [*(("results", name) for name in RESULTS), ("site", "estimate")])
def test_accessible(request: pytest.FixtureRequest, visit: Open, kind: str, name: str, scheme: Any) -> None:
    """Axe finds nothing serious in the light and the dark form."""
    from axe_playwright_python.sync_playwright import Axe

    folder = request.getfixturevalue("site") if kind == "site" else request.getfixturevalue("results").parent
    page = visit(Path(folder) / f"{name}.html", color_scheme=scheme)
    unfold(page)
    context = "article" if kind == "site" else None
    found = Axe().run(page, context=context, options={"preload": False}).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in HARMFUL] == []
