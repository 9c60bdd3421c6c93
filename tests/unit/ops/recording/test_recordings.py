"""Recordings of GPUs, read by name or path, and their repeat noise, which emulated profiles can use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from heshare.devices.noise import POWER_CV, TIME_CV, repeat_cv
from heshare.ops.open_device import emulated
from heshare.ops.recording import recordings, regenerate_profiles
from heshare.ops.recording.profile_device import profile
from heshare.ops.recording.regenerate_profiles import regenerate
from heshare.profiles import store
from heshare.shared import files
from heshare.shared.errors import InputError


def test_by_folder(made_up_h100: Path, tmp_path: Path) -> None:
    """Recordings are read by folder, or by the folder above it, and their sharing from their manifest."""
    folder = shutil.copytree(made_up_h100, tmp_path / "H100")
    recording = recordings.read(folder)
    assert (recording.gpu, recording.label, recording.sharing) == ("H100", "H100 (measured)", "mps")
    assert (recording.provenance, set(recording.table["provenance"])) == ("measured", {"measured"})
    assert recording.path == recordings.read(tmp_path).path == folder / "profile.csv"

    path = folder / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "device": {"sharing": "time-slice"}}), encoding="utf-8")
    assert recordings.read(folder).sharing == "time-slice"


@pytest.mark.slow
def test_by_gpu(made_up_h100: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings are read by GPU, or all of them."""
    monkeypatch.setattr(recordings, "folder", lambda: tmp_path)
    assert recordings.shipped() == ()
    shutil.copytree(made_up_h100, tmp_path / "H100")
    assert recordings.read("H100").gpu == "H100"
    assert [recording.gpu for recording in recordings.shipped()] == ["H100"]
    with pytest.raises(InputError, match=r"H200.*\(H100\)"):
        recordings.read("H200")


def test_emulated(tmp_path: Path) -> None:
    """A recording of an emulated device has no mark of a measurement."""
    profile(emulated("A100"), tmp_path, budget_s=120.0, command="heshare profile --device emulated:A100")
    recording = recordings.read(tmp_path / "A100")
    assert (recording.provenance, recording.label) == ("emulated", "A100")


def test_missing() -> None:
    """Missing recordings are refused, with the command that records one."""
    with pytest.raises(InputError) as refused:
        recordings.read("NoSuchGpu")
    assert "no recording of 'NoSuchGpu'" in str(refused.value)
    assert recordings.COMMAND in str(refused.value)


def test_repeat_cv(rng: np.random.Generator) -> None:
    """The coefficient of variation is unbiased for few repeats."""
    for count in (2, 5):
        draws = rng.normal(1.0, 0.02, size=(20_000, count))
        cv = draws.std(axis=1, ddof=1) / draws.mean(axis=1)
        assert repeat_cv(cv, np.full(len(cv), count)) == pytest.approx(0.02, rel=0.03)
    # What was visited once is ignored.
    assert repeat_cv([0.0, 0.02, 0.0], [1, 100, 1]) == pytest.approx(0.02, rel=0.01)
    assert np.isnan(repeat_cv([0.0], [1]))


def test_emulated_noise() -> None:
    """The noise of emulated profiles is that of the public record."""
    for name in ("T4", "V100", "A100"):
        time_cv, power_cv = regenerate_profiles.time_and_power_cv(store.read(files.data("profiles", "emulated", name)))
        assert time_cv == pytest.approx(TIME_CV, rel=0.1)
        assert power_cv == pytest.approx(POWER_CV, rel=0.1)


def test_by_workload(made_up_h100: Path) -> None:
    """The noise of a recording is known by workload; one without repeats has none."""
    table = recordings.read(made_up_h100).table
    noise = regenerate_profiles.noise_by_workload(table).set_index("workload")
    assert len(noise) == 16
    assert noise.drop("all")["settings"].sum() == noise.loc["all", "settings"] == (table["repeats"] > 1).sum()
    assert noise.loc["all", "time_pct"] == pytest.approx(2.0, rel=0.5)
    assert noise.loc["all", "power_pct"] == pytest.approx(1.0, rel=0.5)
    once = table.assign(repeats=1)
    assert regenerate_profiles.noise_by_workload(once)["time_pct"].isna().all()
    with pytest.raises(InputError, match="no setting was visited twice"):
        regenerate_profiles.time_and_power_cv(once)


def test_noise_of(made_up_h100: Path, tmp_path: Path) -> None:
    """Emulated profiles can use the noise of a recording."""
    (path,) = regenerate(tmp_path, gpus=("T4",), samples=40, noise_of=str(made_up_h100), progress=False)
    table = store.read(path)
    expected = regenerate_profiles.time_and_power_cv(recordings.read(made_up_h100).table)
    assert set(table["provenance"]) == {"emulated"}
    assert regenerate_profiles.time_and_power_cv(table) == (
        pytest.approx(expected[0], rel=0.2),
        pytest.approx(expected[1], rel=0.2),
    )
    content = json.loads(path.with_name("manifest.json").read_text(encoding="utf-8"))
    assert content["command"].startswith("heshare calibrate --profiles --noise-of ")
