"""The kept forest: it is the trained one to the last bit, and is trained again when it is stale or damaged."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heshare as hs
from heshare.prediction import forest
from heshare.prediction.features import ReferenceFeatures
from heshare.prediction.forest import Forest
from heshare.profiles import store
from heshare.shared import files
from heshare.world.workload import Workload

Trained = tuple[Forest, ReferenceFeatures]


@pytest.fixture(scope="module")
def trained() -> Trained:
    return forest.train_forest(store.read_shipped(), seed=forest.KEPT_SEED)


@pytest.fixture
def trainings(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Seeds that were trained on, with an empty store."""
    seeds: list[int] = []

    def train(profiles: Any, *, seed: int) -> Trained:
        seeds.append(seed)
        return trained

    monkeypatch.setattr(forest, "train_forest", train)
    monkeypatch.setattr(files, "in_clone", lambda: False)
    monkeypatch.setenv("HESHARE_ROOT", str(files.PACKAGE.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    yield seeds
    forget()


def forget() -> None:
    for kept in (forest._key, forest._kept, forest.shipped_references, forest._shipped_forest):
        kept.cache_clear()


def in_a_new_process(seed: int = forest.KEPT_SEED) -> Trained:
    forget()
    return forest._shipped_forest(seed), forest.shipped_references()


def test_kept_forest_equals_the_trained_one_bit_for_bit(trained: Trained, trainings: list[int]) -> None:
    in_a_new_process()
    loaded = in_a_new_process()
    assert trainings == [0]
    assert loaded[0] is not trained[0]
    assert pickle.dumps(loaded[0]) == pickle.dumps(trained[0])
    workload = Workload("resnet50", 6)  # interpolated: a vectorised logarithm may depend on how the arrays are laid out
    assert loaded[1].task("A100", workload).tolist() == trained[1].task("A100", workload).tolist()


def test_damaged_or_stale_forest_is_trained_again(
    trainings: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_new_process()
    (file,) = tmp_path.rglob("forest.pickle")
    file.write_bytes(file.read_bytes()[:-1000])
    in_a_new_process()
    in_a_new_process()
    assert trainings == [0, 0]
    sources = forest.training_files()
    shipped = files.data("profiles", "emulated", "T4", "profile.csv"), files.data("calibration", "constants.csv")
    assert {*shipped, Path(forest.__file__)} <= set(sources)
    (changed := tmp_path / "changed.py").write_text("# another line\n")
    monkeypatch.setattr(forest, "training_files", lambda: [changed, *sources[1:]])
    in_a_new_process()
    in_a_new_process()
    assert trainings == [0, 0, 0]


def test_forests_of_other_seeds_are_not_stored(trainings: list[int], tmp_path: Path) -> None:
    in_a_new_process(3)
    in_a_new_process(3)
    assert trainings == [3, 3]
    assert not list(tmp_path.rglob("*.pickle"))


def test_policies_that_do_not_predict_load_no_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    front = hs.plan(4, "1xT4,1xA100")

    def refuse(seed: int) -> Forest:
        raise AssertionError("the forest is loaded")

    monkeypatch.setattr(forest, "_shipped_forest", refuse)
    for policy in ("sjf", "random", front.trade_off):
        assert len(hs.run(4, "1xT4,1xA100", policy).to_frame()) == 4
    assert len(hs.compare(4, "1xT4,1xA100", ["sjf", "random"], seeds=1)) == 2
    with pytest.raises(AssertionError):
        hs.run(4, "1xT4,1xA100", "heshare:trade-off")
