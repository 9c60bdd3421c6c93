"""The worked examples in docstrings of `heshare.lab.plus`: every algorithm has one, and it prints the stated result."""

from __future__ import annotations

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

import heshare.lab.plus

MODULES = sorted(module.name for module in pkgutil.walk_packages(heshare.lab.plus.__path__, "heshare.lab.plus."))
EXAMPLES = [name for name in MODULES if ">>> " in inspect.getsource(import_module(name))]


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples_print_their_results(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
