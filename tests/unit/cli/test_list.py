"""`heshare list` and the completion of names in a shell."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app, options
from heshare.cli.plan_commands import Kind
from heshare.policies.registry import policies
from heshare.world import catalogue

RUN = CliRunner()


def rows_of(what: str) -> list[dict[str, object]]:
    done = RUN.invoke(app, ["list", what, "--json"])
    assert done.exit_code == 0, done.output
    rows: list[dict[str, object]] = json.loads(done.stdout)["rows"]
    return rows


@pytest.mark.parametrize("what", list(Kind))
def test_lines_and_rows(what: str) -> None:
    """`list` prints a line for each row of its JSON."""
    rows = rows_of(what)
    lines = RUN.invoke(app, ["list", what]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *(row["name"] for row in rows)]


def test_every_name() -> None:
    """The lists have every policy, GPU and workload, as the library has."""
    listed = rows_of("policies")
    assert [row["name"] for row in listed] == list(policies(variants=True))
    assert [row["name"] for row in listed if row["default"]] == hs.policy_names()
    assert "cap=0.8" in next(str(row["parameters"]) for row in listed if row["name"] == "morak")
    assert [row["name"] for row in rows_of("gpus")] == list(catalogue.gpus())
    assert {row["name"] for row in rows_of("gpus") if row["profiles"]} >= {"T4", "V100", "A100"}
    assert list(hs.gpus()["name"]) == [row["name"] for row in rows_of("gpus")]
    assert list(hs.models()["name"]) == [row["name"] for row in rows_of("workloads")]
    assert {*catalogue.models(), "eaco_resnet50-train"} <= {row["name"] for row in rows_of("workloads")}


def test_completion() -> None:
    """Completion offers the names that begin with what was typed."""
    assert options.policy_names("mor") == ["morak", "morak:heshare-placement"]
    assert options.gpu_names("v1") == ["V100", "V100-SXM2"]
    assert options.clusters("4xT4,2xV1") == ["4xT4,2xV100", "4xT4,2xV100-SXM2"]
    assert options.clusters("T") == ["1xT4"]
    assert options.model_names("gpt2") == ["gpt2"]
    assert options.notebook_names("05") == ["05_search"]


def complete(words: str) -> list[str]:
    """Return what bash would offer for the last word."""
    typed = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_HESHARE_COMPLETE": "complete_bash"}
    done = RUN.invoke(app, env=typed, prog_name="heshare")
    return done.stdout.split()


def test_bash_completion() -> None:
    """Bash completes commands and names."""
    assert complete("heshare esti") == ["estimate"]
    assert "2xA100-PCIe" in complete("heshare plan --cluster 2xA10")
