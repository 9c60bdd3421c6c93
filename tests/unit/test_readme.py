"""The README: its examples run, and its make targets, links and notebooks exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heshare.plugins import policies

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_readme_has_an_example() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_examples_run(code: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_make_targets_exist(checkout: Path) -> None:
    makefile = (checkout / "Makefile").read_text("utf-8")
    named = set(re.findall(r"(?m)(?:^|`)make ([a-z]+)", README))
    assert {"figures", "test"} <= named
    assert not {name for name in named if not re.search(rf"(?m)^{name}:", makefile)}


def test_the_links_lead_to_files(checkout: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert not [link for link in links if not (checkout / link).exists()]


def test_the_table_of_systems_has_every_policy_and_only_notebooks_that_exist(checkout: Path) -> None:
    named = set(re.findall(r"`([^`]+)`", (checkout / "docs/systems.md").read_text("utf-8")))
    registered = {
        name for name, entry in policies(variants=True).items() if entry.factory.__module__.startswith("heshare.")
    }
    assert registered <= named
    notebooks = {name for name in named if re.fullmatch(r"\d\d_\w+", name)}
    assert notebooks
    assert notebooks <= {path.stem for path in (checkout / "notebooks").glob("*.ipynb")}
