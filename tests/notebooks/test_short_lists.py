"""Notebooks whose list parameters are cut to one entry, and whose numbers are at an end, run to their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heshare.paper.notebooks import notebook_parameters, run_notebooks

SHORT: list[tuple[str, dict[str, Any]]] = [
    ("01", {"batch_sizes": [8], "batch_size": 64, "clock_points": 2}),
    ("05", {"policies": ["random"], "batch_sizes": [8], "seeds": 1, "tasks": 1}),
    ("06", {"at_tenth": ["nsga2"], "at_1n": ["nsga2"], "batch_sizes": [8], "seeds": 1, "generations": 2}),
    ("06", {"at_tenth": ["spea2"], "at_1n": []}),
    ("10", {"policies": ["random"], "plus": ["heshare+:trade-off"], "clusters": ["1xT4,1xA100"], "seeds": 1}),
    ("20", {"clusters": ["T4,A100"], "loads": {"steady": 0.5}, "seeds": 1}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "given"), SHORT, ids=[f"{name}-{'-'.join(given)}" for name, given in SHORT])
def test_a_notebook_runs_with_short_lists(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    found = notebook_parameters.find([name])
    run_notebooks.run(found, profile="smoke", given=given, out=tmp_path, jobs=1, quiet=True)
    assert list(tmp_path.rglob("*.pdf"))
