"""Execution of notebooks: errors that papermill lets through fail, and outputs appear all or none."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.paper.notebooks import parameters, run_notebooks
from heshare.paper.notebooks.execute_notebook import NotebookError, ParameterError, execute
from heshare.paper.provenance.run_record import RunRecord
from heshare.shared.errors import InputError

WRITE = (
    "from pathlib import Path\n"
    "for suffix in ('.pdf', '.png', '.csv', '.json'):\n"
    "    (Path(out_dir) / f'fig01_toy{suffix}').write_text(f'{seed} {profile}')\n"
)


def toy_notebook(folder: Path, *cells: str, name: str = "toy", cell: str | None = None) -> parameters.Notebook:
    source = 'profile = "paper"\nseed = 0\nrate = 0.5\nsizes = [4, 8]\nfast = False\nout_dir = ""'
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    first = nbformat.v4.new_code_cell(source if cell is None else cell)
    first.metadata["tags"] = ["parameters"]
    head = "def setup(**names):\n    pass\nsetup(outputs=['fig01_toy'])"
    book.cells = [first, *(nbformat.v4.new_code_cell(text) for text in (head, *cells))]
    path = folder / f"{name}.ipynb"
    nbformat.write(book, path)
    return parameters.read(path)


@pytest.mark.slow
def test_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each notebook runs in a new process of this Python, in the checkout, whatever kernels the user has."""
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": ["/no/such/python", "-f", "{connection_file}"], "display_name": "x", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    cell = (
        "import json, os, sys\n"
        "about = [os.getpid(), sys.executable, os.getcwd(), os.environ['TZ'], os.getsid(0)]\n"
        "(Path(out_dir) / 'kernel.json').write_text(json.dumps(about))"
    )

    kernels = []
    for name in ("a", "b"):
        book = toy_notebook(tmp_path, WRITE, cell, name=name)
        done = execute(book, {"seed": 7, "profile": "smoke"}, tmp_path / name, tmp_path / "copies")
        assert done.executed.is_file()
        assert (tmp_path / name / "fig01_toy.csv").read_text() == "7 smoke"
        assert not list((tmp_path / name).glob(".*")), "the staging folder is gone"
        kernels.append(json.loads((tmp_path / name / "kernel.json").read_text()))

    assert kernels[0][0] != kernels[1][0]
    for _, executable, folder, zone, session in kernels:
        assert Path(executable) == Path(sys.executable)
        assert Path(folder) == parameters.folder().parent
        assert zone == "UTC"
        assert session != os.getsid(0), "Ctrl-C is for the runner, which ends its kernels"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ((WRITE, "raise SystemExit(0)", "late = 1"), "ended early"),
        ((WRITE, "1 / 0"), "ZeroDivisionError"),
        (("pass",), "fig01_toy.pdf"),
        ((WRITE, "(Path(out_dir) / 'fig01_toy.png').write_text('')"), "fig01_toy.png"),
    ],
    ids=["system exit", "error", "missing output", "empty output"],
)
def test_failed_notebook(tmp_path: Path, cells: tuple[str, ...], message: str) -> None:
    """A notebook that fails, or lacks an output, leaves the old outputs as they were."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "fig01_toy.csv").write_text("before")
    with pytest.raises(NotebookError, match=message):
        execute(toy_notebook(tmp_path, *cells), {}, out, tmp_path / "copies")
    assert [path.name for path in out.iterdir()] == ["fig01_toy.csv"]
    assert (out / "fig01_toy.csv").read_text() == "before"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sed": "7"}, "'seed'"),
        ({"seed": "seven"}, "whole number"),
        ({"seed": True}, "whole number"),
        ({"fast": "1"}, "truth value"),
        ({"sizes": "['a']"}, "list"),
        ({"profile": "smoke"}, "--profile"),
        ({"out_dir": "x"}, "--out"),
    ],
)
def test_bad_parameters(tmp_path: Path, given: dict[str, object], message: str) -> None:
    """Bad parameters are refused before a notebook runs."""
    book = toy_notebook(tmp_path, WRITE)
    with pytest.raises(InputError, match=message):
        run_notebooks.run([book.path], profile="smoke", given=given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("number", "given"),
    [
        *[("04", text) for text in ("seeds=0", "tasks=-3", "batch_sizes=[]", "batch_sizes=[0]", "cluster=4xT5")],
        *[("04", text) for text in ("seed=-1", "tasks=10000000000", "seeds=2.5", "cluster=")],
        *[("06", text) for text in ("loads=[]", "loads=['hihg']", "kinds=['B100']", "clusters=['2xT4', 3]")],
        *[("09", text) for text in ("urgent_loads=[-1]", "served_s=nan", "scale=0")],
        *[("12", text) for text in ("model=llama9", "image_models=['resnet51:8']", "rate_per_s=1e999")],
    ],
)
def test_parameters_out_of_range(number: str, given: str) -> None:
    """A parameter that no run can use is one line and exit code 2, before anything runs."""
    done = CliRunner().invoke(app, ["notebook", "run", number, "-p", given])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert f"column {given.partition('=')[0]}" in done.stderr


def test_profiles_in_range() -> None:
    """Every notebook accepts the parameters of its profiles."""
    for profile in parameters.PROFILES:
        assert run_notebooks.prepare(parameters.find(), profile, {})


@pytest.mark.slow
def test_failed_with_parameters(tmp_path: Path) -> None:
    """A cell that fails with other parameters is one line that names them, the cell and the executed copy."""
    book = toy_notebook(tmp_path, WRITE, "sizes[1]")
    record = RunRecord("toy", "paper", {"sizes": [1]})
    with pytest.raises(ParameterError, match=r"toy with sizes = \[1\]: cell .* IndexError") as failed:
        execute(book, {"sizes": [1]}, tmp_path / "out", tmp_path / "copies", record)
    assert failed.value.exit_code == 2
    assert "\n" not in str(failed.value)
    assert str(tmp_path / "copies" / "toy.ipynb") in str(failed.value)


def test_parameters_from_text(tmp_path: Path) -> None:
    """Text is read as the type of the default."""
    given = {"seed": "7", "rate": "1e-3", "fast": "true", "sizes": "[1, 2]"}
    read = {"seed": 7, "rate": 1e-3, "fast": True, "sizes": [1, 2]}
    assert parameters.check(toy_notebook(tmp_path), given) == read
    assert parameters.check(toy_notebook(tmp_path), {"rate": 2}) == {"rate": 2.0}


@pytest.mark.parametrize("cell", ["seed = 0\ndoubled = seed * 2", "seed: int = 0", "import os", "seed = max(1, 2)"])
def test_parameters_cell(tmp_path: Path, cell: str) -> None:
    """A cell of parameters has literals alone; a file that is no notebook is refused."""
    with pytest.raises(InputError, match="literal"):
        toy_notebook(tmp_path, cell=cell)
    (tmp_path / "x.ipynb").write_text("hello")
    with pytest.raises(InputError, match="no notebook"):
        parameters.read(tmp_path / "x.ipynb")


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_failures_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str], jobs: int) -> None:
    """A run names every failure and keeps the outputs of the other notebooks."""
    books = [toy_notebook(tmp_path, WRITE, name="a"), toy_notebook(tmp_path, "1 / 0", name="b")]
    with pytest.raises(NotebookError, match=r"(?s)b: cell .* ZeroDivisionError"):
        run_notebooks.run([book.path for book in books], profile="smoke", given={}, out=tmp_path / "out", jobs=jobs)
    assert (tmp_path / "out/fig01_toy.csv").read_text() == "0 smoke"
    assert "b: failed" in capfd.readouterr().err


@pytest.mark.slow
def test_second_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that ends before it is ready, as one does whose port another process has taken, is started again."""
    interpreter, first = tmp_path / "interpreter", tmp_path / "first"
    interpreter.write_text(f'#!/bin/sh\n[ -e {first} ] && exec {sys.executable} "$@"\ntouch {first}; exit 1\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    execute(toy_notebook(tmp_path, WRITE), {}, tmp_path / "out", tmp_path / "copies")
    assert first.exists()
    assert (tmp_path / "out/fig01_toy.csv").read_text() == "0 paper"
