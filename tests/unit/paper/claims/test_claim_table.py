"""The claims table: one row a claim with its verdict; a claim whose notebook has not run is not made yet."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper.claims import claim_table, factorial
from heshare.paper.claims.claim_table import evaluate_claim
from heshare.paper.claims.factorial import Factorial
from heshare.paper.claims.paper_claims import Claim, paper_claims
from heshare.shared.errors import InputError

GOOD = ConfidenceInterval(-31.0, -33.0, -29.0, 10)


def claim(kind: str, value: float) -> Claim:
    return Claim("X1", "", "Fig. 0", "something", "text", kind, value)


def written(folder: Path, notebook: str, *rows: dict[str, object]) -> Path:
    (folder / "claims").mkdir(exist_ok=True)
    (folder / f"claims/{notebook}.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture(autouse=True)
def no_factorial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorial, "read", lambda: None)


def test_failed_parts() -> None:
    """An ordering names the parts that fail."""
    row = evaluate_claim(claim("ordering", math.nan), None, holds={"one": True, "two": False}, profile="paper")
    assert (row["verdict"], row["holds"]) == ("not reproduced", "1 of 2 hold; not: two")


@pytest.mark.parametrize(
    ("kind", "size"),
    [("ordering", None), ("reduction", None), ("reduction", ConfidenceInterval(-30.0, -20.0, -10.0, 10))],
)
def test_refused_numbers(kind: str, size: ConfidenceInterval | None) -> None:
    """A claim without its number, or with a value outside its interval, is refused."""
    with pytest.raises(InputError, match="claim X1"):
        evaluate_claim(claim(kind, -26), size, profile="paper")


def test_no_verdict() -> None:
    """What the platform lacks is not testable, another reading of a sentence is not scored."""
    lacking = evaluate_claim(claim("ordering", math.nan), None, testable=False, profile="paper")
    assert lacking["verdict"] == "not testable"

    one = replace(claim("reduction", -26), reading="Read otherwise.")
    assert evaluate_claim(one, GOOD, profile="paper")["verdict"] == "not scored"


def test_forms_of_baseline() -> None:
    """Forms of a baseline have verdicts of their own."""
    forms = {"placed": ConfidenceInterval(-2.0, -5.0, 1.0, 10), "best": GOOD}
    row = evaluate_claim(claim("reduction", -31), GOOD, forms=forms, profile="paper")
    assert (row["placed"], row["placed_verdict"], row["best_verdict"]) == (-2.0, "not reproduced", "reproduced")


def test_every_claim(tmp_path: Path) -> None:
    """The table has every claim; those without a result are not made yet."""
    row = evaluate_claim(paper_claims()["H3", "Random"], GOOD, profile="paper")
    table = claim_table.write(written(tmp_path, "04_comparison", row))

    assert list(table.columns) == list(claim_table.COLUMNS)
    assert [key[0] for key in paper_claims()] == list(table["id"])
    made = table[table["verdict"] != "not made yet"]
    assert made[["id", "verdict", "value", "notebook"]].to_numpy().tolist() == [
        ["H3", "reproduced", -31.0, "04_comparison"]
    ]
    own = sum(one.is_heshare for one in paper_claims().values())
    assert claim_table.count_text(table).startswith(f"{own} of the HeShare paper: 1 reproduced, {own - 1} not made yet")
    assert json.loads((tmp_path / "claims.json").read_text())["provenance"] == {"emulated": 1}


def test_other_profile(tmp_path: Path) -> None:
    """Results of another profile are not made."""
    mine = evaluate_claim(paper_claims()["H3", "Random"], GOOD, profile="custom")
    written(tmp_path, "04_comparison", mine)
    assert claim_table.reported_profile(tmp_path) == "custom"

    papers = evaluate_claim(paper_claims()["H1", "energy"], GOOD, profile="paper")
    table = claim_table.write(written(tmp_path, "06_mixes", papers))
    assert table.loc[table["verdict"] != "not made yet", "id"].tolist() == ["H1"]
    assert claim_table.left_out(tmp_path) == ["04_comparison (custom)"]


def test_unknown_claim(tmp_path: Path) -> None:
    """A claim that the paper's table lacks is refused, and nothing is written."""
    written(tmp_path, "04_comparison", {"id": "Z9", "part": "", "profile": "paper"})
    with pytest.raises(InputError, match="Z9"):
        claim_table.write(tmp_path)
    assert not (tmp_path / "claims.csv").exists()


@pytest.mark.parametrize(
    ("is_current", "verdict", "reason"),
    [(True, "not determined by the text", ""), (False, "larger than published", claim_table.OLDER)],
)
def test_older_factorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_current: bool, verdict: str, reason: str
) -> None:
    """The factorial counts only for the code and data that made it."""
    common = {"queueing": "queues", "throttle": "as shipped", "t4_over_a100": "as fitted"}
    values = [("helios", "4+8", -60.0), ("equal", "4+8", -26.0), ("equal", "2", -27.0)]
    cells = pd.DataFrame(values, columns=["durations", "batch_sizes", "value"])
    cells = cells.assign(**common, id="H1", part="energy", n=10)
    monkeypatch.setattr(factorial, "read", lambda: Factorial(cells, is_current))
    row = evaluate_claim(paper_claims()["H1", "energy"], ConfidenceInterval(-60.0, -65.0, -55.0, 10), profile="paper")
    table = claim_table.merge(written(tmp_path, "04_comparison", row)).set_index(["id", "part"])
    assert table.loc[("H1", "energy"), "verdict"] == verdict
    assert table.loc[("H1", "energy"), "reason"] == reason
