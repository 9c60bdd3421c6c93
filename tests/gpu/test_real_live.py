"""A short `heshare live` on the first GPU of this machine, by `pytest -m gpu`; it takes about ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.reporting import live
from heshare.running.live import trial

pytestmark = pytest.mark.gpu


def test_measured_and_simulated_are_of_one_size(torch_uuid: str, tmp_path: Path) -> None:
    """The recording is far too short for the aim of 10 %; twice as much or half would be another mistake."""
    asked = trial.Asked(
        devices=f"nvml:{torch_uuid}", policies=("random", "heshare:trade-off"), tasks=12, minutes=1.5, budget_s=300.0
    )
    done = trial.conduct(asked, tmp_path / "work", trial.Ways(progress=False))
    assert not done.played
    written = live.write(done, tmp_path / "out", tmp_path / "work" / "profiles", command="pytest -m gpu")
    assert written.kind == "measured"
    assert (written.folder / "profiles").is_dir()
    found = written.tables["comparison"]
    assert live.worst(found, "fitted", "average JCT") < 50.0
    assert live.worst(found, "fitted", "energy, active") < 50.0
