"""Draw the first screen of the page of results: `python docs/site/first_screen.py [PAGE [PNG [light|dark [WIDTH]]]]`.

By default `figures/index.html` as `docs/first_screen.png`, light, 1280 px wide. It needs Chromium.
"""

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
HEIGHT = 800


def draw(page: Path, png: Path, scheme: Literal["light", "dark"] = "light", width: int = 1280) -> None:
    """Write what a browser shows of a page before anyone scrolls.

    Raises:
        SystemExit: there is no Chromium, or no such page.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise SystemExit("No Chromium here: apt-get install chromium")
    if not page.is_file():
        raise SystemExit(f"No {page}: make figures")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        size = {"width": width, "height": HEIGHT}
        tab = browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=1.5)
        tab.goto(page.resolve().as_uri())
        tab.wait_for_load_state("networkidle")
        tab.screenshot(path=png)
        browser.close()


if __name__ == "__main__":
    given = sys.argv[1:]
    source = Path(given[0]) if given else ROOT / "figures" / "index.html"
    target = Path(given[1]) if len(given) > 1 else ROOT / "docs" / "first_screen.png"
    draw(source, target, "dark" if given[2:3] == ["dark"] else "light", int(given[3]) if len(given) > 3 else 1280)
    sys.stdout.write(f"{target}\n")
