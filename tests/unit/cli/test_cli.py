"""The command line: what commands print and write is what the library returns."""

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
    assert (document["power_w"], document["sm_mhz"]) == (estimate.power_w, estimate.sm_mhz)
    assert document["power_low_w"] < document["power_w"] < document["power_high_w"]
    assert [task["time_s"] for task in document["tasks"]] == [task.time_s for task in estimate.tasks]
    for task in document["tasks"]:
        assert task["time_low_s"] < task["time_s"] < task["time_high_s"]


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
    assert names == {"run.json", "front.csv", "tasks.csv", *plans}
    again = json_of("plan", "--cluster", "1xT4,1xA100", "--tasks", str(tmp_path / "out/tasks.csv"))
    assert again["rows"] == rows, "the written tasks are the tasks that were planned"


def test_run_rows(tmp_path: Path) -> None:
    """`run` prints a row for every task, whose times and energies add up, and writes a timeline for Perfetto."""
    document = json_of("run", *SMALL, "--policy", "random", "--out", str(tmp_path))
    rows = document["rows"]
    assert [row["task"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert row["jct_s"] == pytest.approx(row["waiting_s"] + row["execution_s"])
    assert 0 < document["energy_active_j"] <= document["energy_cluster_j"]
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 4


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


def test_doctor() -> None:
    """Its exit code says whether jobs can run on all of it."""
    done = RUN.invoke(app, ["doctor", "--json"])
    document = json.loads(done.stdout)
    lines = " ".join(document["follows"])
    assert ("No GPU can be measured" in lines) == (not document["gpus"])
    assert done.exit_code == bool(document["obstacles"] or document["to_restore"])
    assert RUN.invoke(app, ["doctor"]).exit_code == done.exit_code


def test_doctor_without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU there is no control of clocks, not even for root, and the reason is printed once."""
    from heshare.ops import probe
    from heshare.ops.nvml.binding import fault

    def no_driver() -> None:
        raise fault("NVML", "nvmlInit", 12)

    monkeypatch.setattr(probe, "Nvml", no_driver)
    monkeypatch.setattr(probe, "has_sys_admin", lambda: True)
    assert probe.probe()["clock_control"] is False
    printed = RUN.invoke(app, ["doctor"]).stdout
    assert printed.count("nvmlInit") == 1
    assert "NVML: NVML" not in printed


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
    assert f"{len(paper_claims())} claims" in result.stdout


def test_power_limit(tmp_path: Path) -> None:
    """`run` and `compare` take a power limit in watts or a file, for policies and plans; a lower limit takes longer."""
    limit = tmp_path / "limit.csv"
    limit.write_text("time_s,limit_w\n0,170\n3600,200\n")
    json_of("plan", *SMALL, "--out", str(tmp_path))
    plan = str(tmp_path / "plan-trade-off.json")
    assert json_of("run", "--plan", plan, "--power-limit", str(limit))["policy"].startswith("plan within 170 to 200 W")

    words = ("compare", *SMALL, "--policy", "fifo", "--seeds", "1")
    free, limited = json_of(*words)["rows"], json_of(*words, "--power-limit", "170")["rows"]
    assert limited[0]["avg_jct_s"] > free[0]["avg_jct_s"]
    assert limited[0]["policy"] == free[0]["policy"] == "fifo"
