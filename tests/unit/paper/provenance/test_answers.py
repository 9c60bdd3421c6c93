"""Answers to a table of questions: those of `estimate`, with the commit and hashes; nothing for a bad table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import heshare as hs
from heshare.paper.provenance.answers import answer
from heshare.shared import files
from heshare.shared.errors import InputError

HEADER = "gpu,residents,sm_mhz,power_limit_w,precision"
PAIR = ["resnet50:16@50", "vgg19:8@50"]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.csv"
    path.write_text(f"{HEADER}\nA100,{' '.join(PAIR)},,300,fp16\nT4,resnet50:8,585,,\n")
    return path


def test_answers(questions: Path, tmp_path: Path) -> None:
    """Answers are those of estimate."""
    number, path = answer(questions, tmp_path / "out")
    rows = pd.read_csv(path)
    assert number == 2
    assert rows["question"].tolist() == [0, 0, 1]
    assert rows["resident"].tolist() == [*PAIR, "resnet50:8"]
    pair = hs.estimate("A100", PAIR, precision="fp16", power_cap_w=300)
    alone = hs.estimate("T4", "resnet50:8", 585)
    assert rows["time_s"].tolist() == [task.time_s for task in (*pair.tasks, *alone.tasks)]
    assert rows["power_w"].tolist() == [pair.power_w, pair.power_w, alone.power_w]
    assert rows["reached_mhz"].tolist() == [pair.sm_mhz, pair.sm_mhz, 585]
    assert (rows["time_low_s"] < rows["time_s"]).all()
    assert (rows["time_s"] < rows["time_high_s"]).all()
    assert (rows["power_high_w"][:2] == 300).all(), "the limit holds the power"


def test_provenance(questions: Path, tmp_path: Path) -> None:
    """Answers have the version and the hashes of questions and answers, and are never replaced."""
    _, path = answer(questions, tmp_path / "out")
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert list(about["inputs"]) == [str(questions)]
    assert about["outputs"] == {"answers.csv": files.sha256(path)}
    assert about["version"] == hs.__version__
    _, again = answer(questions, tmp_path / "again")
    assert again.read_bytes() == path.read_bytes()
    with pytest.raises(InputError, match="earlier answers"):
        answer(questions, tmp_path / "out")
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("A10000,resnet50:8,,,", "gpu"),
        ("A100,resnet50:8,1,,", "sm_mhz"),
        ("A100,resnet50:8,,5,", "power_limit_w"),
        ("A100,,,,", "residents"),
    ],
)
def test_bad_question(questions: Path, tmp_path: Path, row: str, column: str) -> None:
    """A bad question is named by row and column, and nothing is written."""
    questions.write_text(questions.read_text() + row + "\n")
    with pytest.raises(InputError, match=rf"row 4, column {column}"):
        answer(questions, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_questions(tmp_path: Path) -> None:
    """A table without questions is refused."""
    (tmp_path / "empty.csv").write_text(HEADER + "\n")
    with pytest.raises(InputError, match="no question"):
        answer(tmp_path / "empty.csv", tmp_path)
