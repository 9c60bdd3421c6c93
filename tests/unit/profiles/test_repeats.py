"""Repeat noise: found again from few repeats, by workload, and given to emulated profiles."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from heshare import files
from heshare.devices.noise import POWER_CV, TIME_CV, repeat_cv
from heshare.errors import InputError
from heshare.profiles import recordings, repeats, store
from heshare.profiles.regenerate import regenerate


def test_few_repeats_do_not_look_quieter_than_many(rng: np.random.Generator) -> None:
    for count in (2, 3, 5, 20):
        draws = rng.normal(1.0, 0.02, size=(20_000, count))
        cv = draws.std(axis=1, ddof=1) / draws.mean(axis=1)
        assert repeat_cv(cv, np.full(len(cv), count)) == pytest.approx(0.02, rel=0.03)


def test_settings_that_were_read_once_say_nothing() -> None:
    assert repeat_cv([0.0, 0.02, 0.0], [1, 100, 1]) == pytest.approx(0.02, rel=0.01)
    assert np.isnan(repeat_cv([0.0], [1]))


def test_the_noise_of_the_emulated_profiles_is_that_of_the_public_record() -> None:
    for name in ("T4", "V100", "A100"):
        time_cv, power_cv = repeats.sizes(store.read(files.data("profiles", "emulated", name)))
        assert time_cv == pytest.approx(TIME_CV, rel=0.1)
        assert power_cv == pytest.approx(POWER_CV, rel=0.1)


def test_a_recordings_noise_is_told_by_workload(made_up_h100: Path) -> None:
    table = recordings.one(str(made_up_h100)).table
    found = repeats.noise(table).set_index("workload")
    assert len(found) == 16
    assert found.drop("all")["settings"].sum() == found.loc["all", "settings"] == (table["repeats"] > 1).sum()
    assert found.loc["all", "time_pct"] == pytest.approx(2.0, rel=0.5)
    assert found.loc["all", "power_pct"] == pytest.approx(1.0, rel=0.5)


def test_without_repeats_there_is_no_noise_to_take(made_up_h100: Path) -> None:
    table = recordings.one(str(made_up_h100)).table.assign(repeats=1)
    assert repeats.noise(table)["time_pct"].isna().all()
    with pytest.raises(InputError, match="no setting was visited twice"):
        repeats.sizes(table)


def test_emulated_profiles_take_a_recordings_noise(made_up_h100: Path, tmp_path: Path) -> None:
    (path,) = regenerate(tmp_path, gpus=("T4",), samples=40, noise_of=str(made_up_h100), progress=False)
    table = store.read(path)
    wanted = repeats.sizes(recordings.one(str(made_up_h100)).table)
    assert set(table["provenance"]) == {"emulated"}
    assert repeats.sizes(table) == (pytest.approx(wanted[0], rel=0.2), pytest.approx(wanted[1], rel=0.2))
    said = json.loads(path.with_name("manifest.json").read_text(encoding="utf-8"))
    assert said["command"].startswith("python -m heshare.profiles.regenerate --noise-of ")
