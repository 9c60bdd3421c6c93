"""Verdicts of claims, and the claims table, which has "not yet" where nothing was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from heshare.errors import InputError
from heshare.experiments.claims import claim_table
from heshare.experiments.claims.claim_table import Claim, evaluate_claim, verdict

RNG_FREE = {"n": 10, "provenance": "emulated", "profile": "paper"}


def claim(kind: str, value: float) -> Claim:
    return Claim("X1", "", "Fig. 0", "something", "text", kind, value)


@pytest.mark.parametrize(
    ("kind", "value", "interval", "against", "expected"),
    [
        ("reduction", -26, (-20, -28, -15), math.nan, "reproduced"),
        ("reduction", -26, (-40, -45, -35), math.nan, "reproduced"),
        ("reduction", -26, (-20, -25, -15), math.nan, "direction"),
        ("reduction", -26, (-5, -20, 1), math.nan, "not reproduced"),
        ("reduction", -26, (5, 1, 9), math.nan, "not reproduced"),
        ("ratio", 2.5, (2.3, 2.0, 2.6), math.nan, "reproduced"),
        ("ratio", 2.5, (1.5, 1.2, 1.8), math.nan, "direction"),
        ("ratio", 2.5, (1.5, 0.9, 1.8), math.nan, "not reproduced"),
        ("error", 3.1, (3.5, 3.0, 4.0), 9.0, "reproduced"),
        ("error", 3.1, (3.5, 3.2, 4.0), 9.0, "direction"),
        ("error", 3.1, (3.5, 3.2, 4.0), 3.4, "not reproduced"),
        ("rival error", 20, (25, 19, 30), 3.0, "reproduced"),
        ("rival error", 20, (5, 4, 6), 3.0, "direction"),
        ("rival error", 20, (5, 4, 6), 5.5, "not reproduced"),
    ],
)
def test_verdict_of_each_kind_of_claim(
    kind: str, value: float, interval: tuple[float, float, float], against: float, expected: str
) -> None:
    assert verdict(claim(kind, value), *interval, against=against, holds={}) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [((True, True), "reproduced"), ((True, False), "direction"), ((False, False), "not reproduced")],
)
def test_evaluate_claim_of_an_ordering_counts_its_parts(parts: tuple[bool, ...], expected: str) -> None:
    row = evaluate_claim(
        claim("ordering", math.nan), holds={f"part {i}": good for i, good in enumerate(parts)}, **RNG_FREE
    )
    assert row["verdict"] == expected
    assert str(row["note"]).count("FAILS") == parts.count(False)


@pytest.mark.parametrize(
    ("kind", "found"),
    [("ordering", {}), ("reduction", {}), ("reduction", {"measured": -30.0, "low": -20.0, "high": -10.0})],
)
def test_evaluate_claim_refuses_missing_or_unordered_numbers(kind: str, found: dict[str, float]) -> None:
    with pytest.raises(InputError, match="claim X1"):
        evaluate_claim(claim(kind, -26), **found, **RNG_FREE)


def test_evaluate_claim_returns_not_testable_if_an_assumption_decides() -> None:
    found = {"measured": 3.5, "low": 3.5, "high": 3.5, "against": 5.0}
    assert evaluate_claim(claim("error", 5.0), **found, **RNG_FREE)["verdict"] == "reproduced"
    assert evaluate_claim(claim("error", 5.0), **found, testable=False, **RNG_FREE)["verdict"] == "not testable"


def test_merge_keeps_the_papers_order_and_leaves_the_rest_not_yet(tmp_path: Path) -> None:
    row = evaluate_claim(claim_table.paper_claims()["H3", "Random"], measured=-31.0, low=-33.0, high=-29.0, **RNG_FREE)
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/05.json").write_text(json.dumps([row]))
    table = claim_table.write(tmp_path)
    assert list(table.columns) == list(claim_table.COLUMNS)
    assert [key[0] for key in claim_table.paper_claims()] == list(table["id"])
    evaluated = table[table["verdict"] != "not yet"]
    assert list(evaluated["id"]) == ["H3"]
    assert evaluated["verdict"].item() == "reproduced"
    assert evaluated["measured"].item() == -31.0
    assert (tmp_path / "claims.csv").read_text().startswith(",".join(claim_table.COLUMNS) + "\n")
    assert "not yet" in (tmp_path / "claims.md").read_text()
    assert json.loads((tmp_path / "claims.json").read_text())["provenance"] == {"emulated": 1}


def test_write_refuses_an_unknown_claim(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/05.json").write_text(json.dumps([{"id": "Z9", "part": "", "profile": "paper"}]))
    with pytest.raises(InputError, match="Z9"):
        claim_table.write(tmp_path)
    assert not (tmp_path / "claims.csv").exists()


def test_paper_claims_has_every_claim() -> None:
    ids = [key[0] for key in claim_table.paper_claims()]
    wanted = ["M1", "M2", "M3", "M4", "M5", "M6", "P1", "P2", "P3", "H1", "H2", "H3", "H4", "H5", "S1"]
    wanted += ["G1", "G2", "G3", "O1", "O2", "O3", "O4", "E1", "E2", "W1", "F1", "F2"]
    assert list(dict.fromkeys(ids)) == [*wanted, "X1", "X2"]
    for row in claim_table.paper_claims().values():
        assert row.kind in ("reduction", "ratio", "error", "rival error", "ordering")
        assert math.isnan(row.value) == (row.kind == "ordering")
