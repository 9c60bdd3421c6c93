"""Notebooks 01 to 03: their claims follow from their outputs, and a recorded GPU changes no emulated row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from heshare.paper.claims.verdicts import INSIDE, OUTSIDE


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}.csv")


def claims(folder: Path, notebook: str) -> dict[tuple[str, str], dict[str, object]]:
    rows = json.loads((folder / "claims" / f"{notebook}.json").read_text())
    return {(row["id"], row["part"]): row for row in rows}


def test_claims_of_section_2_follow_from_the_ratios_and_the_pairs(smoke_results: Path) -> None:
    found = claims(smoke_results, "01_motivation")
    assert {id for id, _ in found} == {f"M{number}" for number in range(1, 9)}

    ratios = table(smoke_results, "x01a_ratios").set_index(["workload", "batch_size"])
    for id, workload in (("M2", "resnet50"), ("M3", "bert_large")):
        ratio = ratios.loc[(workload, 8)]
        row = found[id, ""]
        assert [row["value"], row["low"], row["high"]] == ratio[["t4_over_a100", "low", "high"]].tolist()
        assert row["verdict"] in (INSIDE, OUTSIDE)

    pairs = table(smoke_results, "fig04_pairs")
    on_a100 = pairs.loc[(pairs["gpu"] == "A100") & (pairs["provenance"] == "emulated"), "degradation_pct"]
    assert found["M7", ""]["value"] == pytest.approx(on_a100.mean())


def test_claims_of_table_5_are_all_of_its_ten_errors(smoke_results: Path) -> None:
    found = claims(smoke_results, "03_prediction")
    errors = table(smoke_results, "table5_predictors").set_index(["technique", "error"])
    assert len(errors) == 10
    for error in ("absolute", "relative"):
        forest, mlp = errors.loc[("RF", error), "mean_pct"], errors.loc[("MLP", error), "mean_pct"]
        assert found["P1", error]["value"] == forest
        assert found["P2", error]["value"] == mlp
        assert found["P5", error]["value"] == pytest.approx(mlp / forest)
        for technique in ("LR", "DT", "SVR"):
            assert found["P3", f"{technique} {error}"]["value"] == errors.loc[(technique, error), "mean_pct"]
    assert found["P4", ""]["value"] == errors.loc[("RF", "absolute"), "mean_pct"]


@pytest.mark.slow
def test_a_recorded_gpu_is_drawn_with_the_emulated_ones(
    made_up_h100: Path, smoke_results: Path, tmp_path: Path
) -> None:
    words = ["notebook", "run", "01", "--profile", "smoke", "-p", f"source=recorded:{made_up_h100}"]
    command = [sys.executable, "-m", "heshare", *words, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr

    for name, rows in (("fig01_energy", 15), ("fig02_time", 15), ("fig03_clock", 0), ("fig04_pairs", 6)):
        frame, other = table(tmp_path, name), table(smoke_results, name)
        measured = frame[frame["provenance"] == "measured"]
        assert measured["gpu"].tolist() == ["H100"] * rows, "the record has one clock, which is no curve of Fig. 3"
        emulated, expected = (each[each["provenance"] == "emulated"].reset_index(drop=True) for each in (frame, other))
        pd.testing.assert_frame_equal(emulated, expected)
    for key, row in claims(tmp_path, "01_motivation").items():
        assert row["value"] == claims(smoke_results, "01_motivation")[key]["value"]
