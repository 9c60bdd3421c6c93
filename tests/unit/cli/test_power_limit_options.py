"""`--power-limit` of run and compare: results within the limit, and one message for each wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heshare.cli import app

RUN = CliRunner()
SMALL = ("--cluster", "1xT4,1xA100", "--tasks", "4")


def json_of(*words: str) -> dict[str, Any]:
    result = RUN.invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_limit_of_plan(tmp_path: Path) -> None:
    """A run of a plan takes a limit."""
    json_of("plan", *SMALL, "--out", str(tmp_path / "out"))
    file = tmp_path / "out" / "plan-trade-off.json"
    assert json_of("run", "--plan", str(file), "--power-limit", "180")["policy"].endswith("180 W")


def test_watts_and_files(tmp_path: Path) -> None:
    """`run` and `compare` take watts and files, and a lower limit takes longer."""
    limit = tmp_path / "limit.csv"
    limit.write_text("time_s,limit_w\n0,160\n3600,200\n")
    document = json_of("run", *SMALL, "--policy", "fifo", "--power-limit", str(limit), "--out", str(tmp_path))
    assert "160 to 200 W" in document["policy"]
    words = ("compare", *SMALL, "--policy", "fifo", "--seeds", "1")
    free, limited = json_of(*words)["rows"], json_of(*words, "--power-limit", "160")["rows"]
    assert limited[0]["avg_jct_s"] > free[0]["avg_jct_s"]
    assert limited[0]["policy"] == free[0]["policy"] == "fifo"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", *SMALL, "--power-limit", "-5"), "above 0"),
        (("run", *SMALL, "--power-limit", "no-such.csv"), "no number and no file"),
        (
            ("run", *SMALL, "--policy", "fifo", "--power-limit", "95"),
            "when one A100 is busy",
        ),
        (("run", *SMALL, "--power-limit", "50"), "when all of them idle"),
        (("compare", *SMALL, "--policy", "fifo", "--power-limit", "50"), "when all of them idle"),
        (("jobs", "run", "--resume", "nowhere", "--power-limit", "500"), "--power-limit with --resume"),
    ],
)
def test_wrong_limits(words: tuple[str, ...], message: str) -> None:
    """A wrong limit ends with exit code 2 and what was found."""
    result = RUN.invoke(app, list(words))
    assert result.exit_code == 2, result.output
    text = " ".join(result.stderr.split())
    assert message in text
    assert result.stdout == ""
