"""Recordings of real GPUs, read by name or path."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from heshare.ops.open_device import emulated
from heshare.ops.recording import recordings
from heshare.ops.recording.profile_device import profile
from heshare.shared.errors import InputError


def test_recordings_are_read_by_folder(made_up_h100: Path) -> None:
    assert recordings.read("emulated") == ()
    (recording,) = recordings.read(f"recorded:{made_up_h100}")
    assert (recording.gpu, recording.label, recording.sharing) == ("H100", "H100 (measured)", "mps")
    assert set(recording.table["provenance"]) == {"measured"}
    assert recording.path == made_up_h100 / "profile.csv"


def test_recordings_are_read_by_gpu_and_all(
    made_up_h100: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "folder", lambda: tmp_path)
    assert recordings.read("recorded:all") == ()
    shutil.copytree(made_up_h100, tmp_path / "H100")
    assert [recording.gpu for recording in recordings.read("recorded:H100")] == ["H100"]
    assert [recording.gpu for recording in recordings.read("recorded:all")] == ["H100"]
    with pytest.raises(InputError, match=r"H200.*recorded so far: H100"):
        recordings.read("recorded:H100,H200")
    with pytest.raises(InputError, match="each GPU once"):
        recordings.read("recorded:H100,H100")


def test_sharing_of_a_recording_is_read_from_the_manifest(made_up_h100: Path, tmp_path: Path) -> None:
    shutil.copytree(made_up_h100, tmp_path / "H100")
    path = tmp_path / "H100" / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "device": {"sharing": "time-slice"}}), encoding="utf-8")
    assert recordings.read_one(str(tmp_path / "H100")).sharing == "time-slice"
    path.unlink()
    assert recordings.read_one(str(tmp_path / "H100")).sharing == "mps"


def test_recordings_of_an_emulated_device_are_refused(tmp_path: Path) -> None:
    profile(emulated("A100"), tmp_path, budget_s=120.0, command="heshare profile --device emulated:A100")
    with pytest.raises(InputError, match="never shown as measured") as refused:
        recordings.read(f"recorded:{tmp_path}/A100")
    assert refused.value.found == "emulated"
    assert refused.value.exit_code == 2


def test_recordings_that_are_missing_or_unknown_are_refused() -> None:
    with pytest.raises(InputError) as refused:
        recordings.read("recorded:NoSuchGpu")
    assert str(recordings.folder() / "NoSuchGpu") in str(refused.value)
    assert recordings.COMMAND in str(refused.value)
    for source in ("measured", "recorded:H100,"):
        with pytest.raises(InputError, match="recorded:GPU"):
            recordings.read(source)
