"""A browser and the pages; without Chromium the tests are skipped with a message."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.made_once import made_once

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium, or playwright install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Open a file, or an anchor of it; a request off the disk, a message of the console and an error are failures."""
    wrong: list[str] = []

    def request(url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            wrong.append(url)

    def start(path: Path, anchor: str = "", width: int = 1280, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        page = context.new_page()
        page.on("request", lambda each: request(each.url))
        page.on("requestfailed", lambda each: wrong.append(each.url))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(path.as_uri() + anchor)
        return page

    yield start
    for context in browser.contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="session")
def results(results_folder: Path) -> Path:
    """The page of made-up outputs; with HESHARE_PAGE=figures/index.html the page there."""
    given = os.environ.get("HESHARE_PAGE")
    return Path(given).resolve() if given else results_folder / "index.html"


@pytest.fixture(scope="session")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with a few estimates; with HESHARE_SITE=build/site the site there."""
    from support.site_build import build_site

    given = os.environ.get("HESHARE_SITE")
    if given:
        return Path(given).resolve()
    return made_once(tmp_path_factory, "site", lambda folder: build_site(checkout, folder / "site")) / "site"


@pytest.fixture(scope="session")
def front_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a front, with runs of two other policies."""
    import heshare as hs

    def make(folder: Path) -> None:
        tasks, cluster = hs.task_set(8, seed=3), "1xT4,1xV100,1xA100"
        runs = {title: hs.run(tasks, cluster, policy) for title, policy in (("Random", "random"), ("Morak", "morak"))}
        hs.explore(hs.plan(tasks, cluster, seed=0), folder / "front.html", runs=runs, home="index.html")

    return made_once(tmp_path_factory, "front", make) / "front.html"
