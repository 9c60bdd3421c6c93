"""Experiments by hand, of each kind, in a checkout of its own: `figures/` stays as it was, and provenance is true."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from heshare.shared.files import PACKAGE, root

pytestmark = pytest.mark.slow
PARAMETERS = 'profile = "paper"\nseed = 0\ntasks = 10\nout_dir = ""'
BEGIN = (
    "import pandas as pd\n\nfrom heshare.lab.sweeps.statistics import ConfidenceInterval\n"
    "from heshare.paper.notebooks import notebook\n\n"
    'ctx = notebook.setup("01_toy", globals(), outputs=["x01a_toy"])'
)
WORK = (
    'frame = pd.DataFrame({"tasks": [tasks]})\n'
    'ctx.table(frame, "x01a_toy", caption="A toy.", rows="emulated")\n'
    'ctx.claim("H3", "Random", ConfidenceInterval(-31.0, -33.0, -29.0, tasks))'
)
NAME = "01_toy"


def write_notebook(path: Path, *cells: str, ran: bool = False) -> None:
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book.cells = [nbformat.v4.new_code_cell(source, id=f"c{number}") for number, source in enumerate(cells)]
    book.cells[0].metadata["tags"] = ["parameters"]
    if ran:
        book.cells[-1].outputs = [nbformat.v4.new_output("stream", text="saved")]
        book.cells[-1].execution_count = 3
    nbformat.write(book, path)


class Checkout:
    """A clone with the package, one toy notebook of its own, and figures that no experiment may touch."""

    def __init__(self, top: Path) -> None:
        self.top = top
        shutil.copytree(PACKAGE, top / "heshare")
        for name in (".gitignore", "pyproject.toml"):
            shutil.copy(root() / name, top)
        (top / "data").symlink_to(root() / "data")
        (top / "notebooks").mkdir()
        self.source = top / f"notebooks/{NAME}.ipynb"
        write_notebook(self.source, PARAMETERS, BEGIN, WORK)
        groups = f"groups: {{paper: [{NAME}], beyond: []}}\n"
        (top / "notebooks/profiles.yaml").write_text(f"{groups}smoke: {{{NAME}: {{tasks: 2}}}}\n")
        (top / "figures/claims").mkdir(parents=True)
        for name in ("x01a_toy.csv", "x01a_toy.md", "x01a_toy.json", f"claims/{NAME}.json"):
            (top / "figures" / name).write_text("the paper's")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "all")
        self.commit = self.git("rev-parse", "HEAD").strip()

    def git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.top, check=True, capture_output=True, text=True).stdout

    def environment(self) -> dict[str, str]:
        found = {name: value for name, value in os.environ.items() if name != "HESHARE_ROOT"}
        return {**found, "PYTHONPATH": str(self.top), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

    def heshare(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "heshare", *words]
        return subprocess.run(
            command, cwd=self.top, env=self.environment(), capture_output=True, text=True, check=False
        )

    def reset(self) -> None:
        self.git("checkout", "-q", "--", ".")
        self.git("clean", "-q", "-f", "-d", "--", "notebooks", "heshare")
        shutil.rmtree(self.top / "build", ignore_errors=True)
        for path in self.figures():
            (self.top / "figures" / path).write_text("the paper's")

    def figures(self) -> dict[str, bytes]:
        folder = self.top / "figures"
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def untouched(self) -> bool:
        return len(self.figures()) == 4 and set(self.figures().values()) == {b"the paper's"}

    def sidecar(self, folder: str = f"build/mine/{NAME}") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.top / folder / "x01a_toy.json").read_text())
        return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def clone(shared: Checkout) -> Checkout:
    shared.reset()
    return shared


def test_papers_run(clone: Checkout) -> None:
    """The paper's run writes to `figures/`, the same bytes twice; saved outputs of a notebook change no code."""
    write_notebook(clone.source, PARAMETERS, BEGIN, WORK, ran=True)
    words = ("notebook", "run", NAME)
    assert clone.heshare(*words).returncode == 0
    said, first = clone.sidecar("figures"), clone.figures()
    assert said["profile"] == "paper"
    assert said["run"] == {"by": "heshare notebook run", "changed_parameters": {}, "edited": False}
    assert (said["git_commit"], said["heshare_sha256"]) == (f"{clone.commit}+", None)
    assert clone.heshare(*words, "--out", "figures").returncode == 0
    assert clone.figures() == first
    assert str(clone.top) not in json.dumps(said)


def test_by_hand(clone: Checkout) -> None:
    """A notebook run by hand, as in JupyterLab, with a changed parameter, writes to `build/mine`."""
    from nbclient import NotebookClient

    changed = PARAMETERS.replace("10", "12")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in (changed, BEGIN, "tasks = tasks + 1", WORK)]
    folder = {"metadata": {"path": str(clone.source.parent)}}
    NotebookClient(book, kernel_name="python3", resources=folder, timeout=600).execute(env=clone.environment())
    assert clone.untouched()
    said = clone.sidecar()
    assert f"build/mine/{NAME}/" in book.cells[1].outputs[0].text
    assert (said["profile"], said["notebook_sha256"]) == ("custom", None)
    assert said["run"] == {"by": "hand", "changed_parameters": {"tasks": 12}}
    rows = json.loads((clone.top / f"build/mine/{NAME}/claims/{NAME}.json").read_text())
    assert {row["profile"] for row in rows} == {"custom"}


def test_edited_notebook(clone: Checkout) -> None:
    """An edited notebook, or one with other parameters, writes to `build/mine`; `figures/` is refused for it."""
    write_notebook(clone.source, PARAMETERS.replace("10", "9"), BEGIN, WORK)
    assert clone.heshare("notebook", "run", "--group", "all", "--out", "figures").returncode == 2
    done = clone.heshare("notebook", "run", NAME, "-p", "tasks=8")
    assert done.returncode == 0, done.stderr
    assert clone.untouched()
    said = clone.sidecar()
    assert said["profile"] == "custom"
    assert said["run"] == {"by": "heshare notebook run", "changed_parameters": {"tasks": 8}, "edited": True}
    assert not (clone.top / "build/notebooks/paper").exists(), "the executed copies of the paper's run stay"


def test_changed_package(clone: Checkout) -> None:
    """Changed code of the package is in the provenance, and needs `--out` to write to `figures/`."""
    (clone.top / "heshare/own.py").write_text('"""Mine."""\n')
    assert clone.heshare("notebook", "run", NAME).returncode == 0
    assert clone.untouched()
    said = clone.sidecar()
    assert said["git_commit"] == f"{clone.commit}+"
    assert len(said["heshare_sha256"]) == 64

    done = clone.heshare("notebook", "run", NAME, "--out", "figures")
    assert done.returncode == 0, "the author at work, by make figures"
    again = clone.sidecar("figures")
    assert (again["profile"], again["heshare_sha256"]) == ("paper", said["heshare_sha256"])
