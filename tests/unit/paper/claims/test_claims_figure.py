"""The figure of claims: the paper's values beside ours; and the notes with reasons of failed claims."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heshare.paper.claims import claim_table, claims_figure
from heshare.paper.claims.claim_table import evaluate_claim, explain_failure
from heshare.paper.claims.verdicts import EXCEEDS, paper_claims

COMMON = {"n": 10, "provenance": "emulated", "profile": "paper"}


def evaluated(id: str, part: str, value: float, **more: object) -> dict[str, object]:
    return evaluate_claim(paper_claims()[id, part], measured=value, low=value - 1, high=value + 1, **{**COMMON, **more})  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "claims").mkdir()
    parts = {"Random poorest in energy": False, "Random poorest in JCT": True}
    one = [
        evaluated("H1", "energy", -40.0),
        evaluated("O4", "", -12.0, note="It is so.", forms={"placed": (-3, -4, -2), "best": (5, 4, 6)}),
        evaluated("H5", "", 5.0, holds=parts),
    ]
    two = [
        explain_failure(paper_claims()["O4", ""], "The cap.", profile="paper"),
        explain_failure(paper_claims()["H1", "energy"], "No.", profile="x"),
    ]
    for name, rows in (("11_single", one), ("12_sensitivity", two)):
        (tmp_path / "claims" / f"{name}.json").write_text(json.dumps(rows))
    return tmp_path


def test_merge_appends_the_reason_to_the_note_of_a_failed_claim_only(folder: Path) -> None:
    table = claim_table.merge(folder)
    notes = table.set_index(["id", "statement"])["details"].to_dict()
    assert notes["O4", paper_claims()["O4", ""].statement] == "It is so. Why: The cap."
    assert "No." not in notes["H1", paper_claims()["H1", "energy"].statement]
    assert claim_table.reported_profile(folder) == "paper"
    assert claim_table.left_out(folder) == "12_sensitivity (x)"
    assert (table["why"] == "Nothing here measures this so far.").sum() == len(table) - 3


def test_plotted_has_a_row_for_every_claim_of_the_paper(folder: Path) -> None:
    frame = claims_figure.plotted(claim_table.merge(folder)).set_index("label")
    assert len(frame) == len(paper_claims())
    assert frame.index.is_unique
    assert not frame.index.str.endswith("...").any(), "labels are cut: add to claims_figure._SHORTER"
    assert set(frame[frame["section"] == claims_figure.OTHERS]["id"].str[0]) >= set("EWFXRU")
    rows = frame.to_dict("index")
    first = rows["H1 Trade-off / Morak: energy"]
    assert [first[name] for name in ("paper", "value", "low", "high", "verdict")] == [-26, -40, -41, -39, EXCEEDS]
    assert rows["H5 Random poorest, Sched-only never best"]["value"] == 50
    assert rows["P3 SVR: relative error"]["paper"] == 29.12
    assert frame["value"].notna().sum() == 3


def test_claims_are_drawn_by_group_and_gap_and_orderings_as_squares(folder: Path) -> None:
    frame = claims_figure.plotted(claim_table.merge(folder))
    shown = claims_figure.by_gap(frame[(frame["kind"] == "change") & (frame["section"] == claims_figure.OWN)])
    assert shown["id"].str[0].drop_duplicates().tolist() == ["H", "G", "O"]
    assert shown["id"].iloc[0] == "H1", "the only one of its group with a value"
    fig, ax = plt.subplots()
    claims_figure.panel(ax, frame[frame["id"] == "H5"])
    assert [line.get_markerfacecolor() == "white" for line in ax.lines] == [False, True]
    plt.close(fig)


@pytest.mark.slow
def test_write_saves_the_claims_figure_with_its_numbers_and_provenance(folder: Path) -> None:
    claims_figure.write(folder, claim_table.write(folder))
    metadata = json.loads((folder / "claims_figure.json").read_text())
    assert metadata["provenance"] == {"emulated": 3}
    assert "Notebook profile: paper. Not counted" in metadata["caption"]
    assert metadata["caption"].startswith(f"Of {len(paper_claims())} claims: ")
    assert len(pd.read_csv(folder / "claims_figure.csv")) == len(paper_claims())
    first = (folder / "claims_figure.png").read_bytes()
    claims_figure.write(folder, claim_table.merge(folder))
    assert (folder / "claims_figure.png").read_bytes() == first
    assert (folder / "claims_figure.pdf").stat().st_size > 0
