"""The recipes of `docs/adding.md` and `docs/your_gpu.md`, run in a copy of the repository, and what they change."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from support import recipes

PAGE = "docs/adding.md"
GPU, WORKLOAD, NOTEBOOK = "Add a GPU", "Add a workload", "Add a notebook"
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return recipes.copy_checkout(tmp_path)


def test_blocks() -> None:
    """Pages have the blocks that the tests run."""
    for heading in (GPU, WORKLOAD, NOTEBOOK):
        found = recipes.blocks(PAGE, heading)
        assert any(block.file for block in found), heading
        assert "make test" in "".join(block.text for block in found if block.language == "sh")
    shell = "".join(block.text for block in recipes.blocks("docs/your_gpu.md") if block.language == "sh")
    assert [line.split()[1] for line in shell.splitlines()] == ["doctor", *["profile"] * 3, "plan", "run"]


@pytest.mark.slow
def test_gpu(root: Path) -> None:
    """The fit, which takes a minute, is made with a described workload as well."""
    before = _hashes(root / "data" / "calibration")
    _add_data(root, WORKLOAD)
    done = recipes.follow(root, PAGE, GPU, tests=TESTS[GPU])
    said = {command: ran.stderr for command, ran in done.items()}
    assert "no profile of N4" in said["heshare plan --tasks 8 --cluster 1xN4,2xT4"]
    assert not [command for command, text in said.items() if "--profiles" in command and "no profile" in text]
    assert "424 rows of N4 (emulated)" in done["heshare profile --check data/profiles/emulated/N4"].stdout
    assert _hashes(root / "data" / "calibration") == before, "without a record the fit moves nothing"


@pytest.mark.slow
def test_workload(root: Path) -> None:
    """The recipe of a workload without any measurement runs to its end."""
    done = recipes.follow(root, PAGE, WORKLOAD, tests=TESTS[WORKLOAD])
    plans = [ran for command, ran in done.items() if command.startswith("heshare plan")]
    assert ["no profile of vit_b16 on" in ran.stderr for ran in plans] == [True, False]
    assert all("JCT-opt" in ran.stdout for ran in plans)


@pytest.mark.slow
def test_notebook(root: Path) -> None:
    """The recipe of a notebook runs to its end."""
    recipes.follow(root, PAGE, NOTEBOOK, tests=TESTS[NOTEBOOK])
    assert (root / "build" / "mine" / "x30a_mine.csv").is_file()
    assert [path.name for path in (root / "figures").iterdir()] == ["README.md"]


@pytest.mark.slow
def test_own_gpu_page(root: Path) -> None:
    """The page's commands, with an emulated GPU for the machine's own and the options that only a real one takes."""
    for block in recipes.blocks("docs/your_gpu.md"):
        if block.file:
            recipes.add(root, block)
        for command in block.text.splitlines() if block.language == "sh" else ():
            emulated = command.replace("nvml:0", "emulated:H100").replace("data/profiles/measured", "build/profiles")
            recipes.run(root, emulated)
    assert (root / "build" / "profiles" / "H100" / "profile.csv").is_file()
    shown = recipes.run(root, "heshare profile --check build/profiles/H100").stdout.splitlines()[-1]
    assert re.search(r"0 errors, \d+ notes; \d+ rows of H100 \(emulated\)$", shown)


@pytest.mark.nightly
def test_results_unchanged(tmp_path: Path) -> None:
    """A further GPU and workload change no result."""
    plain, extended = (recipes.copy_checkout(tmp_path / name) for name in ("plain", "extended"))
    for heading in (GPU, WORKLOAD):
        _add_data(extended, heading)
    recipes.run(extended, "heshare profile --device emulated:N4 --samples 40 --out data/profiles/emulated")
    outputs = []
    for root in (plain, extended):
        recipes.run(root, f"heshare notebook run {' '.join(QUICK)} --profile smoke --out {root / 'build' / 'smoke'}")
        outputs.append(_outputs(root / "build" / "smoke"))
    assert {"fig01_energy.png", "table3_gpus.csv"} <= set(outputs[0])
    assert outputs[0] == outputs[1]


def _add_data(root: Path, heading: str) -> None:
    for block in recipes.blocks(PAGE, heading):
        if block.file.startswith("data/"):
            recipes.add(root, block)


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
