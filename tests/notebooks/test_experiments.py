"""Experiments by hand, of each kind, in a checkout of its own: `figures/` stays as it was, and provenance is true."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

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


def test_the_papers_run_writes_to_figures_the_same_twice(clone: Checkout) -> None:
    write_notebook(clone.source, PARAMETERS, BEGIN, WORK, ran=True)
    words = ("notebook", "run", NAME)
    assert clone.heshare(*words).returncode == 0
    said, first = clone.sidecar("figures"), clone.figures()
    assert said["profile"] == "paper"
    assert said["run"] == {"by": "heshare notebook run", "changed_parameters": {}, "edited": False}
    assert said["notebook_sha256"] == hashlib.sha256(clone.source.read_bytes()).hexdigest()
    assert (said["git_commit"], said["heshare_sha256"]) == (f"{clone.commit}+", None), "saved outputs change no code"
    assert clone.heshare(*words, "--out", "figures").returncode == 0
    assert clone.figures() == first
    assert str(clone.top) not in json.dumps(said)


def test_a_kernel_as_of_jupyterlab_leaves_figures_as_they_are(clone: Checkout) -> None:
    """In the notebooks' folder, of a copy, in which a parameter and a cell are other ones."""
    changed = PARAMETERS.replace("10", "12")
    book = nbformat.v4.new_notebook()
    own = "tasks = tasks + 1"
    book.cells = [nbformat.v4.new_code_cell(source) for source in (changed, BEGIN, own, WORK)]
    folder = {"metadata": {"path": str(clone.source.parent)}}
    NotebookClient(book, kernel_name="python3", resources=folder, timeout=600).execute(env=clone.environment())
    assert clone.untouched()
    said = clone.sidecar()
    assert "outputs go to build/mine/01_toy/" in book.cells[1].outputs[0].text
    assert (said["profile"], said["notebook_sha256"]) == ("custom", None)
    assert said["run"] == {"by": "hand", "changed_parameters": {"tasks": 12}}
    assert said["parameters"]["tasks"] == 12
    rows = json.loads((clone.top / f"build/mine/{NAME}/claims/{NAME}.json").read_text())
    assert {row["profile"] for row in rows} == {"custom"}


def test_the_runner_with_other_parameters_leaves_figures_as_they_are(clone: Checkout) -> None:
    done = clone.heshare("notebook", "run", "01", "-p", "tasks=8")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1 notebook, 4 files in build/mine/{NAME}/, with the profile custom\n"
    assert clone.untouched()
    said = clone.sidecar()
    assert said["profile"] == "custom"
    assert said["run"] == {"by": "heshare notebook run", "changed_parameters": {"tasks": 8}, "edited": False}
    assert said["notebook_sha256"] == hashlib.sha256(clone.source.read_bytes()).hexdigest()
    assert not (clone.top / "build/notebooks/paper").exists(), "the executed copies of the paper's run stay"
    listed = clone.heshare("notebook", "claims", "--out", f"build/mine/{NAME}")
    assert "1 reproduced" in listed.stdout
    for words in (["-p", "tasks=8"], ["--profile", "smoke"]):
        refused = clone.heshare("notebook", "run", "01", *words, "--out", "figures")
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert f"build/mine/{NAME}/" in refused.stderr
    assert clone.untouched()


def test_an_edited_notebook_leaves_figures_as_they_are(clone: Checkout) -> None:
    write_notebook(clone.source, PARAMETERS.replace("10", "9"), BEGIN, WORK)
    refused = clone.heshare("notebook", "run", "--group", "all", "--out", "figures")
    assert refused.returncode == 2
    assert "code that differs from the commit's" in refused.stderr
    assert clone.heshare("notebook", "run", NAME).returncode == 0
    assert clone.untouched()
    said = clone.sidecar()
    assert said["profile"] == "custom"
    assert said["run"] == {"by": "heshare notebook run", "changed_parameters": {}, "edited": True}
    assert said["notebook_sha256"] == hashlib.sha256(clone.source.read_bytes()).hexdigest()


def test_changed_code_of_the_package_is_named_and_needs_out_for_figures(clone: Checkout) -> None:
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


def test_copies_and_new_notebooks_are_run_by_name_only(clone: Checkout) -> None:
    copy = clone.source.with_name(f"{NAME}-Copy1.ipynb")
    write_notebook(copy, PARAMETERS, BEGIN, WORK.replace("[tasks]", "[tasks * 2]"))
    nbformat.write(nbformat.v4.new_notebook(), clone.source.with_name("Untitled.ipynb"))
    listed = clone.heshare("notebook", "list")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines()[0] == NAME
    assert f"run by name only: {NAME}-Copy1, Untitled" in listed.stdout
    done = clone.heshare("notebook", "run", "--group", "all", "--profile", "smoke")
    assert (done.returncode, done.stdout) == (0, "1 notebook, 4 files in build/smoke/\n"), done.stderr
    assert clone.heshare("notebook", "run", copy.stem).returncode == 0
    assert clone.untouched()
    said = clone.sidecar(f"build/mine/{copy.stem}")
    assert (said["notebook"], said["profile"]) == (f"notebooks/{copy.name}", "custom")
    assert said["run"]["edited"]
