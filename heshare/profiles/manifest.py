"""The manifest beside a recorded table: how it came to be, and the checksum that shows whether it still is what it was.

A manifest of an emulated device says nothing that differs from one machine or day to another.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from heshare import __version__, files
from heshare.devices.device import Described, Device
from heshare.errors import InputError
from heshare.profiles import kernels
from heshare.profiles.protocol import Protocol

NAME, KERNELS = "manifest.json", "kernels.csv"


def write(
    table_path: str | Path,
    table: pd.DataFrame,
    device: Device,
    protocol: Protocol,
    *,
    command: str = "",
    journal: str | Path | None = None,
    kernels_left_out: Mapping[str, str] | None = None,
) -> Path:
    """Write the manifest of a table that was just recorded.

    Args:
        table_path: the table's file.
        table: what it holds.
        device: what was measured.
        protocol: how.
        command: what was asked for.
        journal: the file of single visits beside it, if it is kept.
        kernels_left_out: workloads whose kernels could not be traced, and why; None where none were asked for.

    Returns:
        The manifest's path.
    """
    table_path = Path(table_path)
    facts = device.facts() if isinstance(device, Described) else {}
    said: dict[str, Any] = {
        "table": table_path.name,
        "sha256": checksum(table_path),
        "rows": len(table),
        "throttled_rows": int(table["throttled"].sum()),
        "gpu": device.gpu.name,
        "provenance": device.provenance,
        "device": {"sharing": "mps", **facts},
        "idle_w": float(table["idle_w"].iloc[0]),
        "protocol": asdict(protocol),
        "command": command,
        "heshare": __version__,
    }
    if journal is not None:
        said["visits"] = _visits(Path(journal))
    kernels_path = table_path.with_name(KERNELS)
    if kernels_path.is_file() or kernels_left_out:
        said["kernels"] = {**_kernels(kernels_path), "left_out": dict(kernels_left_out or {})}
    if device.provenance == "measured":
        now = datetime.now(UTC).isoformat(timespec="seconds")
        said |= {"recorded": now, "python": platform.python_version(), "system": platform.platform()}
    return files.write_text(table_path.with_name(NAME), _text(said))


def verify(table_path: str | Path) -> None:
    """Check a table against the manifest beside it, if there is one.

    Raises:
        InputError: the table is not the one that was recorded, or the manifest cannot be read.
    """
    table_path = Path(table_path)
    path = table_path.with_name(NAME)
    if not path.is_file():
        return
    said = _read(path)
    part = next((one for one in (said, said.get("kernels", {})) if one.get("table") == table_path.name), None)
    if part is None:
        return
    found = checksum(table_path)
    if found != part["sha256"]:
        raise InputError(
            file=table_path,
            found=f"a table that was changed after it was recorded (SHA-256 {found[:12]}...)",
            expected=f"the recorded table ({part['sha256'][:12]}...), as {NAME} says",
            action=f"Restore or record it again; or, if the change is meant, heshare profile --accept {table_path}",
        )


def note_kernels(path: str | Path) -> None:
    """Take a table of kernels that has just been traced into the manifest beside it, if there is one.

    Raises:
        InputError: the manifest cannot be read.
    """
    path = Path(path)
    beside = path.with_name(NAME)
    if path.name == KERNELS and beside.is_file():
        said = _read(beside)
        left_out = said.get("kernels", {}).get("left_out", {})
        files.write_text(beside, _text({**said, "kernels": {**_kernels(path), "left_out": left_out}}))


def accept(table_path: str | Path) -> Path:
    """Take a changed table as it is: its manifest gets the new checksum and says that the table was edited.

    Returns:
        The manifest's path.

    Raises:
        InputError: there is no such table or manifest.
    """
    table_path = Path(table_path)
    table_path = table_path / "profile.csv" if table_path.is_dir() else table_path
    path = table_path.with_name(NAME)
    for one in (table_path, path):
        if not one.is_file():
            raise InputError(
                file=one, found="no such file", expected="a table with its manifest", action="Name a recorded table."
            )
    said, found = _read(path), checksum(table_path)
    if said["sha256"] == found:
        return path
    edits = [*said.get("edited_from", []), said["sha256"]]
    return files.write_text(path, _text({**said, "sha256": found, "edited_from": edits}))


def checksum(path: str | Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        str(said["table"]) + str(said["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            file=path,
            found=f"no manifest ({type(error).__name__}: {error})",
            expected="JSON with table and sha256",
            action="Record the table again, or delete the manifest and check the table by hand.",
        ) from None
    assert isinstance(said, dict)
    return said


def _kernels(path: Path) -> dict[str, Any]:
    """What a manifest says of a table of kernels; nothing where there is none."""
    if not path.is_file():
        return {}
    rows = kernels.read(path)
    return {
        "table": path.name,
        "sha256": checksum(path),
        "rows": len(rows),
        "workloads": len({row.setting for row in rows}),
    }


def _visits(journal: Path) -> dict[str, Any]:
    entries = [json.loads(line.rpartition("\t")[0]) for line in journal.read_text(encoding="utf-8").splitlines()]
    visits = [entry["visit"] for entry in entries if "visit" in entry]
    warm = [visit["temperature_c"] for visit in visits if visit["temperature_c"] is not None]
    return {
        "file": journal.name,
        "count": len(visits),
        "throttled": sum(visit["throttled"] for visit in visits),
        "took_s": round(math.fsum(visit["took_s"] for visit in visits), 3),
        "temperature_c": {"least": min(warm), "most": max(warm)} if warm else None,
    }


def _text(said: dict[str, Any]) -> str:
    return json.dumps(said, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
