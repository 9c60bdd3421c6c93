"""The kept predictor: it is the trained one to the last bit, loaded when it predicts, and trained again when stale."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heshare as hs
from heshare.prediction import load
from heshare.prediction.profile_predictor import Trained
from heshare.profiles import store


@pytest.fixture(scope="module")
def trained() -> Trained:
    return load.train(store.read_shipped(), seed=0)


@pytest.fixture
def trainings(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Seeds that were trained on, with an empty cache."""
    seeds: list[int] = []

    def train(profiles: Any, *, seed: int, kind: str) -> Trained:
        seeds.append(seed)
        return trained

    monkeypatch.setattr(load, "train", train)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load._shipped.cache_clear()
    yield seeds
    load._shipped.cache_clear()


def in_a_new_process(seed: int = 0) -> Trained:
    load._shipped.cache_clear()
    return load._shipped("trees", seed)


def test_kept_model(trained: Trained, trainings: list[int]) -> None:
    """A kept model equals the trained one to the bit."""
    in_a_new_process()
    loaded = in_a_new_process()
    assert trainings == [0]
    assert loaded.model is not trained.model
    assert pickle.dumps(loaded.model) == pickle.dumps(trained.model)


def test_damaged_or_other(trainings: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged model, and that of another key or seed, is trained again."""
    in_a_new_process()
    (file,) = tmp_path.rglob("trees-0-*.pickle")
    file.write_bytes(file.read_bytes()[:-1000])
    in_a_new_process()
    in_a_new_process()
    assert trainings == [0, 0]
    in_a_new_process(3)
    monkeypatch.setattr(load, "key_of", lambda paths, libraries: "another")
    in_a_new_process()
    assert trainings == [0, 0, 3, 0]


def test_no_model_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies that do not predict load no model."""
    front = hs.plan(4, "1xT4,1xA100")

    def refuse(kind: str, seed: int) -> Trained:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr(load, "_shipped", refuse)
    for policy in ("random", front.trade_off):
        assert len(hs.run(4, "1xT4,1xA100", policy).to_frame()) == 4
    with pytest.raises(AssertionError):
        hs.run(4, "1xT4,1xA100", "heshare:trade-off")
