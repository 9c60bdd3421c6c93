"""The names of outputs: figures and tables of the paper have its numbers, all others their notebook's and a letter."""

from __future__ import annotations

import re
from pathlib import Path
from string import ascii_lowercase

import pytest

from heshare.paper.notebooks import parameters

NOTEBOOKS = [*parameters.find(), *parameters.find(["90_live"])]
MOST = 14
"""Most notebooks in the groups."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_named_after_the_paper_or_their_notebook(path: Path) -> None:
    further = [name for name in parameters.read(path).outputs if not re.match(r"(fig\d\d|table\d)_", name)]
    letters = [re.fullmatch(r"x(\d\d)([a-z])_[a-z][a-z0-9_]*", name) for name in further]
    assert all(letters), further
    assert {found[1] for found in letters if found} <= {path.stem[:2]}
    assert sorted(found[2] for found in letters if found) == list(ascii_lowercase[: len(further)])


def test_every_figure_and_table_of_the_paper_is_made_once() -> None:
    books = [parameters.read(path) for path in parameters.find(parameters.group("paper"))]
    numbers = [name.split("_")[0] for book in books for name in book.outputs if not name.startswith("x")]
    assert sorted(numbers) == [*(f"fig{n:02d}" for n in range(1, 12)), *(f"table{n}" for n in range(1, 6))]


def test_there_are_few_notebooks() -> None:
    assert len(parameters.group("all")) <= MOST
    assert parameters.others() == []
