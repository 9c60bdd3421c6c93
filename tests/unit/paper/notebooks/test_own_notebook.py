"""A user's own notebook, outside of the checkout: run strictly, with its results and run.json in one folder."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner, Result

from heshare.cli import app
from heshare.paper.notebooks import parameters
from heshare.shared import files
from heshare.shared.errors import InputError

SETUP = "%matplotlib inline\nfrom heshare.paper.notebooks import notebook\nimport pandas as pd\n"
SETUP += 'ctx = notebook.setup("mine", globals(), outputs=["x01_own"])'
TABLE = 'ctx.table(pd.DataFrame({"tasks": [tasks]}), "x01_own", caption="Mine.", rows="emulated")'


def write(path: Path, *cells: str, tagged: str | None = "tasks = 3\nshift = 5") -> Path:
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    if tagged is not None:
        first = nbformat.v4.new_code_cell(tagged)
        first.metadata["tags"] = ["parameters"]
        book.cells.insert(0, first)
    nbformat.write(book, path)
    return path


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["notebook", "run", *map(str, words)])


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, where the package is an installed one without a checkout."""
    monkeypatch.delenv("HESHARE_ROOT", raising=False)
    monkeypatch.setattr(files, "checkout", lambda: None)
    monkeypatch.setattr(files, "data", lambda *parts: files.PACKAGE.parent.joinpath("data", *parts))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_with_setup(elsewhere: Path) -> None:
    """Its tables, the executed copy and run.json go into one folder, which other parameters do not replace."""
    write(elsewhere / "mine.ipynb", SETUP, TABLE)
    done = call("mine.ipynb", "-p", "tasks=7", "-p", "shift=-5")
    assert done.exit_code == 0, done.output

    folder = elsewhere / "mine-run"
    assert {path.name for path in folder.iterdir()} == {
        *("x01_own.csv", "x01_own.md", "x01_own.json", "mine.ipynb", "run.json")
    }
    assert (folder / "x01_own.csv").read_text() == "tasks\n7\n"
    about = json.loads((folder / "run.json").read_text())
    assert about["parameters"] == {"tasks": 7, "shift": -5}
    assert list(about["inputs"]) == ["mine.ipynb"]
    assert json.loads((folder / "x01_own.json").read_text())["run"]["changed_parameters"] == {"shift": -5, "tasks": 7}

    other = call("mine.ipynb", "-p", "tasks=8")
    assert (other.exit_code, other.stderr.count("\n")) == (2, 1)
    assert (folder / "x01_own.csv").read_text() == "tasks\n7\n"


@pytest.mark.slow
def test_without_setup(elsewhere: Path) -> None:
    """A plain notebook begins in its own folder; one that fails writes nothing."""
    (elsewhere / "work").mkdir()
    write(elsewhere / "work" / "plain.ipynb", 'open("here.txt", "w").write("x")', tagged=None)
    assert call("work/plain.ipynb", "--out", "results").exit_code == 0
    assert (elsewhere / "work" / "here.txt").is_file()
    assert {path.name for path in (elsewhere / "results").iterdir()} == {"plain.ipynb", "run.json"}

    write(elsewhere / "broken.ipynb", SETUP, "1 / 0")
    done = call("broken.ipynb")
    assert done.exit_code == 1
    assert "ZeroDivisionError" in done.stderr
    assert not (elsewhere / "broken-run").exists()


def test_refused(elsewhere: Path) -> None:
    """Unknown and reserved parameters, two notebooks and files that are none are refused before anything runs."""
    write(elsewhere / "mine.ipynb", SETUP, TABLE)
    (elsewhere / "text.ipynb").write_text("text")
    for words, found in (
        (("mine.ipynb", "-p", "taks=3"), "Did you mean 'tasks'"),
        (("mine.ipynb", "-p", "tasks=many"), "whole number"),
        (("mine.ipynb", "-p", "out_dir=x"), "--out"),
        (("mine.ipynb", "text.ipynb"), "one notebook"),
        (("text.ipynb",), "no notebook"),
    ):
        done = call(*words)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
        assert found in done.stderr
    with pytest.raises(InputError, match="literal"):
        parameters.read_own(write(elsewhere / "derived.ipynb", tagged="tasks = max(1, 2)"))
    assert not list(elsewhere.glob("*-run"))
