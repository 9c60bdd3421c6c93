"""The worked examples in docstrings of `heshare.lab.plus`: every algorithm has one, and it prints the stated result."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import heshare.lab.plus

MODULES = sorted(module.name for module in pkgutil.walk_packages(heshare.lab.plus.__path__, "heshare.lab.plus."))
EXAMPLES = [name for name in MODULES if ">>> " in (import_module(name).__doc__ or "")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples_print_their_results(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_worked_examples_cover_every_algorithm() -> None:
    physics = {f"heshare.lab.plus.physics.{name}" for name in ("roofline", "least_squares")}
    search = {name for name in MODULES if "physics" not in name} - {
        "heshare.lab.plus.optimum",
        "heshare.lab.plus.deadline",
    }
    assert physics | search <= set(EXAMPLES)


@pytest.mark.parametrize(
    "name",
    ["costs", "local_search", "option_tables", "fronts", "optimum.lower_bound", "optimum.exact_front", "marginal"],
)
def test_docstrings_of_searches_name_their_sources(name: str) -> None:
    docstring = import_module(f"heshare.lab.plus.{name}").__doc__
    assert "doi:10." in docstring
    assert "Example: " in docstring
