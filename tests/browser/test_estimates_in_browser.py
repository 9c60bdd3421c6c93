"""The page of estimates in a real browser: its answers are those of `heshare.estimate`; offline, by keyboard."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

import heshare as hs
from heshare.world import catalogue

pytestmark = pytest.mark.slow
QUESTIONS = 200
SECONDS, JOULES, WATTS = ((0, "s"), (-3, "ms"), (-6, "µs")), ((3, "kJ"), (0, "J"), (-3, "mJ"), (-6, "µJ")), ((0, "W"),)
ANSWERS = """() => Object.fromEntries(
  [...document.querySelectorAll('#answer [id]')].map(each => [each.id, each.textContent]))"""
ASK = f"""async (questions) => {{
  const answers = [];
  for (const question of questions) {{
    location.hash = question;
    while (document.body.dataset.answered !== question) await new Promise((then) => setTimeout(then));
    answers.push(({ANSWERS})());
  }}
  return answers;
}}"""


@pytest.fixture
def page(browser: Browser, site: Path) -> Iterator[Page]:
    """The page; a request off the disk, a message of the console and an error are failures."""
    wrong: list[str] = []
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.goto((site / "estimate.html").as_uri())
    opened.locator("body[data-answered]").wait_for(timeout=20_000)
    yield opened
    opened.close()
    assert wrong == []


def card(site: Path, name: str) -> dict[str, Any]:
    text = (site / "estimate" / f"{name}.js").read_text("utf-8")
    found: dict[str, Any] = json.loads(text.removeprefix("heshareCard(").removesuffix(")\n"))
    return found


def cards(site: Path) -> list[str]:
    return sorted(path.stem for path in (site / "estimate").glob("*.js") if path.stem != "estimate")


def ask(page: Page, *questions: str) -> list[dict[str, str]]:
    """The texts of the answer to each question as it stands in the address."""
    found: list[dict[str, str]] = page.evaluate(ASK, list(questions))
    return found


def shown(value: float, units: tuple[tuple[int, str], ...], like: float | None = None) -> str:
    """A value as the page writes it: three digits, in the unit of another value or its own."""
    power = Decimal(f"{value if like is None else like:.2e}").adjusted()
    shift, unit = next((each for each in units if power >= each[0]), units[-1])
    return f"{Decimal(f'{value:.2e}').scaleb(-shift):f} {unit}"


def interval(low: float, high: float, units: tuple[tuple[int, str], ...]) -> str:
    return f"{shown(low, units, high).split()[0]} to {shown(high, units)}"


def expected(answer: hs.Estimate) -> dict[str, str]:
    (task,) = answer.tasks
    low_s, high_s = task.uncertainty_parts.interval(task.time_s)
    low_w, high_w = answer.power_uncertainty_parts.interval(answer.power_w)
    return {
        "time": shown(task.time_s, SECONDS),
        "time-interval": interval(low_s, high_s, SECONDS),
        "power": shown(answer.power_w, WATTS),
        "power-interval": interval(low_w, min(high_w, catalogue.gpu(answer.gpu).tdp_w), WATTS),
        "energy": shown(answer.power_w * task.time_s, JOULES),
        "reached": f"{answer.sm_mhz:.0f} MHz",
    }


def test_answers_are_those_of_estimate_in_python(page: Page, site: Path) -> None:
    rng, asked = np.random.default_rng(0), {}
    tables = [card(site, name) for name in cards(site)]
    for _ in range(QUESTIONS):
        table = tables[rng.integers(len(tables))]
        workload = table["workloads"][rng.integers(len(table["workloads"]))]
        resident = f"{workload['name']}:{rng.choice(workload['sizes'])}@{rng.choice(table['shares'])}"
        clock_mhz = int(rng.choice([0, *table["clocks_mhz"]])) or None
        question = f"{table['name']}/{resident}" + f"/{clock_mhz}" * (clock_mhz is not None)
        asked[question] = hs.estimate(table["name"], resident, clock_mhz, precision=workload["precision"]), clock_mhz
    limited = 0
    for (question, (answer, clock_mhz)), found in zip(asked.items(), ask(page, *asked), strict=True):
        wanted = expected(answer)
        assert {name: found[name] for name in wanted} == wanted, question
        arithmetic, anchored = answer.tasks[0].arithmetic.upper(), answer.tasks[0].anchored
        assert f"Computed in {arithmetic}. {'Measurements' if anchored else 'No measurement'}" in found["about"]
        lowered = answer.sm_mhz < (clock_mhz or catalogue.gpu(answer.gpu).max_mhz)
        assert ("power limit" in found["about"]) == lowered
        limited += lowered
    assert limited > 5


def test_line_of_python_asks_the_same(page: Page, site: Path) -> None:
    for found in ask(page, "A100/llama3_8b:32@50/810", "T4/bert_large:16@100"):
        names: dict[str, Any] = {}
        exec(found["python"], names)
        wanted = expected(names["answer"])
        assert {name: found[name] for name in wanted} == wanted
    assert found["shell"] == "heshare estimate T4 bert_large:16@100"


@pytest.mark.parametrize("name", ["T4", "A100"])
def test_every_size_that_fits_is_there(site: Path, name: str) -> None:
    for workload in card(site, name)["workloads"]:
        text, sizes = workload["name"], workload["sizes"]
        if workload["group"] != "Training":
            assert sizes == [2**power for power in range(len(sizes))]
            if len(sizes) < (9 if workload["group"] == "Language models" else 8):
                with pytest.raises(hs.InputError):
                    hs.estimate(name, f"{text}:{2 * sizes[-1]}", precision=workload["precision"])
    assert [each["name"] for each in card(site, name)["workloads"]][:2] == ["resnet50", "bert_large"]


def test_least_energy_is_that_of_the_clocks(page: Page) -> None:
    found, under_limit = ask(page, "A100/resnet50:16@50", "T4/bert_large:16@100")
    clocks_mhz = catalogue.gpu("A100").clocks_mhz
    answers = [hs.estimate("A100", "resnet50:16@50", clock_mhz) for clock_mhz in clocks_mhz]
    energies_j = [float(f"{answer.power_w * answer.tasks[0].time_s:.2e}") for answer in answers]
    least_j = min(energies_j)
    clock_mhz = max(clock for clock, energy_j in zip(clocks_mhz, energies_j, strict=True) if energy_j == least_j)
    assert found["least"].endswith(f"least energy, {shown(least_j, JOULES)} at {clock_mhz} MHz.")
    # A limit leaves the same clock whatever is asked for above it: the lowest of these.
    assert under_limit["least"].endswith("at 1035 MHz.")


def test_controls_ask_and_the_address_keeps_the_question(page: Page) -> None:
    for label, value in (("Card", "T4"), ("Workload", "bert_large"), ("Batch size", "64"), ("MPS share, %", "70")):
        page.get_by_label(label, exact=True).select_option(value)
        page.wait_for_function("value => document.body.dataset.answered.includes(value)", arg=value)
    page.get_by_label("SM clock, MHz").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => location.hash === '#T4/bert_large:64@70/1590'")
    before = page.evaluate(ANSWERS)
    page.reload()
    page.locator("body[data-answered]").wait_for()
    assert page.evaluate(ANSWERS) == before
    assert before["short"] in page.get_by_role("status").inner_text()


def test_a_question_that_the_page_does_not_hold_is_not_answered_as_such(page: Page) -> None:
    page.evaluate("() => { location.hash = 'T4/resnet50:7@50/301'; }")
    page.wait_for_function("() => location.hash === '#T4/resnet50:128@50'")
    assert "resnet50:128@50" in page.locator("#python").inner_text()
    note = page.get_by_role("alert")
    assert note.inner_text() == "Not on this page: T4/resnet50:7@50/301. Shown: T4/resnet50:128@50."
    ask(page, "T4/resnet50:8@50/1590")
    assert note.is_hidden()
    page.get_by_label("Card").select_option("A100")
    note.wait_for()
    assert note.inner_text() == "Not on this page: A100/resnet50:8@50/1590. Shown: A100/resnet50:8@50."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    found = Axe().run(page, context="article", options={"preload": False}).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")] == []


def test_missing_table_and_missing_script_are_said(browser: Browser, site: Path) -> None:
    opened = browser.new_page()
    opened.route("**/T4.js", lambda route: route.abort())
    opened.goto((site / "estimate.html").as_uri() + "#T4/resnet50:8@50")
    opened.get_by_role("alert").wait_for()
    assert opened.get_by_role("alert").inner_text().startswith("The answers for T4 are not beside this page.")
    assert opened.locator("#answer").is_hidden()
    opened.close()
    opened = browser.new_page(java_script_enabled=False)
    opened.goto((site / "estimate.html").as_uri())
    assert opened.locator("noscript").inner_text().startswith("The answers are looked up by a script")
    assert opened.locator("#ask").is_hidden()
    opened.close()


def test_page_of_results_in_the_site_links_the_page(
    checkout: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(checkout / "docs/site"))
    importlib.import_module("build")._results(results.parent, tmp_path)
    assert 'href="../estimate.html"' in (tmp_path / "figures/index.html").read_text("utf-8")
