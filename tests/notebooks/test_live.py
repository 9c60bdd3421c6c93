"""The notebook of live results: its source keeps the rules, and what is committed is drawn as what it is."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from heshare.paper.notebooks import parameters, run_notebooks
from heshare.paper.notebooks.execute_notebook import missing_files
from heshare.paper.studies import live_results
from heshare.shared.files import root

SOURCE = root() / "notebooks" / "live" / "90_live.ipynb"


def test_opt_in() -> None:
    """The notebook of live results is valid and in no group."""
    nbformat.validate(nbformat.read(SOURCE, as_version=4))
    assert parameters.read(SOURCE).defaults["profile"] == "paper"
    assert SOURCE in parameters.find(["90_live"])
    assert SOURCE not in parameters.find()


def test_committed_results() -> None:
    """Committed results have every job and policy, and errors that follow from the measured values."""
    names = [path.parent.name for path in (root() / "data" / "live").glob(f"*/{live_results.MANIFEST}")]
    assert names
    for name in names:
        found = live_results.read(name)
        asked = found.manifest["asked"]
        jobs = found.tables["jobs"]
        assert set(jobs.groupby("policy").size()) == {asked["tasks"]}
        assert set(found.tables["comparison"]["policy"]) == set(asked["policies"])

        table = found.tables["comparison"].set_index(["policy", "quantity"])
        for policy, jct_s in jobs.groupby("policy")["measured_jct_s"].mean().items():
            row = table.loc[(policy, "average JCT (s)")]
            assert row["measured"] == pytest.approx(jct_s)
            assert row["fitted_error_pct"] == pytest.approx(100 * (row["fitted"] / jct_s - 1))
        assert name.startswith("stand-in-") == found.manifest["stand_in"]


@pytest.mark.slow
def test_drawn_results(tmp_path: Path) -> None:
    """The notebook draws the committed results, and says that a stand-in's are emulated."""
    run_notebooks.run([SOURCE], profile="paper", given={}, out=tmp_path, jobs=1, quiet=True)
    for name in parameters.read(SOURCE).outputs:
        assert missing_files(name, tmp_path) == []
    said = json.loads((tmp_path / "x90a_live.json").read_text())
    assert said["notebook"] == "notebooks/live/90_live.ipynb"
    assert set(said["provenance"]) == {"emulated"}
    assert "stand-ins" in said["caption"]

    drawn = pd.read_csv(tmp_path / "x90a_live.csv")
    # The stand-in's truth is the shipped device model: what is left is what executor and accounts add.
    aimed = drawn[drawn["quantity"].isin(["average JCT (s)", "energy, active account (J)"])]
    assert aimed["shipped_error_pct"].abs().max() < live_results.TARGET_PCT
