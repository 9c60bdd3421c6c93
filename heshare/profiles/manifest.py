"""The manifest of a profile table: how it was recorded, and the checksum that shows whether it was changed since.

The manifest of an emulated device holds nothing that differs from one machine or day to another.
"""

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.devices.device import Device
from heshare.profiles.visit import NOTHING, MeasurementProtocol
from heshare.shared import files
from heshare.shared.errors import InputError, require
from heshare.shared.journal import read_journal
from heshare.shared.version import __version__

NAME = "manifest.json"


def write(
    table_path: str | Path,
    table: pd.DataFrame,
    device: Device,
    protocol: MeasurementProtocol,
    *,
    command: str = "",
    journal: str | Path | None = None,
    kernels: Mapping[str, Any] | None = None,
) -> Path:
    """Write the manifest of a table that was just recorded; return its path.

    `journal` is the log of single visits, if there is one; `kernels` the entry for the table of kernels.
    """
    table_path = Path(table_path)
    content: dict[str, Any] = {
        "table": table_path.name,
        "sha256": files.sha256(table_path),
        "rows": len(table),
        "throttled_rows": int(table["throttled"].sum()),
        "gpu": device.gpu.name,
        "provenance": device.provenance,
        "device": {"sharing": "mps", **device.facts()},
        "idle_w": float(table["idle_w"].iloc[0]),
        "protocol": asdict(protocol),
        "command": command,
        "heshare": __version__,
    }
    if journal is not None:
        content["visits"] = _summarise_visits(Path(journal))
    if kernels is not None:
        content["kernels"] = dict(kernels)
    if device.provenance == "measured":
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content |= {"recorded": now, "python": platform.python_version(), "system": platform.platform()}
    return _write(table_path.with_name(NAME), content)


def verify(table_path: str | Path) -> None:
    """Check a table against its manifest, if there is one; an `InputError` if it was changed since."""
    table_path = Path(table_path)
    path = table_path.with_name(NAME)
    if not path.is_file():
        return
    content = read(path)
    for entry in (content, content.get("kernels", {})):
        if entry.get("table") != table_path.name:
            continue
        sha256 = files.sha256(table_path)
        found = f"a table that was changed after it was recorded (SHA-256 {sha256[:12]}...)"
        expected = f"the recorded table ({entry['sha256'][:12]}...), by its {NAME}"
        action = f"Restore or record it again; or, if the change is meant, heshare profile --accept {table_path}"
        require(None, found, sha256 == entry["sha256"], expected, action, file=table_path)
        return


def read(path: Path) -> dict[str, Any]:
    """Return the content of a manifest, or an `InputError`."""
    try:
        content: dict[str, Any] = json.loads(files.read_input(path))
        str(content["table"]) + str(content["sha256"]) + json.dumps(content, allow_nan=False)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"no manifest ({type(error).__name__}: {error})",
            "JSON with table and sha256",
            "Record the table again, or delete the manifest and check the table by hand.",
            file=path,
        ) from None
    return content


def write_kernels(path: Path, kernels: Mapping[str, Any]) -> None:
    """Replace the entry for the table of kernels in an existing manifest."""
    _write(path, {**read(path), "kernels": dict(kernels)})


def accept(table_path: str | Path) -> Path:
    """Enter the checksum of a changed table in its manifest, which keeps the old one; return the manifest's path."""
    table_path = Path(table_path)
    table_path = table_path / "profile.csv" if table_path.is_dir() else table_path
    path = table_path.with_name(NAME)
    for file in (table_path, path):
        if not file.is_file():
            raise InputError("no such file", "a table with its manifest", "Name a recorded table.", file=file)
    content, sha256 = read(path), files.sha256(table_path)
    if content["sha256"] == sha256:
        return path
    edits = [*content.get("edited_from", []), content["sha256"]]
    return _write(path, {**content, "sha256": sha256, "edited_from": edits})


def _summarise_visits(journal: Path) -> dict[str, Any]:
    visits = [entry["visit"] for entry in read_journal(journal, "recording") if "visit" in entry]
    temperatures_c = [visit["temperature_c"] for visit in visits if visit["temperature_c"] is not None]
    waiting_w = [visit["power_w"] for visit in visits if visit["setup"].startswith(NOTHING)]
    return {
        "file": journal.name,
        "count": len(visits),
        "throttled": sum(visit["throttled"] for visit in visits),
        "took_s": round(math.fsum(visit["took_s"] for visit in visits), 3),
        "temperature_c": {"least": min(temperatures_c), "most": max(temperatures_c)} if temperatures_c else None,
        # Nothing runs, but workers keep their CUDA contexts; `idle_w` is from before there was any.
        "idle_with_contexts_w": round(math.fsum(waiting_w) / len(waiting_w), 3) if waiting_w else None,
    }


def _write(path: Path, content: dict[str, Any]) -> Path:
    return files.write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
