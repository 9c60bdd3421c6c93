"""The names of outputs: figures and tables of the paper have its numbers, all others their notebook's and a letter."""

from __future__ import annotations

import re
from string import ascii_lowercase

from heshare.paper.notebooks import parameters


def test_names_of_outputs() -> None:
    """An output is named after the paper's figure or table, or after its notebook with the next letter."""
    for path in parameters.find():
        further = [name for name in parameters.read(path).outputs if not re.match(r"(fig\d\d|table\d)_", name)]
        letters = [re.fullmatch(r"x(\d\d)([a-z])_[a-z][a-z0-9_]*", name) for name in further]
        assert all(letters), further
        assert {found[1] for found in letters if found} <= {path.stem[:2]}
        assert sorted(found[2] for found in letters if found) == list(ascii_lowercase[: len(further)])


def test_paper_made_once() -> None:
    """Every figure and table of the paper is made by one notebook, and every notebook is in a group."""
    books = [parameters.read(path) for path in parameters.find(parameters.group("paper"))]
    numbers = [name.split("_")[0] for book in books for name in book.outputs if not name.startswith("x")]
    assert sorted(numbers) == [*(f"fig{n:02d}" for n in range(1, 12)), *(f"table{n}" for n in range(1, 6))]
    assert parameters.others() == []
