"""The examples in docstrings of the public names and of fronts print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pandas as pd
import pytest

import heshare

ERRORS = {"HeShareError", "InputError"}
NAMES = sorted(set(heshare.__all__) - ERRORS - {"__version__"})
MODULES = sorted({getattr(heshare, name).__module__ for name in NAMES} | {"heshare.gym", "heshare.scheduling.pareto"})


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_print_their_results(module: str) -> None:
    with pd.option_context("display.float_format", None):  # the notebooks' own format, if a test has set it
        results = doctest.testmod(import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (getattr(heshare, name).__doc__ or "")
