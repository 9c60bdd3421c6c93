"""Every notebook: its source keeps the rules, and a smoke run gives results that make sense."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from support.pdf_text import texts_outside
from support.smoke_run import smoke

from heshare.paper import harness
from heshare.paper.claims import claim_table
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.claims.verdicts import NOT_YET, UNTESTABLE, VERDICTS
from heshare.paper.figures.series_styles import SERIES
from heshare.paper.figures.style import SMALLEST_PT
from heshare.paper.notebooks import parameters
from heshare.paper.notebooks.execute_notebook import missing_files
from heshare.shared.files import root

SOURCES = parameters.find()
EXACT = {".csv", ".png", ".pdf", ".md", ".html"}
SEVEN = {"Random", "Sched-only", "Morak", "μ-Serve", "JCT-opt", "En-opt", "Trade-off"}


def table(smoke_results: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(smoke_results / f"{name}.csv")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_source_has_parameters_and_no_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert book.metadata["kernelspec"]["name"] == "python3"
    assert book.cells[0].cell_type == "markdown"
    defaults = parameters.read(path).defaults
    assert defaults["profile"] == "paper"
    assert defaults["out_dir"] == ""
    assert "seed" in defaults

    for cell in book.cells:
        if cell.cell_type != "code":
            continue
        assert cell.outputs == []
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith(("./", "../", "/", "~"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_promised_files_have_their_provenance(smoke_results: Path, path: Path) -> None:
    for name in parameters.read(path).outputs:
        assert missing_files(name, smoke_results) == []
        said: dict[str, Any] = json.loads((smoke_results / f"{name}.json").read_text())
        assert said["notebook"] == f"notebooks/{path.name}"
        assert said["notebook_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert said["profile"] == "smoke"
        assert said["parameters"]["seed"] == 0
        assert "out_dir" not in said["parameters"]
        assert set(said["provenance"]) <= {"emulated", "measured", "published"}
        assert sum(said["provenance"].values()) > 0
        assert len(said["data_sha256"]) == 64
        assert {"python", "numpy", "pandas", "matplotlib", "heshare"} <= set(said["versions"])
        assert not table(smoke_results, name).empty
        assert str(root()) not in (smoke_results / f"{name}.json").read_text()


def test_a_run_leaves_no_other_files(smoke_results: Path) -> None:
    assert [path.name for path in smoke_results.iterdir() if path.name.startswith(".")] == []


def test_a_name_has_the_same_colour_in_every_legend(smoke_results: Path) -> None:
    seen: dict[str, set[str]] = {}
    for path in sorted(smoke_results.glob("*.json")):
        for name, colours in json.loads(path.read_text()).get("legend", {}).items():
            seen.setdefault(name, set()).update(colours)
    known = {name: colours for name, colours in seen.items() if name in SERIES}
    assert {"T4", "A100"} <= set(known)
    assert known == {name: {SERIES[name].colour.upper()} for name in known}


def test_no_text_of_a_figure_is_below_the_least_size_in_print(smoke_results: Path) -> None:
    drawn = {path.stem: json.loads(path.read_text()).get("smallest_text_pt") for path in smoke_results.glob("*.json")}
    sizes = {name: size for name, size in drawn.items() if (smoke_results / f"{name}.png").exists()}
    assert {f"fig{number:02d}" for number in range(1, 12)} <= {name[:5] for name in sizes}
    assert {name: size for name, size in sizes.items() if size is None or size < SMALLEST_PT} == {}


def test_every_equation_and_every_line_of_algorithm_1_is_checked(smoke_results: Path) -> None:
    frame = table(smoke_results, "x00a_equations")
    assert (frame["plain Python"] == frame["the library"]).all()
    checked: dict[str, set[int]] = {"Eq": set(), "Line": set()}
    for kind, text in frame["in the paper"].str.extract(r"^(Eq|Line)s?\.? ([\d to,]+)$").dropna().to_numpy():
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        checked[kind] |= set(range(numbers[0], numbers[-1] + 1)) if " to " in text else set(numbers)
    assert checked == {"Eq": set(range(1, 17)), "Line": set(range(1, 24))}
    assert {"Section III-A", *(f"Section III-B 2{operator}" for operator in "abc")} <= {*frame["in the paper"]}


def test_times_and_energies_of_figs_1_and_2(smoke_results: Path) -> None:
    every = table(smoke_results, "fig02_time")
    frame = every[every["provenance"] == "emulated"]
    assert len(frame) == 15 * 3
    assert frame["time_s"].between(1e-4, 2).all()
    assert (frame["time_low_s"] < frame["time_s"]).all()
    assert (frame["time_s"] < frame["time_high_s"]).all()
    assert frame["energy_j"].to_numpy() == pytest.approx((frame["power_w"] * frame["time_s"]).to_numpy())
    watts = frame.groupby("gpu")["power_w"].max()
    assert watts["T4"] <= 70 + 1e-9
    assert watts["V100"] <= 250 + 1e-9
    assert watts["A100"] <= 400 + 1e-9


def test_more_clock_is_never_slower_in_fig_3(smoke_results: Path) -> None:
    frame = table(smoke_results, "fig03_clock")
    for _, part in frame.groupby(["gpu", "batch_size"]):
        assert part["requested_mhz"].is_monotonic_increasing
        assert (part["time_s"].diff().dropna() <= 1e-12).all()
        assert (part["sm_mhz"] <= part["requested_mhz"] + 1e-6).all()


def test_table_3_is_the_papers(smoke_results: Path) -> None:
    frame = table(smoke_results, "table3_gpus")
    assert frame["SM Count"].tolist() == [40, 80, 108]
    assert frame["CUDA Cores"].tolist() == [2560, 5120, 6912]
    assert frame["Power (TDP, W)"].tolist() == [70, 250, 400]
    assert frame["Memory (GB)"].tolist() == [16, 32, 80]


def test_fig_6_and_its_claims_follow_from_its_runs(smoke_results: Path) -> None:
    runs, medians = table(smoke_results, "x04c_runs"), table(smoke_results, "fig06_comparison")
    assert "planning_s" not in runs.columns
    assert set(medians["title"]) >= SEVEN
    for row in medians.itertuples():
        values = runs[runs["title"] == row.title][row.metric]
        assert row.median == pytest.approx(values.median())
        assert values.min() - 1e-6 <= row.low <= row.median <= row.high <= values.max() + 1e-6
    assert (runs["energy_active_j"] <= runs["energy_cluster_j"] * (1 + 1e-9)).all()
    assert runs["avg_jct_s"].to_numpy() == pytest.approx((runs["avg_waiting_s"] + runs["avg_execution_s"]).to_numpy())

    claims = table(smoke_results, "claims").set_index(["id", "part"])
    for (id, part), (ours, theirs, metric) in {
        ("H1", "jct"): ("Trade-off", "Morak", harness.JCT),
        ("H3", "Random"): ("En-opt", "Random", harness.ENERGY),
        ("H4", "En-opt"): ("JCT-opt", "En-opt", harness.JCT),
    }.items():
        wide = runs.pivot_table(index="repetition", columns="title", values=metric)
        change = (100 * (wide[ours] / wide[theirs] - 1)).median()
        assert claims.loc[(id, part), "value"] == pytest.approx(change)


def test_every_claim_is_evaluated(smoke_results: Path) -> None:
    frame = table(smoke_results, "claims")
    assert list(frame.columns) == list(claim_table.COLUMNS)
    assert list(frame["id"]) == [id for id, _ in paper_claims()]
    assert set(frame["verdict"]) <= set(VERDICTS)
    waiting = frame[frame["verdict"] == NOT_YET]
    assert set(waiting["id"]) <= {"G3", "G6"}, "the smoke run has one load"
    assert set(frame.loc[frame["verdict"] == UNTESTABLE, "id"]) >= {"R4", "U5"}

    rivals = frame[frame["id"].isin(["H1", "H2", "G1", "G2", "O1", "O2", "O3", "O4"])]
    assert rivals[["placed", "placed_verdict", "best", "best_verdict"]].notna().all(axis=None)
    numbers = frame.dropna(subset="low")
    assert (numbers["low"] <= numbers["value"]).all()
    assert (numbers["value"] <= numbers["high"]).all()


def test_a_claim_names_an_output_of_its_notebook(smoke_results: Path) -> None:
    frame = table(smoke_results, "claims").dropna(subset="source")
    for row in frame[frame["verdict"] != NOT_YET].to_dict("records"):
        assert row["source"] in parameters.read(parameters.find([row["notebook"]])[0]).outputs, row["id"]


def test_a_missing_recording_gets_one_message(tmp_path: Path) -> None:
    words = ["notebook", "run", "01", "--profile", "smoke", "-p", "source=recorded:H9000", "--out", str(tmp_path / "x")]
    command = [sys.executable, "-m", "heshare", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "data/profiles/measured/H9000" in done.stderr
    assert "heshare profile --device nvml:0" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_two_runs_with_other_hash_seeds_give_the_same_bytes(
    smoke_results: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = smoke(tmp_path_factory.mktemp("two") / "figures", "2")
    written = [path for path in smoke_results.rglob("*") if path.suffix in EXACT]
    # The notebooks' pages show how long planning took.
    names = sorted(path.relative_to(smoke_results) for path in written if path.parent.name != "notebooks")
    assert all((other / name).exists() for name in names)
    assert len(names) > 50
    changed = [str(name) for name in names if (smoke_results / name).read_bytes() != (other / name).read_bytes()]
    assert changed == []


@pytest.mark.slow
def test_no_text_of_a_figure_lies_outside_its_page(smoke_results: Path) -> None:
    outside = {path.name: texts_outside(path) for path in sorted(smoke_results.glob("*.pdf"))}
    assert outside
    assert {name: texts for name, texts in outside.items() if texts} == {}
