"""`--power-limit` of run and compare: results within the limit, and one message for each wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heshare.cli import app

RUN = CliRunner()
SMALL = ("--cluster", "1xT4,1xA100", "--tasks", "4")


def json_of(*words: str) -> dict[str, object]:
    result = RUN.invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    document: dict[str, object] = json.loads(result.stdout)
    return document


def test_a_run_of_a_plan_keeps_a_limit(tmp_path: Path) -> None:
    json_of("plan", *SMALL, "--out", str(tmp_path / "out"))
    file = tmp_path / "out" / "plan-trade-off.json"
    assert json_of("run", "--plan", str(file), "--power-limit", "180")["policy"] == "plan within 180 W"


def test_run_and_compare_take_watts_and_files(tmp_path: Path) -> None:
    limit = tmp_path / "limit.csv"
    limit.write_text("time_s,limit_w\n0,160\n3600,200\n")
    document = json_of("run", *SMALL, "--policy", "fifo", "--power-limit", str(limit), "--out", str(tmp_path))
    assert document["policy"] == "fifo within 160 to 200 W in 2 steps"
    words = ("compare", *SMALL, "--policy", "fifo", "--seeds", "1")
    free, limited = json_of(*words)["rows"], json_of(*words, "--power-limit", "160")["rows"]
    assert limited[0]["avg_jct_s"] > free[0]["avg_jct_s"]  # type: ignore[index]
    assert limited[0]["policy"] == free[0]["policy"] == "fifo"  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", *SMALL, "--power-limit", "-5"), "above 0"),
        (("run", *SMALL, "--power-limit", "no-such.csv"), "no number and no file"),
        (
            ("run", *SMALL, "--policy", "fifo", "--power-limit", "95"),
            "may draw 154.8 W when one A100 is busy at 210 MHz",
        ),
        (("run", *SMALL, "--power-limit", "50"), "draw 90.0 W when all of them idle"),
        (("compare", *SMALL, "--policy", "fifo", "--power-limit", "50"), "draw 90.0 W when all of them idle"),
        (("jobs", "run", "--resume", "nowhere", "--power-limit", "500"), "--power-limit with --resume"),
    ],
)
def test_wrong_limits_end_with_one_message(words: tuple[str, ...], message: str) -> None:
    result = RUN.invoke(app, list(words))
    assert result.exit_code == 2, result.output
    text = " ".join(result.stderr.split())
    assert message in text
    assert result.stdout == ""
