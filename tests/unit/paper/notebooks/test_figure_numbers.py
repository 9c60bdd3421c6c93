"""The names of outputs: figures and tables of the paper have its numbers, all others their notebook's and a letter."""

from __future__ import annotations

import re
from pathlib import Path
from string import ascii_lowercase

import pytest

from heshare.paper.notebooks import notebook_parameters
from heshare.shared.files import root

NOTEBOOKS = [*notebook_parameters.find(), *notebook_parameters.find(["90_live"])]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_named_after_the_paper_or_their_notebook(path: Path) -> None:
    # 00_explore and 00_paper go through the letters together.
    books = [notebook_parameters.read(each) for each in NOTEBOOKS if each.stem[:2] == path.stem[:2]]
    names = [name for book in books for name in (*book.outputs, *book.optional)]
    further = [name for name in names if not re.match(r"(fig\d\d|table\d)_", name)]
    letters = [re.fullmatch(r"x(\d\d)([a-z])_[a-z][a-z0-9_]*", name) for name in further]
    assert all(letters), further
    assert {found[1] for found in letters if found} <= {path.stem[:2]}
    assert sorted(found[2] for found in letters if found) == list(ascii_lowercase[: len(further)])


def test_the_page_of_figures_has_a_line_for_each_notebook_with_further_outputs() -> None:
    text = (root() / "figures/README.md").read_text("utf-8")
    groups = "claims|scheduler|device and predictor|other systems|all together|your own|power and price|with a GPU"
    lines = re.findall(rf"^\| (?:{groups}) \| `(\w+)` \| \S.+ \|$", text, flags=re.MULTILINE)
    books = [notebook_parameters.read(path) for path in NOTEBOOKS]
    further = [book.name for book in books if any(name.startswith("x") for name in (*book.outputs, *book.optional))]
    assert sorted(lines) == sorted(further)


def test_numbers_of_the_paper_are_used_once() -> None:
    books = map(notebook_parameters.read, NOTEBOOKS)
    names = [name for book in books for name in (*book.outputs, *book.optional)]
    numbers = [name.split("_")[0] for name in names]
    assert len(set(numbers)) == len(numbers) > 40
