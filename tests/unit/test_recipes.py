"""The recipes of `docs/adding.md` and `docs/your_gpu.md`, run in a copy of the repository, and what they change."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.recipes import CHECKOUT, GPU, NOTEBOOK, PAGE, WORKLOAD, Block, blocks

STYLES = "tests/unit/paper/figures/test_series_styles.py"
TESTS = {
    GPU: "tests/contract/test_devices.py tests/unit/world/test_catalogue.py tests/unit/profiles/test_store.py "
    f"{STYLES} -k 'N4 or catalogue or store or series_styles'",
    WORKLOAD: "tests/unit/world/test_catalogue.py tests/unit/profiles/test_design.py "
    "tests/unit/ops/worker_program/test_networks.py tests/unit/ops/recording/test_budget_plan.py",
    NOTEBOOK: "tests/notebooks/test_notebooks.py",
}
"""The tests that `make test` runs here: those that a recipe can break, since all of them take minutes."""
QUICK = ("01", "02")
"""Notebooks of seconds: tables and figures of the paper's GPUs and workloads, and a comparison."""


def copy_checkout(folder: Path) -> Path:
    """Copy the files that git knows, or would add, and what is compiled of them, to a folder; return it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)
    for path in (CHECKOUT / "heshare").rglob("__pycache__/*"):
        (folder / path.relative_to(CHECKOUT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, folder / path.relative_to(CHECKOUT))
    return folder


def add(root: Path, block: Block) -> None:
    path = root / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text("utf-8") if path.exists() else ""
    path.write_text(before + block.text, "utf-8")


def run(root: Path, command: str, *, tests: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of a recipe in the copy; `make test` runs these of its tests.

    The programs are those of this Python, and the package is the copy's. `make calibrate` is `heshare calibrate`.
    """
    words = shlex.split(command)
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not gpu and not slow"]
    if words[0] == "make":
        program = [*pytest, *shlex.split(tests)] if words[1] == "test" else [sys.executable, "-m", "heshare", words[1]]
    else:
        program = [sys.executable, *(["-m", "heshare"] if words[0] == "heshare" else []), *words[1:]]
    environment = {
        **os.environ,
        "HESHARE_ROOT": str(root),
        "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")]),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    ran = subprocess.run(program, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=600)
    # `heshare doctor` exits with 1 where there is no GPU.
    allowed = (0, 1) if words == ["heshare", "doctor"] else (0,)
    assert ran.returncode in allowed, f"{command}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
    return ran


def follow(root: Path, page: str, heading: str, *, tests: str = "") -> dict[str, subprocess.CompletedProcess[str]]:
    """Add and run the blocks of a recipe in their order; return what each command printed."""
    done = {}
    for block in blocks(page, heading):
        if block.file:
            add(root, block)
        elif block.language == "sh":
            for command in block.text.replace("\\\n", " ").splitlines():
                line = command.split("  #")[0].strip()
                if line:
                    done[line] = run(root, line, tests=tests)
    return done


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copy_checkout(tmp_path)


@pytest.mark.slow
def test_gpu(root: Path) -> None:
    """The fit, which takes a minute, is made with a described workload as well."""
    folder = root / "data" / "calibration"
    before, constants = _hashes(folder), (folder / "constants.csv").read_text("utf-8").splitlines()
    _add_data(root, WORKLOAD)
    done = follow(root, PAGE, GPU, tests=TESTS[GPU])
    said = {command: ran.stderr for command, ran in done.items()}
    assert "no profile of N4" in said["heshare plan --tasks 8 --cluster 1xN4,2xT4"]
    assert not [command for command, text in said.items() if "--profiles" in command and "no profile" in text]
    assert "424 rows of N4 (emulated)" in done["heshare profile --check data/profiles/emulated/N4"].stdout
    changed = {name for name, own in _hashes(folder).items() if own != before[name]}
    assert changed <= {"constants.csv"}, "without a record the fit moves nothing"
    new = set((folder / "constants.csv").read_text("utf-8").splitlines()) - set(constants)
    assert all(",N4," in line for line in new)


@pytest.mark.slow
def test_workload(root: Path) -> None:
    """The recipe of a workload without any measurement runs to its end."""
    done = follow(root, PAGE, WORKLOAD, tests=TESTS[WORKLOAD])
    plans = [ran for command, ran in done.items() if command.startswith("heshare plan")]
    assert ["no profile of vit_b16 on" in ran.stderr for ran in plans] == [True, False]
    assert all("JCT-opt" in ran.stdout for ran in plans)


@pytest.mark.slow
def test_notebook(root: Path) -> None:
    """The recipe of a notebook runs to its end."""
    follow(root, PAGE, NOTEBOOK, tests=TESTS[NOTEBOOK])
    assert (root / "build" / "mine" / "x30a_mine.csv").is_file()
    assert [path.name for path in (root / "figures").iterdir()] == ["README.md"]


@pytest.mark.slow
def test_own_gpu_page(root: Path) -> None:
    """The page's commands but its figures, with an emulated GPU for the machine's own and options of real ones."""
    for block in blocks("docs/your_gpu.md"):
        if block.file:
            add(root, block)
        for command in block.text.splitlines() if block.language == "sh" else ():
            if command.startswith("make figures"):  # tests of the wheel and of notebooks draw them
                continue
            emulated = command.replace("nvml:0", "emulated:H100").replace("data/profiles/measured", "build/profiles")
            run(root, emulated)
    assert (root / "build" / "profiles" / "H100" / "profile.csv").is_file()
    shown = run(root, "heshare profile --check build/profiles/H100").stdout.splitlines()[-1]
    assert re.search(r"0 errors, \d+ notes; \d+ rows of H100 \(emulated\)$", shown)


@pytest.mark.nightly
def test_results_unchanged(tmp_path: Path) -> None:
    """A further GPU and workload change no result."""
    plain, extended = (copy_checkout(tmp_path / name) for name in ("plain", "extended"))
    for heading in (GPU, WORKLOAD):
        _add_data(extended, heading)
    run(extended, "heshare profile --device emulated:N4 --samples 40 --out data/profiles/emulated")
    outputs = []
    for root in (plain, extended):
        run(root, f"heshare notebook run {' '.join(QUICK)} --profile smoke --out {root / 'build' / 'smoke'}")
        outputs.append(_outputs(root / "build" / "smoke"))
    assert {"fig01_energy.png", "table3_gpus.csv"} <= set(outputs[0])
    assert outputs[0] == outputs[1]


def _add_data(root: Path, heading: str) -> None:
    for block in blocks(PAGE, heading):
        if block.file.startswith("data/"):
            add(root, block)


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def _outputs(folder: Path) -> dict[str, object]:
    """Every output by name: its hash, or a provenance without the hash of the data, which grew."""
    found: dict[str, object] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        said = json.loads(path.read_text("utf-8")) if path.suffix == ".json" else None
        if isinstance(said, dict):
            said.pop("data_sha256", None)
        found[path.name] = said or hashlib.sha256(path.read_bytes()).hexdigest()
    return found
