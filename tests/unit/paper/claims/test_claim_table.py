"""The claims table: one row a claim with its verdict, sentence and source; "not yet" if nothing was measured."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from heshare.paper.claims import claim_table, sources
from heshare.paper.claims.claim_table import evaluate_claim
from heshare.paper.claims.verdicts import Claim, paper_claims
from heshare.shared import files
from heshare.shared.errors import InputError

COMMON = {"n": 10, "provenance": "emulated", "profile": "paper"}


def claim(kind: str, value: float) -> Claim:
    return Claim("X1", "", "Fig. 0", "something", "text", kind, value)


def test_evaluate_claim_of_an_ordering_names_its_parts() -> None:
    row = evaluate_claim(claim("ordering", math.nan), holds={"one": True, "two": False}, **COMMON)  # type: ignore[arg-type]
    assert row["verdict"] == "not reproduced"
    assert row["details"] == "holds: one; FAILS: two."
    assert row["why"] == "1 of 2 parts hold; not: two."


@pytest.mark.parametrize(
    ("kind", "found"),
    [("ordering", {}), ("reduction", {}), ("reduction", {"measured": -30.0, "low": -20.0, "high": -10.0})],
)
def test_evaluate_claim_refuses_missing_or_unordered_numbers(kind: str, found: dict[str, float]) -> None:
    with pytest.raises(InputError, match="claim X1"):
        evaluate_claim(claim(kind, -26), **found, **COMMON)  # type: ignore[arg-type]


def test_evaluate_claim_of_what_the_platform_lacks_needs_no_value() -> None:
    about = {**COMMON, "n": 0, "testable": False, "why": "The platform has no operators."}
    row = evaluate_claim(claim("ordering", math.nan), **about)  # type: ignore[arg-type]
    assert (row["verdict"], row["source"], row["details"]) == ("not testable", "", "")
    assert math.isnan(float(str(row["measured"])))
    with pytest.raises(InputError, match="claim X1"):
        evaluate_claim(claim("ratio", 1.5), measured=2.0, low=3.0, high=4.0, **about)  # type: ignore[arg-type]


def test_few_values_count_for_an_interval_over_seeds_only() -> None:
    found = {"measured": 2.5, "low": 2.4, "high": 2.6, **COMMON, "n": 1}
    assert evaluate_claim(claim("value", 2.5), **found)["verdict"] == "direction"  # type: ignore[arg-type]
    row = evaluate_claim(replace(claim("value", 2.5), interval="two standard deviations"), **found)  # type: ignore[arg-type]
    assert row["verdict"] == "reproduced"


def test_sentences_are_short_whatever_the_numbers() -> None:
    worst = {"placed": (-100.4, -101.0, -99.0), "best": (1234.5, 1234.0, 1235.0)}
    numbers = {"measured": -100.4, "low": -101.0, "high": -99.0}
    for one in (replace(one, source="") for one in paper_claims().values()):
        if one.kind == "ordering":
            holds = {f"a long name of a part {index}": False for index in range(9)}
            row = evaluate_claim(one, holds=holds, **COMMON)  # type: ignore[arg-type]
            assert row["why"] == "0 of 9 parts hold; the others are in the details."
        else:
            for forms in (worst, {}):
                row = evaluate_claim(one, **numbers, forms=forms, **COMMON)  # type: ignore[arg-type]
                assert len(str(row["why"])) <= claim_table.LONGEST


def test_a_source_is_looked_up_in_its_published_csv(tmp_path: Path) -> None:
    table = pd.DataFrame({"ours": ["a", "a"], "tasks": [4, 8], "part": ["", "x"], "change_pct": [-1.25, -0.1]})
    table.to_csv(tmp_path / "x01a_x.csv", index=False)
    assert sources.look_up(tmp_path, "x01a_x.csv: change_pct where ours=a; tasks=4; part=") == -1.25
    for wrong in ("ours=a", "ours=b", "mine=a"):
        with pytest.raises(InputError, match="rows where"):
            sources.look_up(tmp_path, f"x01a_x.csv: change_pct where {wrong}")
    with pytest.raises(InputError, match="rows where"):
        sources.look_up(tmp_path, "x02a_x.csv: change_pct where ours=a")
    with pytest.raises(InputError, match="rows where"):
        sources.look_up(tmp_path, "x01a_x.csv: wrong_pct where ours=a; tasks=4; part=")


def test_what_a_source_leaves_open_must_be_given() -> None:
    found = {"measured": 2.5, "low": 2.4, "high": 2.6, **COMMON}
    with pytest.raises(InputError, match="claim M2: found no 'batch_size'"):
        evaluate_claim(paper_claims()["M2", ""], **found)  # type: ignore[arg-type]
    row = evaluate_claim(paper_claims()["M2", ""], at={"batch_size": 8}, **found)  # type: ignore[arg-type]
    assert str(row["source"]).endswith("; item=resnet50; batch_size=8")


def test_merge_keeps_the_papers_order_and_leaves_the_rest_not_yet(tmp_path: Path) -> None:
    row = evaluate_claim(paper_claims()["H3", "Random"], measured=-31.0, low=-33.0, high=-29.0, **COMMON)  # type: ignore[arg-type]
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/05.json").write_text(json.dumps([row]))
    table = claim_table.write(tmp_path)
    assert list(table.columns) == list(claim_table.COLUMNS)
    assert [key[0] for key in paper_claims()] == list(table["id"])
    evaluated = table[table["verdict"] != "not yet"]
    assert list(evaluated["id"]) == ["H3"]
    assert evaluated["verdict"].item() == "reproduced"
    assert evaluated["measured"].item() == -31.0
    assert evaluated["notebook"].item() == "05"
    assert evaluated["unit"].item() == "%"
    own = sum(one.is_own for one in paper_claims().values())
    counts = f"{own} of the HeShare paper: 1 reproduced, {own - 1} not yet; {len(table) - own} of the other systems: "
    assert claim_table.count_text(table) == f"{counts}{len(table) - own} not yet"
    assert (tmp_path / "claims.csv").read_text().startswith(",".join(claim_table.COLUMNS) + "\n")
    assert json.loads((tmp_path / "claims.json").read_text())["provenance"] == {"emulated": 1}


def test_the_page_has_every_claim_and_no_long_line(tmp_path: Path) -> None:
    forms = {"placed": (-20.0, -25.0, -15.0), "best": (2.0, 1.0, 3.0)}
    found = {"measured": -31.0, "low": -33.0, "high": -29.0, "note": "word " * 300, "forms": forms, **COMMON}
    known = [replace(one, source="") for one in paper_claims().values() if one.kind == "reduction"]
    rows = [evaluate_claim(one, **found) for one in known]  # type: ignore[arg-type]
    ratio = {"measured": 4.2, "low": 3.0, "high": 6.0, "at": {"batch_size": 8}}
    rows.append(evaluate_claim(paper_claims()["M2", ""], **{**COMMON, **ratio}))  # type: ignore[arg-type]
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/05.json").write_text(json.dumps(rows))
    claim_table.write(tmp_path)
    text = (tmp_path / "claims.md").read_text()
    assert max(map(len, text.splitlines())) <= 200
    for id, part in paper_claims():
        assert f"### {id} {part}".rstrip() + ":" in text
    assert "direction (-20.0)" in text
    assert "not reproduced" in text.split("### M2: ")[1]
    words = re.findall(r"[^\s|]*\w[^\s|]*", text)
    assert len(words) <= 5000
    claims = [block.partition("\n")[2] for block in text.split("## Each claim")[1].split("### ")]
    sentences = [set(re.split(r"(?<=[.])\s+(?=[A-Z])", " ".join(block.split()))) - {""} for block in claims]
    assert sum(map(len, sentences)) == len(set().union(*sentences)), "a sentence stands in two claims"
    assert "not reproduced (2.00)" in text


def test_every_claim_that_is_not_reproduced_has_a_reason_of_one_sentence(tmp_path: Path) -> None:
    reference = pd.read_csv(files.root() / "reference/claims.csv.gz", keep_default_na=False)
    (tmp_path / "claims").mkdir()
    failed = {"measured": 5.0, "low": 4.0, "high": 6.0, "holds": {"a part": False}, **COMMON}
    rows = [
        evaluate_claim(replace(one, source="", reading=""), **failed)  # type: ignore[arg-type]
        for one in paper_claims().values()
        if one.kind in ("ordering", "reduction")
    ]
    (tmp_path / "claims/05.json").write_text(json.dumps(rows))
    table = claim_table.merge(tmp_path)
    assert (table["verdict"] == "not reproduced").sum() == len(rows)
    reasons = table.loc[table["verdict"] == "not reproduced", "reason"]
    assert reasons.str.fullmatch(r"[A-Z].{20,200}\.").all()
    known = {(row.id, row.part) for row in reference.itertuples() if row.verdict == "not reproduced"}
    assert not [key for key in known & {*paper_claims()} if not paper_claims()[key].why_not]


def test_write_refuses_an_unknown_claim(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/05.json").write_text(json.dumps([{"id": "Z9", "part": "", "profile": "paper"}]))
    with pytest.raises(InputError, match="Z9"):
        claim_table.write(tmp_path)
    assert not (tmp_path / "claims.csv").exists()


def test_results_of_another_profile_are_not_counted(tmp_path: Path) -> None:
    found = {"measured": -31.0, "low": -33.0, "high": -29.0}
    rows = {"05_comparison": ("H3", "Random", "custom"), "11_single": ("H1", "energy", "paper")}
    (tmp_path / "claims").mkdir()
    for name, (id, part, profile) in rows.items():
        row = evaluate_claim(paper_claims()[id, part], **found, **{**COMMON, "profile": profile})  # type: ignore[arg-type]
        (tmp_path / f"claims/{name}.json").write_text(json.dumps([row]))
    table = claim_table.write(tmp_path).set_index("id")
    assert "of the HeShare paper: 1 larger than published, " in claim_table.count_text(table.reset_index())
    why = "The result of 05_comparison is of the profile custom, not paper: not counted."
    assert why in set(table.loc["H3", "why"])
    assert table.loc["H3", "measured"].isna().all()
    text = (tmp_path / "claims.md").read_text().replace("\n", " ")
    assert "Notebook profile: paper. Not counted, because of another profile: 05_comparison (custom)." in text
    (tmp_path / "claims/11_single.json").unlink()
    claim_table.write(tmp_path)
    text = (tmp_path / "claims.md").read_text().replace("\n", " ")
    assert "Notebook profile: custom. Custom: run by hand" in text
    assert "these are not the paper's results" in text


@pytest.mark.parametrize(("profile", "warned"), [("smoke", True), ("paper", False)])
def test_only_the_profile_smoke_says_that_its_sizes_are_too_small(profile: str, warned: bool, tmp_path: Path) -> None:
    row = evaluate_claim(
        paper_claims()["H1", "energy"], measured=-31.0, low=-33.0, high=-29.0, **{**COMMON, "profile": profile}
    )  # type: ignore[arg-type]
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/05_comparison.json").write_text(json.dumps([row]))
    claim_table.write(tmp_path)
    text = (tmp_path / "claims.md").read_text().replace("\n", " ")
    assert ("far too small for its verdicts to count" in text) == warned
