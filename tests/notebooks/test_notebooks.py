"""Every notebook, found by glob: its source keeps the rules, and a smoke run gives results that make sense."""

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
import numpy as np
import pandas as pd
import pytest
from support.pdf_text import texts_outside
from support.smoke_run import READS, smoke

from heshare.paper.claims import claim_table, sources
from heshare.paper.claims.verdicts import VERDICTS, paper_claims
from heshare.paper.figures.series_styles import SERIES
from heshare.paper.figures.style import SMALLEST_PT
from heshare.paper.notebooks import kept_outputs, notebook_parameters, run_notebooks
from heshare.paper.notebooks.execute_notebook import missing_files
from heshare.paper.provenance.commit import code_cells
from heshare.paper.provenance.sidecar import declared_inputs
from heshare.paper.studies import scaling
from heshare.shared import plugins
from heshare.shared.files import root

SOURCES = notebook_parameters.find()
EXACT = {".csv", ".png", ".pdf", ".md", ".html"}


def table(smoke_results: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(smoke_results / f"{name}.csv")


def test_every_notebook_declares_its_input_files() -> None:
    declared = declared_inputs()
    assert set(declared) == {"every", *(path.stem for path in SOURCES)}, "each of inputs.yaml is there"
    for patterns in declared.values():
        assert [each for each in patterns if "measured" not in each and not any((root() / "data").glob(each))] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_notebook_source_has_parameters_and_literal_code(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert book.metadata["kernelspec"]["name"] == "python3"
    assert book.cells[0].cell_type == "markdown"
    defaults = notebook_parameters.read(path).defaults
    assert defaults["profile"] == "paper"
    assert defaults["out_dir"] == ""
    assert "seed" in defaults
    for cell in book.cells:
        if cell.cell_type != "code":
            continue
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, ast.ClassDef)
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 10
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith(("./", "../", "/", "~"))
        assert "sys.exit" not in cell.source


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_promised_file_is_there_with_its_provenance(smoke_results: Path, path: Path) -> None:
    for name in notebook_parameters.read(path).outputs:
        assert missing_files(name, smoke_results) == []
        said: dict[str, Any] = json.loads((smoke_results / f"{name}.json").read_text())
        assert said["notebook"] == f"notebooks/{path.name}"
        assert said["notebook_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert said["profile"] == "smoke"
        assert said["parameters"]["seed"] == 0
        assert "out_dir" not in said["parameters"]
        assert set(said["provenance"]) <= {"emulated", "measured", "published"}
        assert sum(said["provenance"].values()) > 0
        assert {"data/gpus.csv", "data/workloads.csv"} <= set(said["input_files"])
        assert "data/live" not in " ".join(said["input_files"])
        assert {"python", "numpy", "pandas", "matplotlib", "heshare"} <= set(said["versions"])
        assert not table(smoke_results, name).empty
        assert str(root()) not in (smoke_results / f"{name}.json").read_text()


def test_input_files_are_those_that_the_notebook_reads(smoke_results: Path) -> None:
    books: dict[str, set[str]] = {}
    data: dict[str, set[str]] = {}
    for line in (smoke_results.parent / READS).read_text().splitlines():
        pid, _, path = line.partition(" ")
        if path.startswith("data/"):
            data.setdefault(pid, set()).add(path)
        elif path.endswith(".ipynb"):
            books.setdefault(pid, set()).add(path)
    # Kernels are forked from a process that has read these already; what of them a kernel uses cannot be seen.
    before = set().union(*(paths for pid, paths in data.items() if pid not in books))
    checked = 0
    for pid, (path, *others) in books.items():
        notebook = notebook_parameters.read(root() / path)
        if others:
            continue
        read = data.get(pid, set())
        declared = set(json.loads((smoke_results / f"{notebook.outputs[0]}.json").read_text())["input_files"])
        recordings = {file for file in declared if file.startswith("data/profiles/measured/")}
        assert read <= declared, f"{path}: declare {read - declared} in notebooks/inputs.yaml"
        # With optional outputs it reads more where a GPU has been recorded.
        unread = set() if notebook.optional else declared - read - before - recordings
        assert unread == set(), f"{path} does not read {unread}"
        checked += 1
    assert checked >= len(SOURCES) - 3


def test_what_kept_outputs_depend_on_has_every_policy_that_ran(smoke_results: Path) -> None:
    own = dict(zip(plugins.names(plugins.POLICIES), plugins.modules(plugins.POLICIES), strict=True))
    checked = set()
    for run in run_notebooks.prepare(SOURCES, "smoke", {}, smoke_results):
        code = "\n".join(code_cells(run.notebook.path.read_text()))
        modules, _ = kept_outputs.closure(code, kept_outputs.strings_of(run.values))
        for name in run.notebook.outputs:
            frame = table(smoke_results, name)
            ran = set(frame.get("policy", pd.Series(dtype=str)).dropna().map(lambda text: re.split(r"[:(/]", text)[0]))
            assert {own[policy] for policy in ran & own.keys()} <= modules.keys(), (run.notebook.name, name)
            checked |= ran & own.keys()
    assert len(checked) > 9


def test_a_run_of_notebooks_leaves_no_other_files(smoke_results: Path) -> None:
    assert [path.name for path in smoke_results.iterdir() if path.name.startswith(".")] == []


def test_a_name_has_the_same_colour_in_every_legend(smoke_results: Path) -> None:
    seen: dict[str, set[str]] = {}
    for path in sorted(smoke_results.glob("*.json")):
        for name, colours in json.loads(path.read_text()).get("legend", {}).items():
            seen.setdefault(name, set()).update(colours)
    known = {name: colours for name, colours in seen.items() if name in SERIES}
    assert {"T4", "A100", "HeShare+"} <= set(known)
    assert known == {name: {SERIES[name].colour.upper()} for name in known}


def test_no_text_of_a_figure_is_below_the_least_size_in_print(smoke_results: Path) -> None:
    drawn = {path.stem: json.loads(path.read_text()).get("smallest_text_pt") for path in smoke_results.glob("*.json")}
    sizes = {name: size for name, size in drawn.items() if (smoke_results / f"{name}.png").exists()}
    assert len(sizes) > 25
    assert {name: size for name, size in sizes.items() if size is None or size < SMALLEST_PT} == {}


MOST_WORDS = 60


def test_a_caption_is_short(smoke_results: Path) -> None:
    said = [json.loads(path.read_text()) for path in sorted(smoke_results.glob("*.json"))]
    # The last sentence says where the values come from.
    texts = {one["name"]: one["caption"].rpartition(". ")[0] for one in said if one.get("notebook")}
    assert len(texts) > 70
    words = {name: len(text.split()) for name, text in texts.items()}
    assert {name: count for name, count in words.items() if count > MOST_WORDS} == {}


def test_every_equation_and_every_line_of_algorithm_1_is_checked(smoke_results: Path) -> None:
    frame = table(smoke_results, "x00b_equations")
    assert (frame["plain Python"] == frame["the library"]).all()
    checked: dict[str, set[int]] = {"Eq": set(), "Line": set()}
    for kind, text in frame["in the paper"].str.extract(r"^(Eq|Line)s?\.? ([\d to,]+)$").dropna().to_numpy():
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        checked[kind] |= set(range(numbers[0], numbers[-1] + 1)) if " to " in text else set(numbers)
    assert checked == {"Eq": set(range(1, 17)), "Line": set(range(1, 24))}
    assert {"Section III-A", *(f"Section III-B 2{operator}" for operator in "abc")} <= {*frame["in the paper"]}


def test_times_and_energies_of_figs_1_and_2(smoke_results: Path) -> None:
    frame = table(smoke_results, "fig02_time")
    assert len(frame) == 15 * 3
    assert frame["time_s"].between(1e-4, 2).all()
    assert (frame["time_low_s"] < frame["time_s"]).all()
    assert (frame["time_s"] < frame["time_high_s"]).all()
    assert frame["energy_j"].to_numpy() == pytest.approx((frame["power_w"] * frame["time_s"]).to_numpy())
    watts = frame.groupby("gpu")["power_w"].max()
    assert watts["T4"] <= 70 + 1e-9
    assert watts["V100"] <= 250 + 1e-9
    assert watts["A100"] <= 400 + 1e-9
    bert = frame[frame["workload"] == "bert_large"].set_index("gpu")["time_s"]
    assert bert["T4"] > bert["V100"] > bert["A100"]


def test_more_clock_is_never_slower_in_fig_3(smoke_results: Path) -> None:
    frame = table(smoke_results, "fig03_clock")
    for _, part in frame.groupby(["gpu", "batch_size"]):
        assert part["requested_mhz"].is_monotonic_increasing
        assert (part["time_s"].diff().dropna() <= 1e-12).all()
        assert (part["sm_mhz"] <= part["requested_mhz"] + 1e-6).all()


def test_table_5_is_complete_and_bounded(smoke_results: Path) -> None:
    frame = table(smoke_results, "x04a_errors")
    assert set(frame["technique"]) == {"SVR", "DT", "LR", "MLP", "RF", "HeShare's forest", "Physics"}
    assert set(frame["data"]) == {"emulated", "published"}
    assert set(frame["split"]) == {"row", "workload", "gpu"}
    assert (frame["low_pct"] <= frame["mean_pct"] + 1e-9).all()
    assert (frame["mean_pct"] <= frame["high_pct"] + 1e-9).all()
    frame = frame[frame["settings"] == "tuned"]
    forest = frame[(frame["technique"] == "RF") & (frame["split"] == "row")]
    assert forest["mean_pct"].between(0.1, 30).all()
    every = table(smoke_results, "table5_predictors")
    assert every["Settings"].unique().tolist() == ["defaults", "defaults, throughput", "tuned"]
    wide = every[every["Settings"] == "tuned"].set_index("Model")
    both = frame[frame["quantity"] == "both"].set_index(["data", "split", "technique", "error"])["mean_pct"]
    assert wide.loc["MLP", "New workloads: relative error (%)"] == pytest.approx(
        both["emulated", "workload", "MLP", "relative"], abs=0.006
    )
    assert wide["Paper: absolute error (%)"].dropna().tolist() == [26.73, 24.51, 23.78, 12.12, 3.10]
    text = (smoke_results / "x04a_errors.md").read_text()
    assert "form of the emulated device, which flatters" in text
    assert " lead with rows held out" in text


@pytest.mark.slow
def test_a_recorded_gpu_is_compared_with_the_device_models_forms(made_up_h100: Path, tmp_path: Path) -> None:
    words = ["notebook", "run", "13", "--profile", "smoke", "-p", f"source=recorded:{made_up_h100}"]
    command = [sys.executable, "-m", "heshare", *words, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    errors = table(tmp_path, "x13b_forms")
    assert {"inference batch size", "pairs"} <= set(errors["form"])
    control = errors[errors["provenance"] == "emulated"]
    assert (control["shipped_pct"] < 1).all(), "there the shipped model is the truth, and noise is 1 %"
    assert (control["shipped_pct"] < control["fitted_pct"]).all()
    assert set(errors[errors["provenance"] == "measured"]["gpu"]) == {"H100"}
    assert (tmp_path / "x13b_forms.md").exists()
    noise = table(tmp_path, "x13c_noise").set_index(["gpu", "workload"])
    assert noise.loc[("A100", "all"), "time_pct"] == pytest.approx(0.99, rel=0.1)
    assert noise.loc[("A100", "all"), "power_pct"] == pytest.approx(0.36, rel=0.1)


@pytest.mark.slow
def test_a_recorded_gpu_is_shown_beside_emulated_ones(made_up_h100: Path, smoke_results: Path, tmp_path: Path) -> None:
    words = ["notebook", "run", "01", "--profile", "smoke", "-p", f"source=recorded:{made_up_h100}"]
    environment = {**os.environ}
    command = [sys.executable, "-m", "heshare", *words, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    for name, rows in (("fig01_energy", 15), ("fig02_time", 15), ("fig03_clock", 0), ("fig04_pairs", 6)):
        frame, plain = table(tmp_path, name), table(smoke_results, name)
        measured = frame[frame["provenance"] == "measured"]
        assert measured["gpu"].tolist() == ["H100"] * rows, "the record has one clock, which is no curve of Fig. 3"
        pd.testing.assert_frame_equal(frame[frame["provenance"] == "emulated"].reset_index(drop=True), plain)
        said: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text())
        assert said["provenance"] == {"emulated": len(plain), **({"measured": rows} if rows else {})}
        assert "H100 (measured)" in said["caption"]
    name = "01_motivation.json"
    custom, plain = ((folder / "claims" / name).read_text() for folder in (tmp_path, smoke_results))
    assert custom.replace('"profile": "custom"', '"profile": "smoke"') == plain


def test_a_missing_recording_gets_one_message(tmp_path: Path) -> None:
    words = ["notebook", "run", "01", "--profile", "smoke", "-p", "source=recorded:H9000", "--out", str(tmp_path / "x")]
    environment = {**os.environ}
    command = [sys.executable, "-m", "heshare", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "data/profiles/measured/H9000" in done.stderr
    assert "heshare profile --device nvml:0" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_notebook_01_runs_with_a_batch_size_that_it_does_not_list(tmp_path: Path) -> None:
    given = {"batch_size": 5, "clock_points": 3}
    run_notebooks.run(notebook_parameters.find(["01"]), profile="smoke", given=given, out=tmp_path, jobs=1, quiet=True)
    assert table(tmp_path, "fig02_time")["batch_size"].unique().tolist() == [5]
    assert "Inference batch size 5 " in json.loads((tmp_path / "fig02_time.json").read_text())["caption"]


def test_fig_6_agrees_with_its_runs(smoke_results: Path) -> None:
    runs, medians = table(smoke_results, "x05a_runs"), table(smoke_results, "fig06_comparison")
    assert "planning_s" not in runs.columns
    for row in medians.itertuples():
        values = runs[runs["title"] == row.title][row.metric]
        assert row.median == pytest.approx(values.median())
        assert values.min() - 1e-6 <= row.low <= row.median <= row.high <= values.max() + 1e-6
    assert (runs["energy_active_j"] <= runs["energy_cluster_j"] * (1 + 1e-9)).all()
    assert runs["avg_jct_s"].to_numpy() == pytest.approx((runs["avg_waiting_s"] + runs["avg_execution_s"]).to_numpy())


def test_medians_of_figs_8_to_11_follow_from_their_published_runs(smoke_results: Path) -> None:
    for runs_name, names, by in (
        ("x10c_runs", ("fig08_mixes_jct", "fig09_mixes_energy"), ["cluster", "load"]),
        ("x11c_runs", ("fig10_single_jct", "fig11_single_energy"), ["cluster", "tasks"]),
    ):
        runs = table(smoke_results, runs_name)
        for row in pd.concat([table(smoke_results, name) for name in names]).astype({"n": str}).to_dict("records"):
            mixed = "Mix" in row
            world = [row["Mix"], row["Load"].removesuffix(" load")] if mixed else [f"2x{row['GPU']}", str(row["tasks"])]
            here = runs[(runs[by].astype(str) == world).all(axis=1)]
            if scaling.ALL in world:
                here = runs.assign(**{row["metric"]: np.log(runs[row["metric"]])})
            here = here.pivot_table(index="repetition", columns="title", values=row["metric"])
            here = np.exp(here) if scaling.ALL in world else here
            assert here[row["title"]].median() == pytest.approx(row["median"], rel=1e-12)
            assert (here[row["title"]] / here["Trade-off"]).median() == pytest.approx(row["ratio"], rel=1e-12)


def test_changes_of_the_sensitivity_study_follow_from_its_published_runs(smoke_results: Path) -> None:
    runs, found = table(smoke_results, "x12e_runs"), table(smoke_results, "x12a_sensitivity")
    rows = found[(found["id"] == "H1") & (found["form"] == "paper's set-up")]
    assert len(rows) > 2
    for row in rows.fillna("").to_dict("records"):
        here = runs.fillna("")
        here = here[(here["axis"] == row["axis"]) & (here["level"] == row["level"]) & (here["world"] == "mix mixed")]
        here = here[here["form"].isin(["", row["form"]])]
        wide = here.pivot_table(index="repetition", columns="title", values=row["metric"])
        assert 100 * (wide["Trade-off"] / wide["Morak"] - 1).median() == pytest.approx(row["change_pct"])


def test_changes_between_searches_follow_from_their_published_runs(smoke_results: Path) -> None:
    runs, changes = table(smoke_results, "x05d_runs"), table(smoke_results, "x05a_search")
    assert not changes.empty
    for row in changes.to_dict("records"):
        wide = runs.pivot_table(index="repetition", columns="title", values=row["metric"])
        expected = (100 * (wide[row["ours"]] / wide[row["theirs"]] - 1)).median()
        assert row["change_pct"] == pytest.approx(expected, abs=1e-9)


def test_fronts_of_fig_7_fall_from_left_to_right(smoke_results: Path) -> None:
    fronts = table(smoke_results, "fig07_fronts")
    assert set(fronts["title"]) == {"HeShare", "SPEA2", "NSGA-II", "MOEA/D"}
    for _, front in fronts.groupby("title"):
        assert front["energy_j"].is_monotonic_increasing
        assert front["jct_s"].is_monotonic_decreasing


@pytest.mark.parametrize("name", ["fig08_mixes_jct", "fig09_mixes_energy", "fig10_single_jct", "fig11_single_energy"])
def test_mixes_and_single_kinds_have_every_system_in_every_world(smoke_results: Path, name: str) -> None:
    frame = table(smoke_results, name)
    world = [column for column in ("Load", "Mix", "GPU", "tasks") if column in frame]
    worlds = frame.groupby(world)
    assert (worlds["title"].nunique() == 12).all()
    assert set(scaling.SEVEN) <= set(frame["title"])
    same = frame[frame["title"] == scaling.REFERENCE]
    assert (same[["ratio", "ratio_low", "ratio_high"]] == 1.0).to_numpy().all()
    assert frame["ratio"].between(frame["ratio_low"], frame["ratio_high"]).all()
    accounts = {"jct": {"avg_jct_s"}, "energy": {"energy_active_j", "energy_cluster_j"}}
    assert set(frame["metric"]) == accounts[name.rpartition("_")[2]]
    wide = frame.pivot_table(index=[*world, "title"], columns="metric", values="median")
    if len(wide.columns) == 2:
        assert (wide["energy_active_j"] <= wide["energy_cluster_j"] * (1 + 1e-9)).all()
    assert worlds.ngroups in (3, 4, 4 + 3)
    assert (frame["low"] <= frame["median"]).all()
    assert (frame["median"] <= frame["high"]).all()


def test_a_claim_that_fails_has_a_reason(smoke_results: Path) -> None:
    frame = table(smoke_results, "claims")
    failed = frame[frame["verdict"].isin(["direction", "not reproduced"]) & frame["id"].isin(["O3", "O4"])]
    assert not failed.empty
    assert failed["details"].str.contains(" Why: ").all()
    studies = table(smoke_results, "x12d_reasons")
    assert (studies["low"] <= studies["value"]).all()
    bounds = studies[studies["variant"] == "proven bound"].set_index("study")["value"]
    own = studies[(studies["variant"] == "En-opt") & studies["measure"].str.startswith("energy")].set_index("study")[
        "value"
    ]
    assert (bounds <= own + 1e-6).all()


def test_the_claims_figure_shows_the_claims_table(smoke_results: Path) -> None:
    shown, frame = table(smoke_results, "claims_figure"), table(smoke_results, "claims")
    assert shown["id"].tolist() == frame["id"].tolist()
    assert shown["verdict"].tolist() == frame["verdict"].tolist()
    numbers = shown["kind"] != "ordering"
    assert shown[numbers]["value"].tolist() == pytest.approx(frame[numbers]["measured"].tolist(), nan_ok=True)
    assert (smoke_results / "claims_figure.png").stat().st_size > 0


def test_no_plan_is_better_than_the_exact_front_or_the_bound(smoke_results: Path) -> None:
    exact = table(smoke_results, "x08a_exact")
    assert (exact["hypervolume"] <= 1 + 1e-9).all()
    assert (exact["hypervolume"] > 0.9).all()
    assert exact["gap_pct"].between(-1e-9, 5).all()
    gaps = table(smoke_results, "x08d_gaps")
    assert (gaps["gap_pct"] > 0).all()
    assert (gaps["relaxation_pct"] > 0).all()
    points = table(smoke_results, "x08c_bound")
    assert (points.dropna(subset="gap_pct")["gap_pct"] > 0).all()
    assert set(points["series"]) == {"HeShare", "HeShare+", "proven bound"}


def test_claims_are_evaluated_from_the_notebooks(smoke_results: Path) -> None:
    frame = table(smoke_results, "claims")
    assert list(frame.columns) == list(claim_table.COLUMNS)
    priced = frame[frame["verdict"] != "not yet"]
    assert set(priced["id"]) == {id for id, _ in paper_claims()}
    assert set(priced["verdict"]) <= set(VERDICTS)
    unmeasured = priced[priced["measured"].isna()]
    assert list(unmeasured["id"]) == ["R4", "U5"]
    assert (unmeasured["verdict"] == "not testable").all()
    assert (priced.drop(index=unmeasured.index)["provenance"] == "emulated").all()
    assert priced["why"].str.len().between(10, claim_table.LONGEST).all()
    rivals = priced[priced["id"].isin(["H1", "H2", "G1", "G2", "O1", "O2", "O3", "O4"])]
    assert rivals[["placed", "placed_verdict", "best", "best_verdict"]].notna().all(axis=None)
    numbers = priced.dropna(subset="low")
    assert (numbers["low"] <= numbers["measured"]).all()
    assert (numbers["measured"] <= numbers["high"]).all()
    runs = table(smoke_results, "x05a_runs").pivot_table(index="repetition", columns="title", values="energy_active_j")
    change = (100 * (runs["En-opt"] / runs["Random"] - 1)).median()
    mine = frame[(frame["id"] == "H3") & frame["statement"].str.contains("Random")]
    assert mine["measured"].item() == pytest.approx(change)


def test_every_measured_value_of_a_claim_stands_in_its_source(smoke_results: Path) -> None:
    every = table(smoke_results, "claims")
    lacking = every[every["measured"].isna()]
    assert set(lacking["id"]) == {"R4", "U5", "G3", "G6"}, "what the platform lacks, and loads that are not run"
    frame = every.dropna(subset="measured")
    for row in frame.to_dict("records"):
        found = sources.look_up(smoke_results, str(row["source"]))
        assert found == pytest.approx(row["measured"], rel=1e-9), f"{row['id']} {row['part']}: {row['source']}"


def test_what_sharing_is_worth_to_language_models_follows_from_its_runs(smoke_results: Path) -> None:
    runs, changes = table(smoke_results, "x25c_language_runs"), table(smoke_results, "x25b_worth")
    assert {"Trade-off", "Morak", "μ-Serve", "SRTF", "Marginal", "Sched-only", "Random"} <= set(runs["title"])
    assert (runs[["token_j", "ttft_s", "tpot_ms", "latency_s"]] > 0).all(axis=None)
    assert (runs["latency_s"] > runs["ttft_s"]).all()
    for row in changes.to_dict("records"):
        wide = runs[runs["load"] == row["load"]].pivot_table(index="repetition", columns="title", values=row["metric"])
        change = (100 * (wide[row["title"]] / wide[f"{row['title']}, one at a time"] - 1)).median()
        assert row["change_pct"] == pytest.approx(change, abs=1e-9)
        assert row["low"] <= row["change_pct"] <= row["high"]
    drawn = table(smoke_results, "x25a_token_energy").set_index(["load", "title", "metric"])["median"]
    ttft_s = runs.groupby(["load", "title"])["ttft_s"].median()
    assert drawn["high", "Marginal", "ttft_s"] == pytest.approx(ttft_s["high", "Marginal"])
    for name in ("x25a_token_energy", "x25b_worth"):
        assert "assumed" in json.loads((smoke_results / f"{name}.json").read_text())["caption"]


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


def test_table_3_is_the_papers(smoke_results: Path) -> None:
    frame = table(smoke_results, "table3_gpus")
    assert frame["SM Count"].tolist() == [40, 80, 108]
    assert frame["CUDA Cores"].tolist() == [2560, 5120, 6912]
    assert frame["Power (TDP, W)"].tolist() == [70, 250, 400]
    assert frame["Memory (GB)"].tolist() == [16, 32, 80]
    assert frame.columns[:5].str.startswith(("GPU Platform", "SM Count", "CUDA Cores", "Power", "Memory")).all()


@pytest.mark.slow
def test_no_text_of_a_figure_lies_outside_its_page(smoke_results: Path) -> None:
    outside = {path.name: texts_outside(path) for path in sorted(smoke_results.glob("*.pdf"))}
    assert outside
    assert {name: texts for name, texts in outside.items() if texts} == {}
