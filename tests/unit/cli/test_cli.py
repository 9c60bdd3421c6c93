"""The command line: output, JSON, and one message with exit code 2 for every kind of bad input."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heshare.cli import HELP, app
from heshare.cli.compare_command import compare
from heshare.cli.run_command import run
from heshare.shared import files, plugins
from heshare.shared.files import root

RUN = CliRunner()
SMALL = ("--cluster", "1xT4,1xA100", "--tasks", "4")


def json_of(*words: str) -> dict[str, Any]:
    result = RUN.invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_help() -> None:
    """The help lists every command."""
    done = RUN.invoke(app, ["--help"])
    assert done.exit_code == 0
    assert sorted(HELP) == sorted(plugins.names(plugins.COMMANDS))
    for command in HELP:
        assert f"  {command} " in done.stdout


def test_estimate() -> None:
    """`estimate` prints what the library returns, with 90 % intervals."""
    import heshare as hs

    document = json_of("estimate", "V100", "resnet50:16@50", "vgg19:8@50")
    estimate = hs.estimate("V100", ["resnet50:16@50", "vgg19:8@50"])
    assert document["power_w"] == estimate.power_w
    assert document["sm_mhz"] == estimate.sm_mhz
    assert document["power_low_w"] < document["power_w"] < document["power_high_w"]

    tasks = document["tasks"]
    assert [(t["workload"], t["batch_size"], t["mps_pct"]) for t in tasks] == [("resnet50", 16, 50), ("vgg19", 8, 50)]
    assert [t["time_s"] for t in tasks] == [t.time_s for t in estimate.tasks]
    for task in tasks:
        assert task["time_low_s"] < task["time_s"] < task["time_high_s"]
        assert 0 < task["uncertainty_inside"] < task["uncertainty"]


def test_plan_gap() -> None:
    """`plan --improved` prints the gap of each plan to the bound, or why none is proven."""
    for more in ((), ("--bound", "--budget", "0.5")):
        rows = json_of("plan", *SMALL, "--improved", *more)["rows"]
        assert all(0 < row["gap_pct"] < 10 for row in rows)

    for words, reason in ((("--budget", "0.1"), "no time"), (("--no-bound",), "--no-bound")):
        document = json_of("plan", *SMALL, "--improved", *words)
        assert reason in document["gap"]
        assert all("gap_pct" not in row for row in document["rows"])


def test_plan_files(tmp_path: Path) -> None:
    """The three choices are named and written; the written tasks are those that were planned."""
    document = json_of("plan", *SMALL, "--out", str(tmp_path / "out"))
    rows = document["rows"]
    assert {name for row in rows for name in row["choice"].split("/") if name} == {"Trade-off", "En-opt", "JCT-opt"}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    plans = {f"plan-{name}.{end}" for name in ("en-opt", "jct-opt", "trade-off") for end in ("csv", "json")}
    assert names == {"front.csv", "tasks.csv", *plans}
    again = json_of("plan", "--cluster", "1xT4,1xA100", "--tasks", str(tmp_path / "out/tasks.csv"))
    assert again["rows"] == rows, "the written tasks are the tasks that were planned"


def test_run_rows() -> None:
    """`run` prints a row for every task, whose times and energies add up."""
    document = json_of("run", *SMALL, "--policy", "random")
    rows = document["rows"]
    assert [row["task"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert row["jct_s"] == pytest.approx(row["waiting_s"] + row["execution_s"])
    assert 0 < document["energy_active_j"] <= document["energy_cluster_j"]


def test_compare() -> None:
    """`compare` prints a row for every policy and repetition."""
    document = json_of("compare", *SMALL, "--policy", "random", "--policy", "sched-only", "--seeds", "2")
    rows = document["rows"]
    assert [row["title"] for row in rows] == ["Random", "Sched-only"] * 2


TOYS = "predictors: 'heshare.testing.toy:ToyPredictor'\ndevices: 'heshare.testing.toy:toy_devices'\n"


@pytest.mark.slow
def test_grid(tmp_path: Path, kept_cells: None) -> None:
    """A grid is cached, continued and written with the same bytes."""
    grid, cells = tmp_path / "grid.yaml", tmp_path / "cells"
    grid.write_text(f"policies: [random, sched-only]\nclusters: [1xT4, 2xT4]\ntasks: 3\nseeds: 2\n{TOYS}")
    words = ["compare", "--grid", str(grid), "--cells", str(cells), "--out"]
    document = json_of(*words, str(tmp_path / "one"))
    rows = document["rows"]
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
def test_medians(tmp_path: Path) -> None:
    """Medians are grouped by every axis that varies."""
    axes = "clusters: [1xT4, 1xA100]\ntasks: [2, 3]\nloads: [low, high]\nstart_costs_s: [0, 5]\n"
    (tmp_path / "grid.yaml").write_text(f"policies: random\nseeds: 1\n{axes}{TOYS}")
    done = RUN.invoke(app, ["compare", "--grid", str(tmp_path / "grid.yaml"), "--cells", str(tmp_path / "cells")])
    assert done.exit_code == 0, done.output
    for word in ("cluster", "tasks", "load", "start_cost_s", "1xA100", "high", "policy"):
        assert word in done.stdout
    assert "arrivals" not in done.stdout
    assert sum(line.startswith(("1xT4 ", "1xA100 ")) for line in done.stdout.splitlines()) == 16


def test_shared_options() -> None:
    """`run` and `compare` share their options, and `compare` its defaults with the library and grids."""
    import heshare as hs
    from heshare.lab.sweeps.grid import make_grid

    ours, theirs = (set(inspect.signature(command).parameters) - {"context"} for command in (run, compare))
    assert ours - theirs == {"plan", "repetition"}
    assert theirs - ours == {"grid", "seeds", "jobs", "cells"}

    default = inspect.signature(compare).parameters["seeds"].default
    assert default == inspect.signature(hs.compare).parameters["seeds"].default
    assert default == make_grid("random", "1xT4", 2).seeds


def test_trace_file(tmp_path: Path) -> None:
    """`run --out` writes a timeline for Perfetto."""
    document = json_of("run", *SMALL, "--policy", "random", "--out", str(tmp_path))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["otherData"]["makespan_s"] == document["makespan_s"]
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 4


def test_notebook_list() -> None:
    """`notebook list` prints the outputs of each notebook."""
    done = RUN.invoke(app, ["notebook", "list"])
    assert "04_comparison" in done.stdout
    assert "fig06_comparison" in done.stdout


def test_doctor() -> None:
    """Its exit code says whether jobs can run on all of it."""
    done = RUN.invoke(app, ["doctor", "--json"])
    document = json.loads(done.stdout)
    lines = " ".join(document["follows"])
    assert ("No GPU can be measured" in lines) == (not document["gpus"])
    assert done.exit_code == bool(document["obstacles"] or document["to_restore"])
    assert RUN.invoke(app, ["doctor"]).exit_code == done.exit_code


def test_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`restore` reports that nothing is to be restored."""
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
    "no grid": (["compare", "--grid", "nowhere.yaml"], ["nowhere.yaml"]),
    "grid and load": (["compare", "--grid", "nowhere.yaml", "--load", "low"], ["grid and load"]),
    "unknown load": (["compare", "--load", "hihg"], ["'hihg'"]),
    "budget of no time": (["plan", "--tasks", "2", "--improved", "--budget=soon"], ["90s"]),
    "plan of arrivals": (["plan", "--tasks", "2", "--arrivals", "miso"], ["heshare:trade-off"]),
    "two policies": (["run", "--tasks", "2", "--policy", "random", "--policy", "morak"], ["random and morak"]),
    "no claims": (["notebook", "claims", "--out", "OUT"], ["claims/*.json"]),
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
def test_bad_input(name: str, tmp_path: Path) -> None:
    """Bad input ends with exit code 2 and one line, before anything is written."""
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
    assert done.stderr.count("\n") == 1
    for text in texts:
        assert text in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_claims(tmp_path: Path) -> None:
    """`notebook claims` prints a row for each claim and counts."""
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
