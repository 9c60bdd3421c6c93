"""Each package that the project is to build on is imported by the package or a notebook, or started by make."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

import pytest

from heshare.shared.files import PACKAGE, root

NAMED = ("numpy", "pandas", "sklearn", "seaborn", "pymoo", "pynvml", "papermill")


def sources() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.read_text(encoding="utf-8")
    for path in sorted((root() / "notebooks").rglob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        yield from ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.fixture(scope="module")
def imported() -> set[str]:
    found: set[str] = set()
    for source in sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found.update(alias.name.split(".")[0] for alias in node.names)
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("name", NAMED)
def test_a_named_package_is_imported(name: str, imported: set[str]) -> None:
    assert name in imported


def test_make_notebook_starts_jupyterlab() -> None:
    recipe = (root() / "Makefile").read_text(encoding="utf-8").partition("\nnotebook:")[2].partition("\n\n")[0]
    assert "-m jupyterlab" in recipe
