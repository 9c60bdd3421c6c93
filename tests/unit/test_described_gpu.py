"""The recipes for a new GPU and a new network to their end: rows in `data/`, then estimates, profiles and plans."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.made_up_card import NETWORK, ROWS

from heshare.profiles import store
from heshare.shared import files
from heshare.world import catalogue
from heshare.world.task_set import models_of


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout's data with one more card."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(files.root() / "data", folder / "data")
    with (folder / "data" / "gpus.csv").open("a", encoding="utf-8") as stream:
        stream.writelines(f"X1,{field},{value},{unit},assumed,made up\n" for field, (value, unit) in ROWS.items())
    with (folder / "data" / "workloads.csv").open("a", encoding="utf-8") as stream:
        stream.writelines(f"vit,{field},{value},{unit},assumed,made up\n" for field, (value, unit) in NETWORK.items())
    return folder


def _heshare(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HESHARE_ROOT": str(root)}
    command = [sys.executable, "-m", "heshare", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=files.root())


@pytest.mark.slow
def test_estimate_answers_for_a_card_and_a_network_that_were_only_described(root: Path):
    for gpu, network in (("X1", "resnet50:8"), ("A100", "vit:8"), ("X1", "vit:8")):
        ran = _heshare(root, "estimate", gpu, network, "--json")
        assert ran.returncode == 0, ran.stderr
        (task,) = json.loads(ran.stdout)["tasks"]
        assert not task["anchored"]
        assert task["uncertainty"] > 0.25
        assert 0.001 < task["time_s"] < 0.5


def test_described_cards_and_networks_do_not_change_drawn_task_sets(root: Path, monkeypatch):
    before = models_of("mixed")
    monkeypatch.setenv("HESHARE_ROOT", str(root))
    catalogue.models.cache_clear()
    try:
        assert "vit" in catalogue.models()
        assert models_of("mixed") == before
        assert "vit" not in catalogue.paper_models()
    finally:
        monkeypatch.undo()
        catalogue.models.cache_clear()


@pytest.mark.slow
def test_plan_answers_for_a_card_without_profiles_and_says_so(root: Path):
    ran = _heshare(root, "plan", "--tasks", "2", "--cluster", "1xX1")
    assert ran.returncode == 0, ran.stderr
    assert "heshare: no profile of X1: predicted from the device model's answers" in ran.stderr
    assert "heshare profile --device emulated:X1 --out FOLDER" in ran.stderr


@pytest.mark.slow
def test_plan_and_compare_use_the_profiles_of_the_card_and_the_paper_s_predictor_does_not(root: Path, monkeypatch):
    folder = root / "data" / "profiles" / "emulated"
    ran = _heshare(root, "profile", "--device", "emulated:X1", "--samples", "100", "--out", str(folder))
    assert ran.returncode == 0, ran.stderr
    options = ["--tasks", "4", "--cluster", "1xX1,1xT4", "--profiles", str(folder)]
    ran = _heshare(root, "plan", *options)
    assert ran.returncode == 0, ran.stderr
    assert "JCT-opt" in ran.stdout
    ran = _heshare(root, "compare", *options, "--seeds", "1", "--policy", "heshare:trade-off", "--policy", "morak")
    assert ran.returncode == 0, ran.stderr
    before = store.read_shipped()
    monkeypatch.setenv("HESHARE_ROOT", str(root))
    assert before.equals(store.read_shipped())
    assert set(before["gpu"]) == {"T4", "V100", "A100"}
