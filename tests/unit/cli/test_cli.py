"""The command line: output, JSON, and one message with exit code 2 for every kind of bad input."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heshare.cli import HELP, app
from heshare.cli.compare_command import compare
from heshare.cli.run_command import run
from heshare.shared import files, plugins
from heshare.shared.files import root

RUN = CliRunner()
SMALL = ("--cluster", "1xT4,1xA100", "--tasks", "4")


def json_of(*words: str) -> dict[str, object]:
    result = RUN.invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    document: dict[str, object] = json.loads(result.stdout)
    return document


def test_help_lists_every_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "heshare", "--help"],
        capture_output=True,
        text=True,
        cwd=root(),
        env={**os.environ},
        check=True,
    )
    commands = "advise calibrate compare doctor estimate jobs list live notebook plan profile restore run"
    for command in commands.split():
        assert f"  {command} " in done.stdout
    assert sorted(HELP) == commands.split() == sorted(plugins.names(plugins.COMMANDS))


def test_estimate_prints_the_estimate_of_the_library() -> None:
    import heshare as hs

    document = json_of("estimate", "V100", "resnet50:16@50", "vgg19:8@50")
    estimate = hs.estimate("V100", ["resnet50:16@50", "vgg19:8@50"])
    assert document["power_w"] == estimate.power_w
    assert document["sm_mhz"] == estimate.sm_mhz
    tasks = document["tasks"]
    assert isinstance(tasks, list)
    assert [(t["workload"], t["batch_size"], t["mps_pct"]) for t in tasks] == [("resnet50", 16, 50), ("vgg19", 8, 50)]
    assert [t["time_s"] for t in tasks] == [t.time_s for t in estimate.tasks]


def test_estimate_prints_the_90_pct_interval_of_each_time_and_of_the_power() -> None:
    document = json_of("estimate", "V100", "resnet50:16@50")
    assert document["power_low_w"] < document["power_w"] < document["power_high_w"]  # type: ignore[operator]
    (task,) = document["tasks"]  # type: ignore[misc]
    assert task["time_low_s"] < task["time_s"] < task["time_high_s"]
    assert 0 < task["uncertainty_inside"] < task["uncertainty"]


def test_plan_prints_the_gap_of_each_plan_to_the_bound() -> None:
    document = json_of("plan", *SMALL, "--improved")
    gaps = [row["gap_pct"] for row in document["rows"]]  # type: ignore[attr-defined]
    assert all(0 < gap < 10 for gap in gaps)
    hurried = json_of("plan", *SMALL, "--improved", "--bound", "--budget", "0.5")
    assert all("gap_pct" in row for row in hurried["rows"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "reason"), [(("--budget", "0.1"), "no time for it"), (("--no-bound",), "--no-bound")]
)
def test_plan_says_why_no_gap_is_proven(words: tuple[str, ...], reason: str) -> None:
    document = json_of("plan", *SMALL, "--improved", *words)
    assert document["gap"] == f"not proven ({reason}); --bound proves it"
    assert all("gap_pct" not in row for row in document["rows"])  # type: ignore[attr-defined]


def test_plan_names_the_three_plans_and_writes_them(tmp_path: Path) -> None:
    document = json_of("plan", *SMALL, "--out", str(tmp_path / "out"))
    rows = document["rows"]
    assert isinstance(rows, list)
    assert {name for row in rows for name in row["choice"].split("/") if name} == {"Trade-off", "En-opt", "JCT-opt"}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    plans = {f"plan-{name}.{end}" for name in ("en-opt", "jct-opt", "trade-off") for end in ("csv", "json")}
    assert names == {"front.csv", "tasks.csv", *plans}
    again = json_of("plan", "--cluster", "1xT4,1xA100", "--tasks", str(tmp_path / "out/tasks.csv"))
    assert again["rows"] == rows, "the written tasks are the tasks that were planned"


def test_run_prints_a_row_for_every_task() -> None:
    document = json_of("run", *SMALL, "--policy", "random")
    rows = document["rows"]
    assert isinstance(rows, list)
    assert [row["task"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert row["jct_s"] == pytest.approx(row["waiting_s"] + row["execution_s"])
    assert 0 < document["energy_active_j"] <= document["energy_cluster_j"]  # type: ignore[operator]


def test_compare_prints_every_policy() -> None:
    document = json_of("compare", *SMALL, "--policy", "random", "--policy", "sched-only", "--seeds", "2")
    rows = document["rows"]
    assert isinstance(rows, list)
    assert [row["title"] for row in rows] == ["Random", "Sched-only"] * 2
    table = RUN.invoke(app, ["compare", *SMALL, "--policy", "random", "--seeds", "1"])
    assert table.exit_code == 0
    assert "Random" in table.stdout


TOYS = "predictors: 'heshare.testing.toy:ToyPredictor'\ndevices: 'heshare.testing.toy:toy_devices'\n"


@pytest.mark.slow
def test_compare_runs_a_grid_and_continues_it(tmp_path: Path, kept_cells: None) -> None:
    grid, cells = tmp_path / "grid.yaml", tmp_path / "cells"
    grid.write_text(f"policies: [random, sched-only]\nclusters: [1xT4, 2xT4]\ntasks: 3\nseeds: 2\n{TOYS}")
    words = ["compare", "--grid", str(grid), "--cells", str(cells), "--out"]
    document = json_of(*words, str(tmp_path / "one"))
    rows = document["rows"]
    assert isinstance(rows, list)
    assert [row["cluster"] for row in rows] == ["1xT4"] * 4 + ["2xT4"] * 4
    stored = {path: path.read_bytes() for path in cells.glob("??/*.json")}
    assert len(stored) == 8
    assert json_of(*words, str(tmp_path / "two")) == document, "wall time included: nothing was run again"
    shutil.rmtree(cells)
    again = RUN.invoke(app, [*words, str(tmp_path / "three")])
    assert again.exit_code == 0, again.output
    assert {path: path.read_bytes() for path in cells.glob("??/*.json")} != stored
    assert "2xT4" in again.stdout
    for name in ("runs.csv", "medians.csv"):
        assert len({(tmp_path / folder / name).read_bytes() for folder in ("one", "two", "three")}) == 1


@pytest.mark.usefixtures("kept_cells")
def test_medians_are_grouped_by_every_axis_that_varies(tmp_path: Path) -> None:
    axes = "clusters: [1xT4, 1xA100]\ntasks: [2, 3]\nloads: [low, high]\nstart_costs_s: [0, 5]\n"
    (tmp_path / "grid.yaml").write_text(f"policies: random\nseeds: 1\n{axes}{TOYS}")
    done = RUN.invoke(app, ["compare", "--grid", str(tmp_path / "grid.yaml"), "--cells", str(tmp_path / "cells")])
    assert done.exit_code == 0, done.output
    for word in ("cluster", "tasks", "load", "start_cost_s", "1xA100", "high", "policy"):
        assert word in done.stdout
    assert "arrivals" not in done.stdout
    assert sum(line.startswith(("1xT4 ", "1xA100 ")) for line in done.stdout.splitlines()) == 16


def test_run_and_compare_share_their_options() -> None:
    ours, theirs = (set(inspect.signature(command).parameters) - {"context"} for command in (run, compare))
    assert ours - theirs == {"plan", "repetition"}
    assert theirs - ours == {"grid", "seeds", "jobs", "cells"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--grid", "nowhere.yaml"), "nowhere.yaml: found no such file"),
        (("--grid", "nowhere.yaml", "--load", "low"), "found a grid and load"),
        (("--load", "hihg"), "found 'hihg'"),
        (("--policy", "randm"), "found 'randm'"),
    ],
)
def test_compare_refuses_bad_input_with_one_message(words: tuple[str, ...], message: str) -> None:
    done = RUN.invoke(app, ["compare", *words])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_run_writes_a_timeline_for_perfetto(tmp_path: Path) -> None:
    document = json_of("run", *SMALL, "--policy", "random", "--out", str(tmp_path))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["otherData"]["makespan_s"] == document["makespan_s"]
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 4


def test_notebook_list_prints_the_outputs_of_each() -> None:
    done = RUN.invoke(app, ["notebook", "list"])
    assert "04_comparison" in done.stdout
    assert "fig06_comparison" in done.stdout


def test_doctor_reports_what_this_machine_has() -> None:
    """Its exit code says whether jobs can run on all of it."""
    done = RUN.invoke(app, ["doctor", "--json"])
    document = json.loads(done.stdout)
    lines = " ".join(document["follows"])
    assert ("No GPU can be measured" in lines) == (not document["gpus"])
    assert done.exit_code == bool(document["obstacles"] or document["to_restore"])
    assert RUN.invoke(app, ["doctor"]).exit_code == done.exit_code


def test_restore_reports_that_nothing_is_to_be_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = RUN.invoke(app, ["restore"])
    assert done.exit_code == 0
    assert "nothing to restore" in done.stdout


def profile_with(column: str, value: str, folder: Path) -> Path:
    """Write a copy of a committed profile with `value` in its second row, or with another name of a column."""
    lines = (root() / "data/profiles/emulated/T4/profile.csv").read_text().splitlines()
    names = lines[0].split(",")
    if column not in names:
        lines[0] = lines[0].replace("time_s", column, 1)
    else:
        cells = lines[1].split(",")
        cells[names.index(column)] = value
        lines[1] = ",".join(cells)
    path = folder / "profile.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


BAD: dict[str, tuple[list[str], list[str]]] = {
    "unknown gpu": (["estimate", "V10", "resnet50:16"], ["'V10'", "A100"]),
    "no cluster": (["plan", "--cluster", "four T4s"], ["four T4s", "4xT4"]),
    "a bound alone": (["plan", "--tasks", "2", "--bound"], ["--bound", "--improved"]),
    "a budget alone": (["plan", "--tasks", "2", "--budget", "1"], ["--budget", "--improved"]),
    "unknown policy": (["run", "--policy", "zzz"], ["'zzz'", "heshare:trade-off"]),
    "unknown device": (["profile", "--device", "T4", "--out", "OUT"], ["'T4'", "emulated:"]),
    "wrong notebook parameter": (["notebook", "run", "04", "-p", "sed=1", "--out", "OUT"], ["'sed'", "'seed'"]),
    "unknown notebook": (["notebook", "run", "99", "--out", "OUT"], ["'99'", "04_comparison"]),
    "unknown profile": (["notebook", "run", "04", "--profile", "papr", "--out", "OUT"], ["'papr'", "paper"]),
    "no notebook": (["notebook", "run", "--out", "OUT"], ["--group"]),
    "trace with a hole": (["plan", "--trace", "TRACE", "--out", "OUT"], ["trace.csv", "row 3", "duration"]),
    "no such trace": (["plan", "--trace", "nowhere.csv", "--out", "OUT"], ["nowhere.csv"]),
    "wrong unit": (["plan", "--profiles", "UNIT", "--out", "OUT"], ["profile.csv", "time_ms", "time_s"]),
    "negative time": (["plan", "--profiles", "NEGATIVE", "--out", "OUT"], ["profile.csv", "row 2", "time_s", "-1"]),
}


@pytest.mark.parametrize("name", BAD)
def test_commands_refuse_bad_input_with_one_message_and_write_nothing(name: str, tmp_path: Path) -> None:
    words, texts = BAD[name]
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_time,duration_s,gpu_num\n1,2020-09-01 00:00:00,100,1\n2,2020-09-01 00:01:00,,1\n")
    (tmp_path / "unit").mkdir()
    (tmp_path / "negative").mkdir()
    places = {
        "OUT": str(tmp_path / "out"),
        "TRACE": str(trace),
        "UNIT": str(profile_with("time_ms", "", tmp_path / "unit")),
        "NEGATIVE": str(profile_with("time_s", "-1", tmp_path / "negative")),
    }
    done = RUN.invoke(app, [places.get(word, word) for word in words])
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("heshare: ")
    assert "Traceback" not in done.stderr
    for text in texts:
        assert text in done.stderr
    assert not (tmp_path / "out").exists()


def test_claims_prints_the_table_and_the_counts(tmp_path: Path) -> None:
    from heshare.lab.sweeps.statistics import ConfidenceInterval
    from heshare.paper.claims.claim_table import evaluate_claim
    from heshare.paper.claims.paper_claims import paper_claims

    row = evaluate_claim(paper_claims()["O4", ""], ConfidenceInterval(4.0, 3.0, 5.0, 10), profile="paper")
    files.write_text(tmp_path / "claims" / "x.json", json.dumps([row]))
    result = RUN.invoke(app, ["notebook", "claims", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert any(line.startswith("O4 ") and line.endswith("not reproduced") for line in result.stdout.splitlines())
    counts = result.stdout.splitlines()[-1]
    assert counts.startswith(f"{len(paper_claims())} claims: ")
    assert "of the HeShare paper: 1 not reproduced, " in counts
