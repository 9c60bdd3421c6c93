"""A browser and a page of results; without Chromium the tests are skipped with a message."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from support.made_once import made_once
from support.made_up_outputs import write_outputs
from support.site_build import build_site

from heshare.paper.claims import claim_table
from heshare.paper.page import results_page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium, or playwright install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of made-up outputs; with HESHARE_PAGE=figures/index.html the page there."""
    given = os.environ.get("HESHARE_PAGE")
    if given:
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("results") / "figures"
    copies = write_outputs(folder)
    return results_page.write(folder, claim_table.write(folder), copies)


@pytest.fixture(scope="session")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with a few estimates; with HESHARE_SITE=build/site the site there."""
    given = os.environ.get("HESHARE_SITE")
    if given:
        return Path(given).resolve()
    return made_once(tmp_path_factory, "site", lambda folder: build_site(checkout, folder / "site")) / "site"
