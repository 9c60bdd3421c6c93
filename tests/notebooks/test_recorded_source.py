"""The paper's notebooks on the recorded H100 of this package: a smoke run writes what the record can answer."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from support.made_once import made_once
from support.smoke_run import smoke

from heshare.paper.claims import card_claims
from heshare.paper.notebooks import parameters

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def on_h100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(top: Path) -> None:
        smoke(top / "figures", "1", group="paper", source="recorded:H100")

    return made_once(tmp_path_factory, "recorded", make) / "figures"


def test_own_folder(on_h100: Path) -> None:
    """All outputs are in the folder of the source."""
    assert [path.name for path in on_h100.iterdir()] == ["recorded-H100"]
    assert (on_h100 / "recorded-H100" / "index.html").is_file()


def test_answered(on_h100: Path) -> None:
    """Every output is there but those of cells that need two clocks, two kinds of card or the paper's GPUs."""
    declared = {
        name
        for path in parameters.find(parameters.group("paper"))
        if "source" in parameters.read(path).defaults
        for name in parameters.read(path).outputs
    }
    missing = {name for name in declared if not (on_h100 / "recorded-H100" / f"{name}.json").is_file()}
    figures = {name for name in missing if name.startswith(("fig", "table"))}
    assert {name[:5] for name in figures} == {"fig03", "fig08", "fig09"}


def test_marked(on_h100: Path) -> None:
    """Runs are marked as fitted, recorded points as measured; nothing is of an emulated card."""
    folder = on_h100 / "recorded-H100"
    kinds = {path.stem: set(json.loads(path.read_text())["provenance"]) for path in folder.glob("fig*.json")}
    assert kinds["fig06_comparison"] == kinds["fig10_single_jct"] == {"fitted"}
    assert kinds["fig01_energy"] == kinds["fig04_pairs"] == {"measured"}

    runs = pd.read_csv(folder / "x04c_runs.csv")
    assert set(runs["cluster"]) == {"4xH100"}
    alone = runs.loc[runs["title"] == "Random", "recorded_pct"]
    assert alone.tolist() == pytest.approx([100.0] * len(alone))


def test_statements(on_h100: Path) -> None:
    """Statements that compare with baselines that set clocks cannot be asked; some others are answered."""
    claims = pd.read_csv(on_h100 / "recorded-H100" / "claims.csv")
    assert set(claims["answer"]) == {card_claims.HOLDS, card_claims.FAILS, card_claims.NOT_ASKED}
    assert set(claims.loc[claims["id"] == "H1", "answer"]) == {card_claims.NOT_ASKED}
