"""Execution of notebooks: errors that papermill lets through fail, and outputs appear all or none."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest

from heshare.paper.notebooks import output_folders, parameters, run_notebooks
from heshare.paper.notebooks.execute_notebook import NotebookError, execute
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
def test_execute_moves_outputs_and_runs_this_interpreter_in_the_checkout(tmp_path: Path) -> None:
    kernel = (
        "import sys, os, json\n(Path(out_dir) / 'kernel.json').write_text(json.dumps([sys.executable, os.getcwd()]))"
    )
    book = toy_notebook(tmp_path, WRITE, kernel)
    done = execute(book, {"seed": 7, "profile": "smoke"}, tmp_path / "out", tmp_path / "copies")
    assert (tmp_path / "out/fig01_toy.csv").read_text() == "7 smoke"
    executable, folder = json.loads((tmp_path / "out/kernel.json").read_text())
    assert Path(executable) == Path(sys.executable)
    assert Path(folder) == parameters.folder().parent
    assert done.executed.is_file()
    assert not list((tmp_path / "out").glob(".*")), "the staging folder is gone"


@pytest.mark.slow
def test_execute_does_not_use_a_users_kernel_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": ["/no/such/python", "-f", "{connection_file}"], "display_name": "x", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    execute(toy_notebook(tmp_path, WRITE), {}, tmp_path / "out", tmp_path / "copies")
    assert (tmp_path / "out/fig01_toy.pdf").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ((WRITE, "raise SystemExit(0)", "late = 1"), "ended early"),
        ((WRITE, "1 / 0"), "ZeroDivisionError"),
        (("pass",), "declared but not written: fig01_toy.pdf"),
        ((WRITE, "(Path(out_dir) / 'fig01_toy.png').write_text('')"), "not written: fig01_toy.png"),
    ],
    ids=["system exit", "error", "missing output", "empty output"],
)
def test_execute_of_a_failed_notebook_leaves_the_old_outputs(
    tmp_path: Path, cells: tuple[str, ...], message: str
) -> None:
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
        ({"sed": "7"}, "Did you mean 'seed'"),
        ({"seed": "seven"}, "a whole number"),
        ({"seed": 1.5}, "a whole number"),
        ({"seed": True}, "a whole number"),
        ({"fast": "1"}, "a truth value"),
        ({"sizes": "4"}, "a list"),
        ({"sizes": "['a']"}, "a list"),
        ({"profile": "smoke"}, "--profile"),
        ({"out_dir": "x"}, "--out"),
    ],
)
def test_run_refuses_bad_parameters_before_a_notebook_runs(
    tmp_path: Path, given: dict[str, object], message: str
) -> None:
    book = toy_notebook(tmp_path, WRITE)
    with pytest.raises(InputError, match=message):
        run_notebooks.run([book.path], profile="smoke", given=given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_check_parses_text_as_the_type_of_the_default(tmp_path: Path) -> None:
    given = {"seed": "7", "rate": "1e-3", "fast": "true", "sizes": "[1, 2]"}
    assert parameters.check(toy_notebook(tmp_path), given) == {
        "seed": 7,
        "rate": 1e-3,
        "fast": True,
        "sizes": [1, 2],
    }
    assert parameters.check(toy_notebook(tmp_path), {"rate": 2}) == {"rate": 2.0}


@pytest.mark.parametrize("cell", ["seed = 0\ndoubled = seed * 2", "seed: int = 0", "import os", "seed = max(1, 2)"])
def test_read_refuses_a_parameters_cell_with_other_code_than_literals(tmp_path: Path, cell: str) -> None:
    with pytest.raises(InputError, match=r"literal"):
        toy_notebook(tmp_path, cell=cell)


def test_read_refuses_a_file_that_is_no_notebook(tmp_path: Path) -> None:
    (tmp_path / "x.ipynb").write_text("hello")
    with pytest.raises(InputError, match="no notebook"):
        parameters.read(tmp_path / "x.ipynb")


@pytest.mark.slow
def test_run_reports_every_failure_and_keeps_the_other_outputs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    books = [toy_notebook(tmp_path, WRITE, name="a"), toy_notebook(tmp_path, "1 / 0", name="b")]
    with pytest.raises(NotebookError, match=r"(?s)b: cell .* ZeroDivisionError.*others are in place: a\."):
        run_notebooks.run([book.path for book in books], profile="smoke", given={}, out=tmp_path / "out", jobs=1)
    assert (tmp_path / "out/fig01_toy.csv").read_text() == "0 smoke"
    told = capfd.readouterr().err
    assert {"a: started", "b: started"} <= set(told.splitlines())
    assert re.search(r"(?m)^\[[12]/2\] a: \d+\.\d s, 4 files$", told)
    assert re.search(r"(?m)^\[[12]/2\] b: failed$", told)


def test_folder_for_refuses_an_unknown_profile() -> None:
    with pytest.raises(InputError, match="Did you mean 'paper'"):
        output_folders.folder_for("papr")


def test_execute_starts_a_kernel_once_more_that_ends_before_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose port another process has taken."""
    interpreter, first = tmp_path / "interpreter", tmp_path / "first"
    interpreter.write_text(f'#!/bin/sh\n[ -e {first} ] && exec {sys.executable} "$@"\ntouch {first}; exit 1\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    execute(toy_notebook(tmp_path, WRITE), {}, tmp_path / "out", tmp_path / "copies")
    assert first.exists()
    assert (tmp_path / "out/fig01_toy.csv").read_text() == "0 paper"


@pytest.mark.slow
def test_execute_runs_each_kernel_in_a_process_with_pinned_variables(tmp_path: Path) -> None:
    cell = (
        "import json, os, math\n"
        "before, math.left_behind = getattr(math, 'left_behind', ''), 'here'\n"
        "(Path(out_dir) / 'kernel.json').write_text(json.dumps([os.getpid(), before, os.environ['TZ'], os.getsid(0)]))"
    )
    kernels = []
    for name in ("a", "b"):
        execute(toy_notebook(tmp_path, WRITE, cell, name=name), {}, tmp_path / name, tmp_path / "copies")
        kernels.append(json.loads((tmp_path / name / "kernel.json").read_text()))
    assert kernels[0][0] != kernels[1][0]
    assert [kernel[1:3] for kernel in kernels] == [["", "UTC"]] * 2
    assert os.getsid(0) not in {kernel[3] for kernel in kernels}, "Ctrl-C is for the runner, which ends its kernels"
