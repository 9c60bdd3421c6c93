"""The manifest beside a profile table."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.devices.device import Reading
from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.recording.profile_device import profile
from heshare.profiles import manifest, store
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu

QUICK = MeasurementProtocol(repeats=1)


class Warm(EmulatedDevice):
    """A device that reports a temperature and facts."""

    provenance = "measured"

    def read(self) -> Reading:
        reading = super().read()
        return replace(reading, temperature_c=50.0 + len(reading.residents))

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"driver": "600.1", "sharing": "time-slice"}


def _record(folder: Path, device: EmulatedDevice) -> Path:
    return profile(device, folder, samples=4, protocol=QUICK, command="heshare profile ...")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of an emulated T4."""
    return _record(tmp_path_factory.mktemp("recorded"), EmulatedDevice(gpu("T4")))


@pytest.fixture
def path(recorded: Path, tmp_path: Path) -> Path:
    """The table of a copy of that recording."""
    return Path(shutil.copytree(recorded.parent, tmp_path / "T4")) / recorded.name


def _manifest(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.with_name("manifest.json").read_text(encoding="utf-8"))
    return content


def test_contents(recorded: Path) -> None:
    """A recording has a table, its visits, and a manifest with checksum, protocol and command."""
    content = _manifest(recorded)
    assert {file.name for file in recorded.parent.iterdir()} == {"manifest.json", "profile.csv", "recording.jsonl"}
    assert content["sha256"] == hashlib.sha256(recorded.read_bytes()).hexdigest()
    assert (content["rows"], content["gpu"], content["provenance"]) == (94, "T4", "emulated")
    assert content["command"] == "heshare profile ..."
    assert content["protocol"]["window_s"] == 5.0
    assert content["visits"]["count"] == 94


def test_facts(tmp_path: Path) -> None:
    """The manifest of a measured device holds its facts."""
    content = _manifest(_record(tmp_path, Warm(gpu("T4"))))
    assert content["device"] == {"sharing": "time-slice", "driver": "600.1"}
    least, most = content["visits"]["temperature_c"].values()
    assert 51.0 <= least <= most
    assert str(content["recorded"]).endswith("+00:00")


def test_edited_table(path: Path) -> None:
    """An edited table is refused until it is accepted."""
    before = _manifest(path)["sha256"]
    assert len(store.read(path)) == 94
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")
    for target in (path, path.parent):
        with pytest.raises(InputError, match="heshare profile --accept"):
            store.read(target)
    result = CliRunner().invoke(app, ["profile", "--accept", str(path)])
    assert result.exit_code == 0
    assert len(store.read(path)) == 93
    assert _manifest(path)["edited_from"] == [before]
    manifest.accept(path.parent)
    assert _manifest(path)["edited_from"] == [before]


def test_bad_manifest(path: Path) -> None:
    """A bad manifest is refused."""
    for text in ("", "[]", "{}", '{"table": "profile.csv"}'):
        path.with_name("manifest.json").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="no manifest"):
            store.read(path)
    path.with_name("manifest.json").unlink()
    assert len(store.read(path)) == 94
    with pytest.raises(InputError, match="no such file"):
        manifest.accept(path)
