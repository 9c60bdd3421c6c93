"""`make notebook`: the git filter that it installs, root, and a folder that is no clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from heshare.shared.files import root

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("make") is None or shutil.which("git") is None, reason="no make or git"),
]


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


def test_saved_outputs(clone: Path) -> None:
    """Outputs that are saved in a notebook stay out of git; edits are seen."""
    done = make(clone, "--version --allow-root")
    assert done.returncode == 0, done.stderr
    path = clone / "notebooks/explore.ipynb"
    book = nbformat.read(path, as_version=4)
    cell = next(cell for cell in book.cells if cell.cell_type == "code")
    cell.outputs, cell.execution_count = [nbformat.v4.new_output("stream", text="saved")], 7
    book.metadata["language_info"] = {"name": "python", "version": "3.13.1", "mimetype": "text/x-python"}
    nbformat.write(book, path)
    assert call(clone, "git", "diff", "--stat").stdout == ""

    cell.source += "\n"
    nbformat.write(book, path)
    assert "notebooks/explore.ipynb" in call(clone, "git", "diff", "--stat").stdout


def test_no_clone_or_root(clone: Path) -> None:
    """A folder that is no clone works with a message; root has to allow it."""
    if os.getuid() == 0:
        refused = make(clone, "--no-browser")
        assert refused.returncode == 2
        assert "--allow-root" in refused.stderr

    shutil.rmtree(clone / ".git")
    done = make(clone, "--version --allow-root")
    assert done.returncode == 0, done.stderr
    assert "no git clone" in done.stderr
