"""Lines of a run of notebooks, and the time left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heshare.paper.notebooks import run_notebooks
from heshare.paper.notebooks.run_notebooks import RunLog


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [0.0]
    monkeypatch.setattr(run_notebooks.time, "monotonic", lambda: clock[0])
    return clock


def test_a_line_at_start_and_end_of_each_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = RunLog(["a", "b"], 1, tmp_path / "seconds.json")
    for name, seconds in (("a", 1.0), ("b", None)):
        log.start(name)
        log.end(name, seconds, "1.0 s, 2 files" if seconds else "failed")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["[0/2] a: started", "[1/2] a: 1.0 s, 2 files", "[1/2] b: started", "[2/2] b: failed"]
    assert json.loads((tmp_path / "seconds.json").read_text()) == {"a": 1.0}


def test_the_time_left_follows_the_last_run(tmp_path: Path, now_s: list[float], capsys: pytest.CaptureFixture[str]):
    (tmp_path / "seconds.json").write_text(json.dumps({"a": 100.0, "b": 40.0, "c": 60.0}))
    log = RunLog(["a", "b", "c"], 2, tmp_path / "seconds.json")
    log.start("a")
    log.start("b")
    assert log.left_s() == pytest.approx(100.0)
    now_s[0] = 40.0
    log.end("b", 40.0, "done")
    assert capsys.readouterr().err.splitlines()[-1] == "[1/3] b: done; about 60 s left"
    log.start("c")
    assert log.left_s() == pytest.approx(60.0)


@pytest.mark.parametrize("text", [None, "no json", "[1]", '{"a": "x"}'])
def test_left_s_is_none_without_a_last_run(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "seconds.json").write_text(text)
    assert RunLog(["a"], 2, tmp_path / "seconds.json").left_s() is None


def test_quiet_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = RunLog(["a"], 1, tmp_path / "seconds.json", quiet=True)
    log.start("a")
    log.end("a", 1.0, "done")
    assert not capsys.readouterr().err
