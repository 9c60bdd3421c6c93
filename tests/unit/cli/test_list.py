"""`heshare list` and the completion of names in a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app, options
from heshare.cli.plan_commands import Kind
from heshare.policies.registry import policies
from heshare.shared import files
from heshare.world import catalogue

RUN = CliRunner()


def rows_of(what: str) -> list[dict[str, object]]:
    done = RUN.invoke(app, ["list", what, "--json"])
    assert done.exit_code == 0, done.output
    rows: list[dict[str, object]] = json.loads(done.stdout)["rows"]
    return rows


@pytest.mark.parametrize("what", list(Kind))
def test_list_prints_a_line_for_each_row_of_its_json(what: str) -> None:
    rows = rows_of(what)
    lines = RUN.invoke(app, ["list", what]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *(row["name"] for row in rows)]


def test_list_has_every_policy_gpu_and_workload() -> None:
    listed = rows_of("policies")
    assert [row["name"] for row in listed] == list(policies(variants=True))
    assert [row["name"] for row in listed if row["default"]] == hs.policy_names()
    assert "cap=0.8" in next(str(row["parameters"]) for row in listed if row["name"] == "morak")
    assert [row["name"] for row in rows_of("gpus")] == list(catalogue.gpus())
    assert {row["name"] for row in rows_of("gpus") if row["profiles"]} >= {"T4", "V100", "A100"}
    assert {*catalogue.models(), "eaco_resnet50-train"} <= {row["name"] for row in rows_of("workloads")}


def test_gpus_and_models_of_the_library_are_the_lists() -> None:
    assert list(hs.gpus()["name"]) == [row["name"] for row in rows_of("gpus")]
    assert list(hs.models()["name"]) == [row["name"] for row in rows_of("workloads")]


def test_a_list_of_something_else_is_refused() -> None:
    done = RUN.invoke(app, ["list", "policy"])
    assert done.exit_code == 2
    assert "policies" in done.output


def test_completion_offers_names_that_begin_so() -> None:
    assert options.policy_names("mor") == ["morak", "morak:heshare-placement"]
    assert options.gpu_names("v1") == ["V100", "V100-SXM2"]
    assert options.clusters("4xT4,2xV1") == ["4xT4,2xV100", "4xT4,2xV100-SXM2"]
    assert options.clusters("T") == ["1xT4"]
    assert options.model_names("gpt2") == ["gpt2"]
    assert options.notebook_names("05") == ["05_search"]


def test_completion_of_notebooks_is_empty_without_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HESHARE_ROOT", raising=False)
    monkeypatch.setattr(files, "PACKAGE", tmp_path / "heshare")
    assert options.notebook_names("0") == []


def start(*words: str, **variables: str) -> str:
    """Return what the program prints."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", "from heshare.cli import main; main()", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def complete(*words: str) -> list[str]:
    """Return what bash would offer for the last word."""
    typed = {"COMP_WORDS": " ".join(("heshare", *words)), "COMP_CWORD": str(len(words))}
    return start(**typed, _HESHARE_COMPLETE="complete_bash").split()


def test_bash_completes_commands_and_names() -> None:
    assert complete("esti") == ["estimate"]
    cards = ["2xA100", "2xA100-PCIe", "2xA10", "2xA100-40GB", "2xA100-PCIe-40GB"]
    assert complete("plan", "--cluster", "2xA10") == cards
