"""The examples in docstrings print what they say, and every public name has one."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import heshare

PACKAGE = Path(heshare.__file__).parent
SOURCES = [
    path.relative_to(PACKAGE.parent) for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text("utf-8")
]
MODULES = [".".join(path.with_suffix("").parts) for path in SOURCES]
WITHOUT_EXAMPLE = {"HeShareError", "InputError", "__version__"}


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    """The examples of a module's docstrings print their results."""
    import pandas as pd

    with pd.option_context("display.float_format", None):  # the notebooks' own format, if a test has set it
        results = doctest.testmod(import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_every_public_name() -> None:
    """Every public name has an example."""
    names = set(heshare.__all__) - WITHOUT_EXAMPLE
    assert not [name for name in names if ">>> " not in (getattr(heshare, name).__doc__ or "")]
