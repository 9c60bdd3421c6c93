"""`make notebook`: the git filter that it installs, its options, root, and a folder that is no clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from heshare.paper.notebooks import parameters
from heshare.shared.files import root

OWN = [*parameters.find(), *parameters.find(["90_live"])]
pytestmark = pytest.mark.skipif(shutil.which("make") is None or shutil.which("git") is None, reason="no make or git")


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def make(folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    """`make notebook` with this Python, and no environment built for it."""
    return call(folder, "make", "notebook", f"PY={sys.executable}", "ENV=", f"LAB={options}")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", ".gitattributes", ".gitignore"):
        shutil.copy(root() / name, tmp_path)
    shutil.copytree(root() / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "all"],
    ):
        assert call(tmp_path, "git", *words).returncode == 0
    return tmp_path


@pytest.mark.slow
def test_make_notebook_keeps_saved_outputs_out_of_git(clone: Path) -> None:
    done = make(clone, "--version --allow-root")
    assert done.returncode == 0, done.stderr
    assert "/lab/tree/notebooks/explore.ipynb" in done.stdout
    path = clone / "notebooks/explore.ipynb"
    book = nbformat.read(path, as_version=4)
    cell = next(cell for cell in book.cells if cell.cell_type == "code")
    cell.outputs, cell.execution_count = [nbformat.v4.new_output("stream", text="saved")], 7
    book.metadata["language_info"] = {"name": "python", "version": "3.13.1", "mimetype": "text/x-python"}
    nbformat.write(book, path)
    assert call(clone, "git", "diff", "--stat").stdout == ""
    cell.source += "\n"
    nbformat.write(book, path)
    assert "notebooks/explore.ipynb" in call(clone, "git", "diff", "--stat").stdout, "an edit is seen"
    (clone / "scratch").mkdir()
    (clone / "scratch/mine.ipynb").write_text("{}")
    assert "scratch" not in call(clone, "git", "status", "--porcelain").stdout


@pytest.mark.slow
def test_make_notebook_works_where_there_is_no_clone(clone: Path) -> None:
    shutil.rmtree(clone / ".git")
    done = make(clone, "--version --allow-root")
    assert done.returncode == 0, done.stderr
    assert "no git clone" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="not root")
def test_make_notebook_as_root_says_how(clone: Path) -> None:
    done = make(clone, "--no-browser")
    assert done.returncode == 2
    assert 'make notebook LAB="--allow-root"' in done.stderr


@pytest.mark.slow
def test_the_filter_leaves_committed_notebooks_as_they_are(tmp_path: Path) -> None:
    committed = {}
    for path in OWN:
        found = call(root(), "git", "show", f":{path.relative_to(root()).as_posix()}")
        if found.returncode:
            pytest.skip("no git clone")
        committed[tmp_path / path.name] = found.stdout
        (tmp_path / path.name).write_text(found.stdout, "utf-8")
    words = [sys.executable, "-m", "nbstripout", "--keep-id", "--extra-keys", "metadata.language_info"]
    subprocess.run([*words, *map(str, committed)], check=True)
    changed = [path.name for path, text in committed.items() if path.read_text("utf-8") != text]
    assert changed == [], "committed with outputs: run `make notebook` once, then `git add` them again"
