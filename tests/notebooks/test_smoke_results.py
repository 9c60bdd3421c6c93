"""Results of the smoke run: laws of time and energy, and claims that follow from the rows they are made of."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from heshare.paper.claims.verdicts import INSIDE, OUTSIDE
from heshare.paper.harness import ENERGY, JCT

SEVEN = {"Random", "Sched-only", "Morak", "μ-Serve", "JCT-opt", "En-opt", "Trade-off"}


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}.csv")


def claims(folder: Path, notebook: str) -> dict[tuple[str, str], dict[str, object]]:
    rows = json.loads((folder / "claims" / f"{notebook}.json").read_text())
    return {(row["id"], row["part"]): row for row in rows}


def test_equations_checked(smoke_results: Path) -> None:
    """Notebook 00 compares every equation and every line of Algorithm 1 with the library."""
    frame = table(smoke_results, "x00a_equations")
    assert (frame["plain Python"] == frame["the library"]).all()

    checked: dict[str, set[int]] = {"Eq": set(), "Line": set()}
    for kind, text in frame["in the paper"].str.extract(r"^(Eq|Line)s?\.? ([\d to,]+)$").dropna().to_numpy():
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        checked[kind] |= set(range(numbers[0], numbers[-1] + 1)) if " to " in text else set(numbers)
    assert checked == {"Eq": set(range(1, 17)), "Line": set(range(1, 24))}
    assert {"Section III-A", *(f"Section III-B 2{operator}" for operator in "abc")} <= {*frame["in the paper"]}


def test_energy(smoke_results: Path) -> None:
    """In Figs. 1 and 2 energy is power times time, and power is within the limit of the card."""
    every = table(smoke_results, "fig02_time")
    frame = every[every["provenance"] == "emulated"]
    assert len(frame) == 15 * 3
    assert (frame["time_low_s"] < frame["time_s"]).all()
    assert (frame["time_s"] < frame["time_high_s"]).all()
    assert frame["energy_j"].to_numpy() == pytest.approx((frame["power_w"] * frame["time_s"]).to_numpy())

    most_w = frame.groupby("gpu")["power_w"].max()
    for gpu, limit_w in {"T4": 70, "V100": 250, "A100": 400}.items():
        assert most_w[gpu] <= limit_w + 1e-9


def test_clock(smoke_results: Path) -> None:
    """In Fig. 3 a higher clock is never slower."""
    frame = table(smoke_results, "fig03_clock")
    for _, part in frame.groupby(["gpu", "batch_size"]):
        assert part["requested_mhz"].is_monotonic_increasing
        assert (part["time_s"].diff().dropna() <= 1e-12).all()
        assert (part["sm_mhz"] <= part["requested_mhz"] + 1e-6).all()


def test_claims_of_section_2(smoke_results: Path) -> None:
    """Claims of Section II follow from the ratios and the pairs."""
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


def test_fig_6(smoke_results: Path) -> None:
    """Fig. 6 and its claims follow from its runs, whose JCT is waiting and execution time."""
    runs, medians = table(smoke_results, "x04c_runs"), table(smoke_results, "fig06_comparison")
    assert "planning_s" not in runs.columns
    assert set(medians["title"]) >= SEVEN
    for row in medians.itertuples():
        values = runs[runs["title"] == row.title][row.metric]
        assert row.median == pytest.approx(values.median())
        assert values.min() - 1e-6 <= row.low <= row.median <= row.high <= values.max() + 1e-6
    assert (runs["energy_active_j"] <= runs["energy_cluster_j"] * (1 + 1e-9)).all()
    assert runs[JCT].to_numpy() == pytest.approx((runs["avg_waiting_s"] + runs["avg_execution_s"]).to_numpy())

    found = table(smoke_results, "claims").set_index(["id", "part"])
    for (id, part), (ours, theirs, metric) in {
        ("H1", "jct"): ("Trade-off", "Morak", JCT),
        ("H3", "Random"): ("En-opt", "Random", ENERGY),
        ("H4", "En-opt"): ("JCT-opt", "En-opt", JCT),
    }.items():
        wide = runs.pivot_table(index="repetition", columns="title", values=metric)
        change = (100 * (wide[ours] / wide[theirs] - 1)).median()
        assert found.loc[(id, part), "value"] == pytest.approx(change)


def test_searches(smoke_results: Path) -> None:
    """Changes between searches follow from their runs, fronts of Fig. 7 fall, and S1 is the smallest lead."""
    runs, changes = table(smoke_results, "x05d_runs"), table(smoke_results, "x05a_search")
    assert len(changes) == 12, "three rivals from two starts, as run and as predicted"
    for row in changes.to_dict("records"):
        wide = runs.pivot_table(index="repetition", columns="title", values=row["metric"])
        expected = (100 * (wide[row["ours"]] / wide[row["theirs"]] - 1)).median()
        assert row["change_pct"] == pytest.approx(expected, abs=1e-9)

    fronts = table(smoke_results, "fig07_fronts")
    assert set(fronts["title"]) == {"HeShare", "SPEA2", "NSGA-II", "MOEA/D"}
    for _, front in fronts.groupby("title"):
        assert front["energy_j"].is_monotonic_increasing
        assert front["jct_s"].is_monotonic_decreasing

    at_random = changes[(changes["metric"] == "hypervolume") & ~changes["theirs"].str.endswith("start")]
    found = table(smoke_results, "claims").set_index("id")
    assert found.loc["S1", "value"] == pytest.approx(at_random["change_pct"].min())


@pytest.mark.nightly
def test_recorded_gpu(made_up_h100: Path, tmp_path: Path) -> None:
    """A recorded GPU is drawn as measured, in a folder of its own; what it cannot answer is left out."""
    words = ["notebook", "run", "01", "--profile", "smoke", "-p", f"source=recorded:{made_up_h100}"]
    command = [sys.executable, "-m", "heshare", *words, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr

    (out,) = tmp_path.glob("recorded-*")
    for name, rows in (("fig01_energy", 15), ("fig02_time", 15), ("fig04_pairs", 6)):
        assert table(out, name)["provenance"].tolist() == ["measured"] * rows
    assert not (out / "fig03_clock.csv").exists(), "the record has one clock, which is no curve of Fig. 3"
    assert {row["answer"] for row in claims(out, "01_motivation").values()} <= {"holds", "does not hold"}
