"""Each package that the project is to build on is imported by the package or a notebook, or started by make."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from heshare.shared.files import PACKAGE, root

NAMED = {"numpy", "pandas", "sklearn", "seaborn", "pymoo", "pynvml", "papermill"}


def sources() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.read_text(encoding="utf-8")
    for path in sorted((root() / "notebooks").rglob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        yield from ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.slow
def test_named_packages() -> None:
    """The package or a notebook imports each of them."""
    imported: set[str] = set()
    for source in sources():
        imported.update(re.findall(r"(?m)^\s*(?:import|from) (\w+)", source))
    assert imported >= NAMED


def test_jupyterlab() -> None:
    """`make notebook` starts JupyterLab."""
    recipe = (root() / "Makefile").read_text(encoding="utf-8").partition("\nnotebook:")[2].partition("\n\n")[0]
    assert "-m jupyterlab" in recipe
