"""Every notebook with parameters that are lists: each cut to one entry, and each number at its low end, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heshare.paper.notebooks import notebook_parameters, run_notebooks

ONE: dict[str, Any] = {"batch_sizes": [8], "seeds": 1, "tasks": 2}
PLANS: dict[str, Any] = {**ONE, "policies": ["random"], "plus": ["heshare+:trade-off"]}
SHORT: list[tuple[str, dict[str, Any]]] = [
    ("00_explore", {"tasks": 1, "cluster": "1xT4"}),
    ("01", {"batch_sizes": [8], "batch_size": 64, "clock_points": 2}),
    ("02", {"batch_sizes": [8], "batch_size": 1, "tasks": 1, "cluster": "1xT4"}),
    ("04", {"batch_sizes": [8], "plans": 1, "tasks": 1, "sets": 1, "cluster": "1xT4"}),
    ("05", {**ONE, "policies": ["random"], "tasks": 1, "rounds": 1}),
    ("06", {**ONE, "at_tenth": ["nsga2"], "at_1n": ["nsga2"], "generations": 2, "rounds": 1}),
    ("06", {"at_tenth": ["spea2"], "at_1n": []}),
    ("07", {**ONE, "generations": 1}),
    ("08", {"sizes": [2], "batch_sizes": [8], "tasks": 2, "weights": 1, "rounds": 1}),
    ("09", {"loads": [0.4], "cards": ["T4"], "limits": [1.5], "tasks": 1, "window_s": 70.0, "seeds": 1}
     | {"why_seeds": 1, "serving_seeds": 1}),
    ("10", {**PLANS, "clusters": ["1xT4,1xA100"], "loads": ["low"], "tasks": 1}),
    ("11", {**PLANS, "kinds": ["T4"], "tasks": [1]}),
    ("12", {**ONE, "axes": ["tasks"], "loads": ["high"], "single": 2, "why_tasks": 2, "why_seeds": 1}
     | {"shares": [2], "caps": [0.8]}),
    ("14", {"nodes": [1], "jobs": 4, "seeds": 1, "why_seeds": 1}),
    ("15", {"budgets": [1.0], "ceilings": [0.8], "why_budgets": [1.0], "jobs": 6, "gpus": 8, "seeds": 1}),
    ("16", {"models": ["mobilenetv2"], "shown": ["bert"], "loads": [0.1], "waits": [4], "slices_ms": [5.0], "tasks": 1}
     | {"asked_for": [0.3], "gaps_ms": [1.0], "policies": ["fifo"], "seeds": 1, "requests": 1, "cluster": "1xT4"}),
    ("17", {"seeds": 1, "jobs": 1}),
    ("18", {"weights": [0.5], "seeds": 1, "scale": 0.01}),
    ("19", {"intervals_s": [80.0], "chosen": ["miso:static(partition=3/3)"], "rounds": 1, "jobs": 1, "gpus": 1}
     | {"seeds": 1}),
    ("20", {"clusters": ["T4,A100"], "loads": {"steady": 0.5}, "tasks": 1, "seeds": 1, "seeds_of_mixes": 1}),
    ("21", {"rivals": ["random"], "tasks": 1, "seeds": 1, "cluster": "1xT4"}),
    ("22", {"tasks": 2, "seeds": 1}),
    ("23", {"policies": ["fifo"], "shares": [0.9], "start_hours": [9.0], "tasks": 1, "seeds": 1, "cluster": "1xT4"}
     | {"price_tasks": 1, "price_seeds": 1}),
    ("24", {"sizes": ["1"], "worth_sizes": ["8"], "tasks": 2, "seeds": 1, "generations": 2}),
    ("25", {"images": {"high": 1}, "image_models": ["resnet50:8"], "requests": 1, "concurrency": 1, "seeds": 1}
     | {"generations": 1}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "given"), SHORT, ids=[f"{name}-{next(iter(given))}" for name, given in SHORT])
def test_a_notebook_runs_with_short_lists(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    found = notebook_parameters.find([name])
    run_notebooks.run(found, profile="smoke", given=given, out=tmp_path, jobs=1, quiet=True)
    written = {path.stem for path in tmp_path.glob("*.json")}
    assert set(notebook_parameters.read(found[0]).outputs) <= written


def test_every_list_of_a_notebook_is_cut() -> None:
    cut = {
        (notebook_parameters.find([name])[0].stem, parameter)
        for name, given in SHORT
        for parameter, value in given.items()
        if isinstance(value, list | dict) and len(value) == 1
    }
    books = [notebook_parameters.read(path) for path in notebook_parameters.find()]
    given = [(one.name, name, value) for one in books for name, value in one.defaults.items()]
    lists = {(book, name) for book, name, value in given if isinstance(value, list | dict)}
    # The pools of 25 are two: one for prompts, one for decoding.
    assert lists - {("25_language_models", "pools")} == cut
