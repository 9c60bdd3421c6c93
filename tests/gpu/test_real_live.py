"""A short `heshare live` on the first GPU of this machine, by `pytest -m gpu`; it takes about ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.ops.live import live_comparison
from heshare.paper.studies import live_results

pytestmark = pytest.mark.gpu


def test_comparison(torch_uuid: str, tmp_path: Path) -> None:
    """Measured and simulated values are of one size; the recording is far too short for the aim of 10 %."""
    config = live_comparison.LiveComparisonConfig(
        devices=f"nvml:{torch_uuid}", policies=("random", "heshare:trade-off")
    )
    done = live_comparison.run_live_comparison(config, tmp_path / "work", live_comparison.LiveOptions(progress=False))
    assert not done.emulated
    written = live_results.write(done, tmp_path / "out", command="pytest -m gpu")
    assert written.kind == "measured"
    assert (written.folder / "profiles").is_dir()
    found = written.tables["comparison"]
    assert live_results.worst(found, "fitted", "average JCT") < 50.0
    assert live_results.worst(found, "fitted", "energy, active") < 50.0
