"""Notebooks of the paper with each of their lists cut to one entry, and each number at its low end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heshare.paper.notebooks import parameters, run_notebooks

SHORT: dict[str, dict[str, Any]] = {
    "01_motivation": {"batch_sizes": [8], "batch_size": 64, "clock_points": 2},
    "02_system": {"batch_sizes": [8], "batch_size": 1, "tasks": 1, "cluster": "1xT4"},
    "04_comparison": {"batch_sizes": [8], "tasks": 1, "seeds": 1, "cluster": "1xT4"},
    "06_mixes": {"batch_sizes": [8], "clusters": ["1xT4,1xA100"], "loads": ["low"], "tasks": 1, "numbers": [1]}
    | {"kinds": ["T4"], "seeds": 1},
    "10_together": {"cluster": "T4,A100", "loads": [0.5], "tasks": 1, "seeds": 1, "other_clusters": ["1xT4"]},
    "12_language": {"images": [1], "image_models": ["resnet50:8"], "requests": 1, "concurrency": 1, "seeds": 1}
    | {"generations": 1},
    "explore": {"tasks": 1, "cluster": "1xT4", "seeds": 1},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHORT)
def test_short_lists(name: str, tmp_path: Path) -> None:
    """A notebook runs with each of its lists cut to one entry."""
    found = parameters.find([name])
    run_notebooks.run(found, profile="smoke", given=SHORT[name], out=tmp_path, jobs=1, quiet=True)
    assert set(parameters.read(found[0]).outputs) <= {path.stem for path in tmp_path.glob("*.json")}
