"""The page of estimates in a real browser: its answers are those of `heshare.estimate`; offline, by keyboard."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import heshare as hs
from heshare.world import catalogue

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
Open = Callable[..., "Page"]
QUESTIONS = 100
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
def page(visit: Open, site: Path) -> Page:
    opened = visit(site / "estimate.html")
    opened.locator("body[data-answered]").wait_for(timeout=20_000)
    return opened


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


def test_answers(page: Page, site: Path) -> None:
    """Answers of the page are those of `heshare.estimate`."""
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
    assert limited > 2


def test_python_line(page: Page, site: Path) -> None:
    """The line of Python on the page gives the same answer."""
    for found in ask(page, "A100/llama3_8b:32@50/810", "T4/bert_large:16@100"):
        names: dict[str, Any] = {}
        exec(found["python"], names)
        wanted = expected(names["answer"])
        assert {name: found[name] for name in wanted} == wanted
    assert found["shell"] == "heshare estimate T4 bert_large:16@100"


def test_least_energy(page: Page) -> None:
    """The least energy is the least over all clocks, and its clock is named."""
    found, under_limit = ask(page, "A100/resnet50:16@50", "T4/bert_large:16@100")
    clocks_mhz = catalogue.gpu("A100").clocks_mhz
    answers = [hs.estimate("A100", "resnet50:16@50", clock_mhz) for clock_mhz in clocks_mhz]
    energies_j = [float(f"{answer.power_w * answer.tasks[0].time_s:.2e}") for answer in answers]
    least_j = min(energies_j)
    clock_mhz = max(clock for clock, energy_j in zip(clocks_mhz, energies_j, strict=True) if energy_j == least_j)
    assert found["least"].endswith(f"least energy, {shown(least_j, JOULES)} at {clock_mhz} MHz.")
    # A limit leaves the same clock whatever is asked for above it: the lowest of these.
    reached_mhz = hs.estimate("T4", "bert_large:16@100").sm_mhz
    lowest_mhz = min(clock for clock in catalogue.gpu("T4").clocks_mhz if clock >= reached_mhz)
    assert under_limit["least"].endswith(f"at {lowest_mhz} MHz.")


def test_controls(page: Page) -> None:
    """Controls ask a question, and the address keeps it."""
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


def test_unknown_question(page: Page) -> None:
    """A question without an answer on the page gets the nearest one, with a note."""
    page.evaluate("() => { location.hash = 'T4/resnet50:7@50/301'; }")
    page.wait_for_function("() => location.hash === '#T4/resnet50:128@50'")
    assert "resnet50:128@50" in page.locator("#python").inner_text()
    note = page.get_by_role("alert")
    assert "T4/resnet50:7@50/301" in note.inner_text()
    ask(page, "T4/resnet50:8@50/1590")
    assert note.is_hidden()
    page.get_by_label("Card").select_option("A100")
    note.wait_for()
    assert "A100/resnet50:8@50/1590" in note.inner_text()


def test_missing_table_or_script(browser: Browser, site: Path) -> None:
    """A missing table, or no JavaScript, gets a message."""
    opened = browser.new_page()
    opened.route("**/T4.js", lambda route: route.abort())
    opened.goto((site / "estimate.html").as_uri() + "#T4/resnet50:8@50")
    opened.get_by_role("alert").wait_for()
    assert "T4" in opened.get_by_role("alert").inner_text()
    assert opened.locator("#answer").is_hidden()
    opened.close()
    opened = browser.new_page(java_script_enabled=False)
    opened.goto((site / "estimate.html").as_uri())
    assert "script" in opened.locator("noscript").inner_text()
    assert opened.locator("#ask").is_hidden()
    opened.close()
