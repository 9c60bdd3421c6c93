"""Folders of results: `run.json` names what made them, nothing else is replaced, and files are written all or none."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import heshare as hs
from heshare.cli import app
from heshare.paper.provenance.results_folder import NAME, ResultsFolder
from heshare.shared import files
from heshare.shared.errors import InputError

RUN = ("run", "--cluster", "1xT4", "--tasks", "2", "--policy")
POLICY = """\
from heshare.policies.policy import Policy, Start, Traits

class Mine(Policy):
    name = "mine"
    traits = Traits(frequency=False, multi_task=False, heterogeneous=False)

    def decide(self, event, view):
        if view.waiting and not view.gpus[0].running:
            yield Start(view.waiting[0].id, gpu=0)
"""


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_command(tmp_path: Path) -> None:
    """The same command gives the same bytes, also into its own folder; run.json has command, seed and hashes."""
    for folder in ("one", "one", "two"):
        assert call(*RUN, "fifo", "--seed", "3", "--out", tmp_path / folder).exit_code == 0
    assert content(tmp_path / "one") == content(tmp_path / "two")

    about = json.loads((tmp_path / "one" / NAME).read_text())
    assert about["command"] == "heshare run --policy fifo --cluster 1xT4 --tasks 2 --seed 3"
    assert (about["seed"], about["parameters"]["cluster"], about["version"]) == (3, "1xT4", hs.__version__)
    assert about["outputs"] == {
        name: files.sha256(tmp_path / "one" / name) for name in ("tasks.csv", "timeline.csv", "trace.json")
    }


def test_folder_of_another_run(tmp_path: Path) -> None:
    """A folder with other results, or with a file that is no result, is refused and stays as it is."""
    call(*RUN, "fifo", "--out", tmp_path / "run")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tasks.csv").write_text("mine")
    before = content(tmp_path / "run") | content(tmp_path / "own")
    plan = ("plan", "--cluster", "1xT4", "--tasks", "2")

    for words, folder in (
        ((*RUN, "srtf"), "run"),
        (plan, "run"),
        ((*RUN, "fifo", "--seed", "1"), "run"),
        (plan, "own"),
    ):
        done = call(*words, "--out", tmp_path / folder)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert str(tmp_path / folder) in done.stderr
    assert content(tmp_path / "run") | content(tmp_path / "own") == before


@pytest.mark.usefixtures("kept_cells")
def test_changed_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a grid are those of its file, of the files that it names and of the user's own policy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_of_results.py").write_text(POLICY)
    call("plan", "--cluster", "1xT4", "--tasks", "2", "--out", "plan")
    grid = tmp_path / "grid.yaml"
    grid.write_text("policies: 'mine_of_results:Mine'\nclusters: 1xT4\ntasks: plan/tasks.csv\nseeds: 2\n")
    words = ("compare", "--grid", "grid.yaml", "--out", "out")

    assert call(*words).exit_code == 0
    about = json.loads(Path("out", NAME).read_text())
    assert {Path(name).name for name in about["inputs"]} == {"grid.yaml", "tasks.csv", "mine_of_results.py"}
    assert (about["seed"], about["parameters"]["seeds"], about["parameters"]["clusters"]) == (0, 2, "1xT4")
    assert call(*words, "--jobs", "1").exit_code == 0

    grid.write_text(f"{grid.read_text()}# a remark\n")
    done = call(*words)
    assert done.exit_code == 2
    assert "other input files" in done.stderr


def test_all_or_none(tmp_path: Path) -> None:
    """Where a file cannot be written, the error names it, and none is written."""

    def full(path: Path) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    for folder in (tmp_path / "new", tmp_path):
        results = ResultsFolder.of_command(folder, "command", ["a", "b"], parameters={})
        with pytest.raises(OSError, match=str(folder / "b")):
            results.write({"a": lambda path: path.write_text("whole"), "b": full})
        assert not list(tmp_path.iterdir())


def test_replaced_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results of another version are replaced with a line that says so."""
    results = ResultsFolder.of_command(tmp_path, "command", ["a"], parameters={})
    results.write({"a": lambda path: path.write_text("text")})
    about = {**json.loads((tmp_path / NAME).read_text()), "version": "0.0.1", "git_commit": None}
    (tmp_path / NAME).write_text(json.dumps(about))
    ResultsFolder.of_command(tmp_path, "command", ["a"], parameters={})
    assert "0.0.1" in capsys.readouterr().err


def test_provenance(tmp_path: Path) -> None:
    """`hs.provenance` has values for JSON: parameters of any type and the hashes of files and folders."""
    (tmp_path / "folder").mkdir()
    (file := tmp_path / "folder" / "a.csv").write_text("text")
    parameters: dict[str, Any] = {"seed": np.int64(3), "loads": np.array([0.5]), "cluster": hs.Cluster.parse("1xT4")}
    about = hs.provenance(file, tmp_path / "folder", **parameters)
    assert about["parameters"] == {"seed": 3, "loads": [0.5], "cluster": "1xT4"}
    assert json.loads(json.dumps(about)) == about

    file.write_text("other")
    again = hs.provenance(file, tmp_path / "folder")["inputs"]
    assert all(again[name] != about["inputs"][name] for name in again)
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        hs.provenance("nowhere.csv")
