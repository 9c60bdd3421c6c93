"""What stands beside a recorded table: how it came to be, and whether it is still the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.devices.device import Reading
from heshare.devices.emulated import EmulatedDevice
from heshare.errors import InputError
from heshare.profiles import manifest, store
from heshare.profiles.protocol import Protocol
from heshare.profiles.record import profile
from heshare.world.catalogue import gpu

QUICK = Protocol(repeats=1)


class Warm(EmulatedDevice):
    """Says how warm it is and what it is."""

    provenance = "measured"

    def read(self) -> Reading:
        seen = super().read()
        cells = {name: getattr(seen, name) for name in Reading.__dataclass_fields__}
        return Reading(**(cells | {"temperature_c": 50.0 + len(seen.residents)}))

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"driver": "600.1", "sharing": "time-slice"}


def _record(folder: Path, device: EmulatedDevice | None = None) -> Path:
    return profile(
        device or EmulatedDevice(gpu("T4")), folder, samples=4, protocol=QUICK, command="heshare profile ..."
    )


def _said(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(path.with_name("manifest.json").read_text(encoding="utf-8"))
    return found


def test_a_manifest_says_how_the_table_came_to_be(tmp_path: Path) -> None:
    path = _record(tmp_path)
    said = _said(path)
    assert said["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (said["rows"], said["gpu"], said["provenance"]) == (94, "T4", "emulated")
    assert said["command"] == "heshare profile ..."
    assert said["protocol"]["window_s"] == 5.0  # type: ignore[index]
    assert said["visits"]["count"] == 94  # type: ignore[index]


def test_an_emulated_manifest_is_the_same_everywhere(tmp_path: Path) -> None:
    one, other = _record(tmp_path / "one"), _record(tmp_path / "other")
    assert one.with_name("manifest.json").read_bytes() == other.with_name("manifest.json").read_bytes()
    assert "recorded" not in _said(one)


def test_a_measured_manifest_keeps_what_the_device_says(tmp_path: Path) -> None:
    said = _said(_record(tmp_path, Warm(gpu("T4"))))
    assert said["device"] == {"sharing": "time-slice", "driver": "600.1"}
    least, most = said["visits"]["temperature_c"].values()  # type: ignore[index]
    assert 51.0 <= least <= most
    assert str(said["recorded"]).endswith("+00:00")


def test_a_table_that_was_edited_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    path = _record(tmp_path)
    before = _said(path)["sha256"]
    assert len(store.read(path)) == 94
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")
    for where in (path, tmp_path):
        with pytest.raises(InputError, match=r"changed after it was recorded.*heshare profile --accept"):
            store.read(where)
    said = CliRunner().invoke(app, ["profile", "--accept", str(path)])
    assert said.exit_code == 0
    assert len(store.read(path)) == 93
    assert _said(path)["edited_from"] == [before]
    manifest.accept(tmp_path / "T4")
    assert _said(path)["edited_from"] == [before]


def test_what_is_no_manifest_is_refused(tmp_path: Path) -> None:
    path = _record(tmp_path)
    for text in ("", "[]", "{}", '{"table": "profile.csv"}'):
        path.with_name("manifest.json").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="no manifest"):
            store.read(path)
    path.with_name("manifest.json").unlink()
    assert len(store.read(path)) == 94
    with pytest.raises(InputError, match="no such file"):
        manifest.accept(path)
